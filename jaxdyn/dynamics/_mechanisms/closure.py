"""Projection onto constraints: the nearest configuration and the nearest velocity that satisfy them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._configuration import difference, integrate
from ...model._layout import layout
from ...model._mechanisms.constraint import Constraints, coordinate_columns
from .._lowering import sparse_jvp
from .constrained import factorise, solve
from .constraint import constraint_jacobian, constraint_residual
from .pseudo_inverse import pseudo_inverse, rank_tolerance


class Projection(NamedTuple):
    """A configuration projected onto the constraints.

    Attributes:
        configuration: projected configuration q [rad or m].
        iterations: number of iterations.
        residual: largest absolute entry of phi(q) [m, rad].
        converged: True if the residual and the last step are within the tolerance. If False, derivatives are meaningless.
    """

    configuration: Float[Array, " nq"]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]


@compiled
def project_configuration(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    held: Sequence[str | int] = (),
    max_iterations: int = 50,
    tolerance: float | None = None,
) -> Projection:
    """The configuration nearest to q that satisfies phi = 0: integrate(chain, q, u) with the smallest |u|.

    The configuration is found by the Gauss-Newton iteration u <- J^+ (J u - phi) with J = d phi / du, whose fixed points
    satisfy phi = 0 with u in the range of J^T. If q is close to a solution, the iteration converges in a few steps. If q is far
    from every solution, or there is none, the iteration may fail; `converged` is then False.

    Derivatives are those of the fixed point: du = (1 - dT/du)^-1 dT for the iteration u <- T(u). The iterations are neither
    differentiated nor stored.

    Args:
        held: coordinates that are held fixed, given as names of joints or columns of v. For example, with all independent
            coordinates fixed, the result contains the dependent coordinates that close the loop.
        max_iterations: maximum number of iterations.
        tolerance: tolerance for the residual and for the last step [m, rad]; by default, 1000 times the machine epsilon.

    Raises:
        ModelError: a coordinate is unknown, there is no constraint, or a constraint refers to an unknown frame.
    """
    tolerance = 1000 * float(jnp.finfo(q.dtype).eps) if tolerance is None else tolerance
    free = jnp.ones(chain.nv, q.dtype).at[jnp.asarray(coordinate_columns(chain, held))].set(0.0)
    limits = (jnp.asarray(max_iterations, q.dtype), jnp.asarray(tolerance, q.dtype))
    u, iterations, step = _nearest(chain, constraints, q, free, limits)
    projected = integrate(chain, q, u)
    residual = jax.lax.stop_gradient(jnp.abs(constraint_residual(chain, constraints, projected)).max())
    converged = (residual <= tolerance) & (step <= tolerance)
    return Projection(projected, iterations.astype(int), residual, converged)


def _improve(chain, constraints, q, u, free):
    """J^+ (J u - phi) at integrate(q, u), and the largest |phi|."""
    here = integrate(chain, q, u)
    j = constraint_jacobian(chain, constraints, here)
    if layout(chain).quaternions:
        j = j @ jax.jacfwd(lambda du: difference(chain, here, integrate(chain, q, u + du)))(jnp.zeros_like(u))
    j = j * free[None]
    inverse, _ = pseudo_inverse(j)
    phi = constraint_residual(chain, constraints, here)
    return free * (inverse @ (j @ u - phi)), jnp.abs(phi).max()


@jax.custom_jvp
def _nearest(chain, constraints, q, free, limits):
    most, tolerance = limits

    def unfinished(state):
        count, _, residual, step = state
        return (count < most) & ~((residual <= tolerance) & (step <= tolerance))

    def body(state):
        count, u, _, _ = state
        new, residual = _improve(chain, constraints, q, u, free)
        return count + 1, new, residual, jnp.abs(new - u).max()

    far = jnp.full((), jnp.inf, q.dtype)
    count, u, _, step = jax.lax.while_loop(unfinished, body, (jnp.zeros_like(most), jnp.zeros_like(free), far, far))
    return u, count, step


def _nearest_jvp(primals, tangents):
    out = _nearest(*primals)
    chain, constraints, q, free, _ = primals
    u = out[0]
    moved = lambda chain, constraints, q: _improve(chain, constraints, q, u, free)[0]
    _, change = sparse_jvp(moved, (chain, constraints, q), tangents[:3])
    slope = jax.jacfwd(lambda u: _improve(chain, constraints, q, u, free)[0])(u)
    du = jnp.linalg.solve(jnp.eye(u.shape[0], dtype=u.dtype) - slope, change)
    return out, (du, jnp.zeros_like(out[1]), jnp.zeros_like(out[2]))


_nearest.defjvp(_nearest_jvp, symbolic_zeros=True)


@compiled
def project_velocity(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tolerance: float | Float[Array, ""] | None = None,
) -> Float[Array, " nv"]:
    """The velocity qd' nearest to qd, in the metric of the mass matrix, with J(q) qd' = 0, O(n^3) [rad/s or m/s].

    The result qd' = qd - M^-1 J^T (J M^-1 J^T)^+ J qd is the velocity after a plastic impact on the constraints, and M (qd' -
    qd) is the impulse of the constraints. Among all changes of velocity after which the constraints are satisfied, qd' - qd has
    the least kinetic energy.

    Args:
        tolerance: tolerance for the rank of J, as in `constrained_forward_dynamics`.

    Raises:
        ModelError: there is no constraint, or a constraint refers to an unknown frame.
    """
    j = constraint_jacobian(chain, constraints, q)
    factors = factorise(chain, q, j, rank_tolerance(q, tolerance))
    return qd + solve(factors, jnp.zeros_like(qd), -j @ qd)[0]
