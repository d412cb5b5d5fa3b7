"""Torques and accelerations as functions of a parameter vector, with efficient sensitivities.

Output-error methods need forward-mode differentiation with hundreds of tangents. Because tau = W(q, qd, qdd) p is
linear in the parameters p, the recursions for the dynamics need not be repeated for each tangent. For each state, the
differentiation rules in this module compute all matrices once, and multiply them by the tangents.
"""

import functools
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...dynamics import (
    bias_force,
    crba,
    forward_dynamics,
    inverse_dynamics,
    inverse_dynamics_derivatives,
    resistive_force,
)
from ...dynamics._equations.drive_regressors import DRIVE_LEAVES
from ...model._chain import Chain
from .._regression.columns import Columns
from .._regression.completion import with_parameters


def parameters_of(chain: Chain, columns: Columns) -> Float[Array, " p"]:
    """Parameters of a chain in column order, with zeros for columns without a leaf in the chain.

    Unlike `prior_parameters`, this function is traceable by JAX.
    """
    drive = [attrgetter(DRIVE_LEAVES[term])(chain) for term in columns.drive_terms]
    rows = [chain.inertia.reshape(-1), *([jnp.stack(drive, axis=1).reshape(-1)] if drive else [])]
    for extra in columns.extra:
        none = jnp.zeros(len(extra.names), chain.dtype)
        rows.append(none if extra.leaf is None else attrgetter(extra.leaf)(chain)[jnp.array(extra.joints, int) - 1])
    return jnp.concatenate(rows)


def _extra_torque(columns: Columns, chain: Chain, parameters: Array, q: Array, qd: Array, qdd: Array) -> Array:
    """Torques of those extra columns that have no leaf in the chain."""
    at, torque = parameters.shape[0] - sum(len(e.names) for e in columns.extra), jnp.zeros_like(q)
    for extra in columns.extra:
        if extra.leaf is None:
            torque = torque + extra.matrix(chain, q, qd, qdd) @ parameters[at : at + len(extra.names)]
        at += len(extra.names)
    return torque


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def parametric_torque(
    columns: Columns,
    chain: Chain,
    parameters: Float[Array, " p"],
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
) -> Float[Array, " n"]:
    """Torque W(q, qd, qdd) p plus the torques of the chain's other terms, such as friction and springs [N m or N].

    The torque is differentiable with respect to the parameters p and the state. Its derivatives with respect to the
    chain's leaves are zero.
    """
    robot = with_parameters(chain, columns, parameters)
    tau = inverse_dynamics(robot, q, qd, qdd) + resistive_force(robot, q, qd)
    return tau + _extra_torque(columns, robot, parameters, q, qd, qdd) if columns.extra else tau


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def parametric_acceleration(
    columns: Columns,
    chain: Chain,
    parameters: Float[Array, " p"],
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    tau: Float[Array, " n"],
) -> Float[Array, " n"]:
    """Acceleration qdd that solves parametric_torque(columns, chain, p, q, qd, qdd) = tau [rad/s^2 or m/s^2].

    Extra columns must be affine in qdd. The differential is d qdd = M^-1 (d tau - W d p - d ID), where d ID is the
    change in torque due to changes in q and qd. As for `parametric_torque`, derivatives with respect to the chain's
    leaves are zero.
    """
    robot = with_parameters(chain, columns, parameters)
    driven = tau - resistive_force(robot, q, qd)
    if not columns.extra:
        return forward_dynamics(robot, q, qd, driven)
    own = lambda qdd: _extra_torque(columns, robot, parameters, q, qd, qdd)
    still = jnp.zeros_like(qd)
    return jnp.linalg.solve(crba(robot, q) + jax.jacfwd(own)(still), driven - bias_force(robot, q, qd) - own(still))


def _matrices(columns: Columns, chain: Chain, parameters: Array, q: Array, qd: Array, qdd: Array) -> tuple[Any, ...]:
    """The matrices W, d tau / d q, d tau / d qd and M of `parametric_torque` at one state."""
    robot = with_parameters(chain, columns, parameters)
    rigid = inverse_dynamics_derivatives(robot, q, qd, qdd)
    stiffness, damping = jax.jacfwd(lambda x, xd: resistive_force(robot, x, xd), argnums=(0, 1))(q, qd)
    parts = [rigid.q + stiffness, rigid.qd + damping, rigid.qdd]
    if columns.extra:
        more = jax.jacfwd(lambda *x: _extra_torque(columns, robot, parameters, *x), argnums=(0, 1, 2))(q, qd, qdd)
        parts = [a + b for a, b in zip(parts, more, strict=True)]
    return (columns.matrix(robot, q, qd, qdd), *parts)


@parametric_torque.defjvp
def _model_torque_jvp(columns, primals, tangents):
    _, dp, dq, dqd, dqdd = tangents
    w, by_q, by_qd, inertia = _matrices(columns, *primals)
    return parametric_torque(columns, *primals), w @ dp + by_q @ dq + by_qd @ dqd + inertia @ dqdd


@parametric_acceleration.defjvp
def _model_acceleration_jvp(columns, primals, tangents):
    chain, parameters, q, qd, _ = primals
    _, dp, dq, dqd, dtau = tangents
    qdd = parametric_acceleration(columns, *primals)
    w, by_q, by_qd, inertia = _matrices(columns, chain, parameters, q, qd, qdd)
    inverse = jnp.linalg.inv(inertia)
    return qdd, inverse @ (dtau - w @ dp - by_q @ dq - by_qd @ dqd)
