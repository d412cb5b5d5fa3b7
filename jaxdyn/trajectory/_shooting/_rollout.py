"""The forward sweep of shooting: the trajectory under a policy about another one, its gaps closed in part."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...dynamics import resistive_force
from ...dynamics._kinematics.coordinates import base_gravity
from ...dynamics._lowering import LARGEST, lane_shape, loop_by_batch, with_lanes
from ...dynamics._recursions.articulated import articulated_body
from ...model._configuration import difference, integrate
from ...model._layout import is_ordinary
from .._linear_quadratic._problem import LQPolicy, matrix_times
from .._problem._problem import OptimalControlProblem, advance
from .._problem._solution import Trajectory
from ._local_model import EULER


def under_policy(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    policy: LQPolicy,
    gaps: Float[Array, "steps n"],
    length: float | Float[Array, ""],
) -> Trajectory:
    """The trajectory under tau + length k + K (x - x_before), within the limits, with gaps (1 - length) as wide as before.

    As in feasibility-driven dynamic programming (Mastalli et al. 2020): a full step closes all gaps.
    """
    length = jnp.asarray(length, trajectory.q.dtype)
    left = (1 - length) * gaps
    chain = problem.chain
    simple = (
        is_ordinary(chain)
        and chain.transmission is None
        and problem.method in EULER
        and not problem.has_torque_rate
        and chain.nv <= 24
    )
    limits = problem.torque_limits
    start = problem.q0.astype(left.dtype), problem.v0.astype(left.dtype)
    turns = (trajectory.q[:-1], trajectory.v[:-1], trajectory.tau, policy.gains, length * policy.feedforward, left)
    if simple:
        width = max(100 + 2 * chain.n, 4 * chain.n**2) if chain.n > 1 else 2 * LARGEST
        semi_implicit = jnp.asarray(float(problem.method == EULER[0]), left.dtype)
        constants = (chain, base_gravity(chain), problem.dt, semi_implicit, limits)
        (q, v), (qs, vs, tau) = loop_by_batch(_step, start, constants, turns, width)
    else:
        (q, v, _), (qs, vs, tau) = _general(problem, trajectory, start, turns)
    joined = lambda xs, x: jnp.concatenate([xs, x[None]])
    return Trajectory(trajectory.t, joined(qs, q), joined(vs, v), tau)


def _step(state, constants, x):
    """One step of an ordinary chain, written for lanes."""
    chain, gravity, dt, semi_implicit, limits = constants
    (q, v), (q_before, v_before, tau, gains, feedforward, left) = state, x
    n = chain.n
    q, v, q_before, v_before, tau, feedforward, left = (
        with_lanes(y, 1) for y in (q, v, q_before, v_before, tau, feedforward, left)
    )
    away = jnp.concatenate([q - q_before, v - v_before])
    tau = tau + feedforward + matrix_times(with_lanes(gains, 2), away)
    if limits is not None:
        limits = with_lanes(limits, 2)
        tau = jnp.clip(tau, limits[:, 0], limits[:, 1])
    qdd = articulated_body(chain, q, v, tau - _passive(chain, q, v), gravity, None)
    after = v + dt * qdd
    new = q + dt * (v + semi_implicit * (after - v)) - left[:n], after - left[n:]
    return new, (q, v, tau)


def _passive(chain, q: Array, v: Array) -> Array:
    """`resistive_force`, of lanes too."""
    function = lambda friction, springs, q, v: resistive_force(
        dataclasses.replace(chain, friction=friction, springs=springs), q, v
    )
    parts = chain.friction, chain.springs
    if not lane_shape():
        return function(*parts, q, v)
    axes = jax.tree.map(lambda x: -1 if x.ndim == 2 else None, parts)
    return jax.vmap(function, (*axes, -1, -1), -1)(*parts, q, v)


def _general(problem: OptimalControlProblem, trajectory: Trajectory, start, turns):
    """The same of any chain and method."""
    chain, limits, nv = problem.chain, problem.torque_limits, problem.chain.nv

    def one(state, x):
        (q, v, changed), (q_before, v_before, tau_before, gains, feedforward, left) = state, x
        away = [difference(chain, q_before, q), v - v_before]
        away = jnp.concatenate([*away, changed] if problem.has_torque_rate else away)
        tau = tau_before + feedforward + gains @ away
        if limits is not None:
            tau = jnp.clip(tau, limits[:, 0], limits[:, 1])
        q_after, v_after = advance(problem, q, v, tau)
        new = integrate(chain, q_after, -left[:nv]), v_after - left[nv : 2 * nv], tau - tau_before
        return new, (q, v, tau)

    return jax.lax.scan(one, (*start, jnp.zeros_like(trajectory.tau[0])), turns)
