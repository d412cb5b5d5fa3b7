"""How light and how heavy a robot gets: bounds of the mass matrix over its range of positions, by search."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.chain import Chain
from ..model.configuration import integrate, layout, random_configuration
from .mass_matrix import crba

STARTS = 8  # the best samples, that are refined
STEPS = 2.0 ** -np.arange(12)  # relative lengths tried along the gradient


class MassMatrixBounds(NamedTuple):
    """What `mass_matrix_bounds` returns.

    Attributes:
        lowest: lambda_m.
        highest: lambda_M.
        q_lowest: where the lowest was found.
        q_highest: where the highest was found.
    """

    lowest: Float[Array, ""]
    highest: Float[Array, ""]
    q_lowest: Float[Array, " nq"]
    q_highest: Float[Array, " nq"]


def mass_matrix_bounds(chain: Chain, key: PRNGKeyArray, count: int = 256, refinements: int = 20) -> MassMatrixBounds:
    """lambda_m and lambda_M with lambda_m 1 <= M(q) <= lambda_M 1 over the range of positions, estimated by search.

    The extreme eigenvalues of M at `count` random configurations, the best of which then climb along the eigenvalue's
    gradient u^T dM/dq u with steps of decreasing length (Spong, Hutchinson & Vidyasagar, sec. 6.5 for the bounds). This
    is a numerical estimate from inside, not a proof: the true lambda_m is at most `lowest` and the true lambda_M at
    least `highest`; more samples come closer. The range is that of `random_configuration`: the limits, +-pi where there
    are none, +-1 for coupled coordinates. With prismatic joints of no limits M has no upper bound. Where joints are of
    different kinds the eigenvalues mix units.

    Args:
        key: of `jax.random`.
        count: number of samples.
        refinements: number of steps of each climb.

    Returns:
        the bounds [kg m^2 or kg] and where they were found. Derivatives of the bounds with respect to the robot are those
        of the eigenvalues at these configurations; there are none of the configurations.
    """
    robot = jax.lax.stop_gradient(chain)
    samples = jax.vmap(lambda k: random_configuration(robot, k))(jax.random.split(key, count))
    values = jax.vmap(lambda q: jnp.linalg.eigvalsh(crba(robot, q))[jnp.asarray([0, -1])])(samples)
    lowest, q_lowest = _refine(robot, samples, -values[:, 0], 0, refinements)
    highest, q_highest = _refine(robot, samples, values[:, 1], -1, refinements)
    return MassMatrixBounds(
        _eigenvalue_at(chain, q_lowest, lowest), _eigenvalue_at(chain, q_highest, highest), q_lowest, q_highest
    )


def _refine(chain: Chain, samples: Array, scores: Array, which: int, refinements: int) -> tuple[Array, Array]:
    """The eigenvector and the configuration of the best eigenvalue that climbs from the best samples reach."""
    sign = 1 if which else -1
    low, high = _range(chain)
    steps = jnp.asarray(STEPS, samples.dtype)

    def vector(q):
        return jnp.linalg.eigh(crba(chain, q))[1][:, which]

    def within(q, dq):
        moved = integrate(chain, q, dq)
        entries = layout(chain).entries
        return moved.at[entries].set(jnp.clip(moved[entries], low, high))

    def climb(q, _):
        u = vector(q)
        slope = jax.grad(lambda dq: sign * (u @ crba(chain, integrate(chain, q, dq)) @ u))(jnp.zeros(chain.nv, q.dtype))
        length = jnp.sqrt(slope @ slope)
        unit = slope / jnp.where(length > 0, length, jnp.ones_like(length))
        tried = jnp.concatenate([q[None], jax.vmap(lambda s: within(q, s * unit))(steps)])
        reached = sign * jax.vmap(lambda x: jnp.linalg.eigvalsh(crba(chain, x))[which])(tried)
        best = jnp.argmax(reached)
        return tried[best], reached[best]

    best = jnp.argsort(-scores)[:STARTS]
    ends, reached = jax.vmap(lambda q: jax.lax.scan(climb, q, None, length=refinements))(samples[best])
    # no climb ends below where it starts
    q = ends[jnp.argmax(reached[:, -1] if refinements else scores[best])]
    return vector(q), q


def _range(chain: Chain) -> tuple[Array, Array]:
    """Bounds of the ordinary coordinates, as `random_configuration` has them."""
    if chain.coupling is not None:
        one = jnp.ones(len(layout(chain).columns), chain.dtype)
        return -one, one
    limits = chain.position_limits[layout(chain).columns]
    finite = jnp.isfinite(limits).all(1)
    return jnp.where(finite, limits[:, 0], -jnp.pi), jnp.where(finite, limits[:, 1], jnp.pi)


def _eigenvalue_at(chain: Chain, q: Array, u: Array) -> Float[Array, ""]:
    """u^T M(q) u, whose derivative with respect to the robot is the eigenvalue's, at u its unit eigenvector."""
    return u @ crba(chain, q) @ u
