"""Estimates of the extreme eigenvalues of the mass matrix by a search over the robot's joint ranges."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...model._chain import Chain
from ...model._configuration import integrate, random_configuration
from ...model._layout import layout
from .mass_matrix import crba

STARTS = 8  # number of samples that are refined for each bound
STEPS = 2.0 ** -np.arange(12)  # step lengths that are tried along the gradient


class MassMatrixBounds(NamedTuple):
    """The result of `mass_matrix_bounds`.

    Attributes:
        lowest: smallest eigenvalue found, an estimate of lambda_m [kg m^2 or kg].
        highest: largest eigenvalue found, an estimate of lambda_M [kg m^2 or kg].
        q_lowest: configuration with the eigenvalue `lowest` [rad or m].
        q_highest: configuration with the eigenvalue `highest` [rad or m].
    """

    lowest: Float[Array, ""]
    highest: Float[Array, ""]
    q_lowest: Float[Array, " nq"]
    q_highest: Float[Array, " nq"]


def mass_matrix_bounds(chain: Chain, key: PRNGKeyArray, count: int = 256, refinements: int = 20) -> MassMatrixBounds:
    """Estimate the smallest and largest eigenvalues lambda_m and lambda_M of M(q) by a search over the joint ranges.

    The eigenvalues of M are computed at `count` random configurations. The best of these are then refined along the gradient
    u^T dM/dq u of the eigenvalue with the unit eigenvector u. For the bounds, see Spong, Hutchinson & Vidyasagar (2020, sec.
    6.5). A search does not prove bounds: lambda_m may be smaller than the estimate `lowest`, and lambda_M larger than
    `highest`. More samples improve the estimates.

    The ranges are those of `random_configuration`: the joint limits, +-pi for joints without limits, and +-1 for coupled
    coordinates. If a prismatic joint has no limits, M may be unbounded. If the robot has both revolute and prismatic joints,
    the eigenvalues mix units.

    Args:
        key: key of `jax.random`.
        count: number of random configurations.
        refinements: number of gradient steps for each refined configuration.

    Returns:
        The extreme eigenvalues [kg m^2 or kg] and their configurations. Derivatives of the eigenvalues with respect to the
            robot are computed at these configurations; the configurations themselves are not differentiated.
    """
    robot = jax.lax.stop_gradient(chain)
    samples = jax.vmap(lambda k: random_configuration(robot, k))(jax.random.split(key, count))
    values = jax.vmap(lambda q: jnp.linalg.eigvalsh(crba(robot, q))[jnp.asarray([0, -1])])(samples)
    starts = jnp.concatenate([jnp.argsort(values[:, 0])[:STARTS], jnp.argsort(-values[:, 1])[:STARTS]])
    tops = jnp.arange(len(starts)) >= len(starts) // 2
    ends = jax.vmap(lambda q, top: _climb(robot, q, top, refinements))(samples[starts], tops)
    reached = jax.vmap(lambda q: _ends(jnp.linalg.eigvalsh(crba(robot, q))))(ends)
    found = jnp.stack([jnp.argmin(reached[:, 0]), jnp.argmax(reached[:, 1])])
    vectors = jax.vmap(lambda q: _ends(jnp.linalg.eigh(crba(robot, q))[1].T))(ends[found])
    # u^T M u and the eigenvalue have the same derivative with respect to the robot
    values = jax.vmap(lambda q, u: u @ crba(chain, q) @ u)(ends[found], vectors[jnp.arange(2), jnp.arange(2)])
    return MassMatrixBounds(values[0], values[1], ends[found[0]], ends[found[1]])


def _ends(x: Array) -> Array:
    """The first and the last entry."""
    return jnp.stack([x[0], x[-1]])


def _climb(chain: Chain, q: Array, top: Array, refinements: int) -> Float[Array, " nq"]:
    """Configuration reached from q by monotonic ascent of the largest eigenvalue (`top`) or descent of the smallest."""
    low, high = _range(chain)
    steps = jnp.asarray(STEPS, q.dtype)
    sign = jnp.where(top, jnp.ones_like(q[0]), -jnp.ones_like(q[0]))
    chosen = lambda pair: jnp.where(top, pair[1], pair[0])
    entries = layout(chain).entries

    def within(q, dq):
        moved = integrate(chain, q, dq)
        return moved.at[entries].set(jnp.clip(moved[entries], low, high))

    def better(q, _):
        u = chosen(_ends(jnp.linalg.eigh(crba(chain, q))[1].T))
        slope = jax.grad(lambda dq: sign * (u @ crba(chain, integrate(chain, q, dq)) @ u))(jnp.zeros(chain.nv, q.dtype))
        length = jnp.sqrt(slope @ slope)
        unit = slope / jnp.where(length > 0, length, jnp.ones_like(length))
        tried = jnp.concatenate([q[None], jax.vmap(lambda s: within(q, s * unit))(steps)])
        values = jax.vmap(lambda x: sign * chosen(_ends(jnp.linalg.eigvalsh(crba(chain, x)))))(tried)
        return tried[jnp.argmax(values)], None

    return jax.lax.scan(better, q, None, length=refinements)[0]


def _range(chain: Chain) -> tuple[Array, Array]:
    """Lower and upper ends of the range of the ordinary coordinates, as in `random_configuration`."""
    if chain.coupling is not None:
        one = jnp.ones(len(layout(chain).columns), chain.dtype)
        return -one, one
    limits = chain.limits.position[layout(chain).columns]
    finite = jnp.isfinite(limits).all(1)
    return jnp.where(finite, limits[:, 0], -jnp.pi), jnp.where(finite, limits[:, 1], jnp.pi)
