"""Dynamics in operational space, in terms of the twist V of a frame: F = Lambda(q) dV/dt + eta(q, qd)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float, Int

from ..errors import ModelError
from ..model.chain import Chain, Position, Velocity
from ..model.compiled import compiled
from .composite_body import crba
from .kinematics import Reference, jacobian, jacobian_derivative
from .newton_euler import bias_force


class OperationalSpace(NamedTuple):
    """The result of `operational_space`, which describes it."""

    inertia: Float[Array, "6 6"]
    bias: Float[Array, "6"]
    inverse: Float[Array, "nv 6"]
    rank: Int[Array, ""]


@compiled
def operational_space_inertia(
    chain: Chain,
    q: Position,
    frame: str | None = None,
    reference: Reference = "body",
    damping: float | Float[Array, ""] | Float[Array, "6"] = 0.0,
) -> Float[Array, "6 6"]:
    """Inertia felt at a frame, Lambda(q) = (J M^-1 J^T)^-1 (Lynch & Park 2017, sec. 8.6) [kg m^2, kg m, kg].

    Lambda is symmetric, with the rotational directions first. If J is square, Lambda = J^-T M J^-1. For robots with
    fewer than six joints, see `operational_space`. With damping d, Lambda = (J M^-1 J^T + diag(d))^-1, so the inertia
    does not exceed 1 / d in any direction. Without damping, Lambda and its derivatives remain finite at singularities,
    but are of order 1 / eps and 1 / eps^2 in the directions in which the frame cannot move, where eps is the machine
    epsilon.

    Args:
        frame: as for `jacobian`.
        reference: as for `jacobian`.
        damping: damping d, given as a scalar or one value per direction of the twist [1/(kg m^2), 1/kg].

    Raises:
        ModelError: the frame or reference is unknown, or the robot has fewer than six velocities and there is no
            damping.
    """
    mobility, _ = _mobility(chain, q, frame, reference, damping)
    inverse = _solve(mobility, jnp.eye(6, dtype=mobility.dtype))
    return 0.5 * (inverse + inverse.T)


@compiled
def operational_space_bias(
    chain: Chain,
    q: Position,
    qd: Velocity,
    frame: str | None = None,
    reference: Reference = "body",
    damping: float | Float[Array, ""] | Float[Array, "6"] = 0.0,
) -> Float[Array, "6"]:
    """Bias wrench eta(q, qd) = J_bar^T (C qd + g) - Lambda dJ/dt qd in F = Lambda dV/dt + eta [N m, N].

    F is the wrench on the robot at the frame, equivalent to the joint torques J^T F. If J is square, eta = J^-T (C qd +
    g) - Lambda dJ/dt J^-1 V. The arguments and errors are those of `operational_space_inertia`.
    """
    mobility, solved = _mobility(chain, q, frame, reference, damping)
    return _solve(mobility, _drift(chain, q, qd, frame, reference, solved))


@compiled
def dynamically_consistent_inverse(
    chain: Chain,
    q: Position,
    frame: str | None = None,
    reference: Reference = "body",
    damping: float | Float[Array, ""] | Float[Array, "6"] = 0.0,
) -> Float[Array, "nv 6"]:
    """Dynamically consistent inverse J_bar = M^-1 J^T Lambda of the Jacobian (Khatib 1987).

    Among all joint velocities with J qd = V, qd = J_bar V has the least kinetic energy. Without damping, J J_bar = 1 to
    within rounding errors, and torques of the form (1 - J^T J_bar^T) tau do not accelerate the frame. The arguments and
    errors are those of `operational_space_inertia`.
    """
    mobility, solved = _mobility(chain, q, frame, reference, damping)
    return _solve(mobility, solved.T).T


@compiled
def operational_space(
    chain: Chain,
    q: Position,
    qd: Velocity,
    frame: str | None = None,
    reference: Reference = "body",
    tolerance: float | None = None,
) -> OperationalSpace:
    """Inertia Lambda, bias eta, inverse J_bar and rank of J, by the pseudo-inverse of J M^-1 J^T, for any number of joints.

    If the frame can move in all six directions, the results are those of `operational_space_inertia`,
    `operational_space_bias` and `dynamically_consistent_inverse`. Otherwise, F = Lambda dV/dt + eta is the minimum-norm
    wrench that produces a feasible acceleration dV/dt; the norm weights moments [N m] and forces [N] equally, and
    depends on `reference`. Derivatives assume constant rank. Lambda is discontinuous at a singularity; the damped
    `operational_space_inertia` is a smooth alternative.

    Args:
        tolerance: eigenvalues of J M^-1 J^T below this fraction of the largest are treated as zero; by default,
            eps^0.75 with the machine epsilon eps.

    Returns:
        - inertia: operational-space inertia Lambda, zero in directions in which the frame cannot move [kg m^2, kg m, kg].
        - bias: bias wrench eta [N m, N].
        - inverse: dynamically consistent inverse of the Jacobian, J_bar = M^-1 J^T Lambda.
        - rank: number of independent directions in which the frame can move, according to the tolerance.

    Raises:
        ModelError: the frame or reference is unknown.
    """
    mobility, solved = _mobility_factors(chain, q, frame, reference)
    least = jnp.finfo(mobility.dtype).eps ** 0.75 if tolerance is None else tolerance
    inertia = symmetric_pseudo_inverse(mobility, jnp.asarray(least, mobility.dtype))
    bias = inertia @ _drift(chain, q, qd, frame, reference, solved)
    # the trace of the projector onto the directions in which the frame can move
    rank = jnp.round(jnp.trace(jax.lax.stop_gradient(inertia @ mobility))).astype(jnp.int32)
    return OperationalSpace(inertia, bias, solved @ inertia, rank)


def _mobility_factors(
    chain: Chain, q: Array, frame: str | None, reference: Reference
) -> tuple[Float[Array, "6 6"], Float[Array, "nv 6"]]:
    """J M^-1 J^T and M^-1 J^T."""
    j = jacobian(chain, q, frame, reference)
    lower = jnp.linalg.cholesky(crba(chain, q))
    half = solve_triangular(lower, j.T, lower=True)  # J M^-1 J^T = half^T half has exactly the rank of J
    return half.T @ half, solve_triangular(lower, half, lower=True, trans=1)


def _mobility(
    chain: Chain, q: Array, frame: str | None, reference: Reference, damping: float | Array
) -> tuple[Float[Array, "6 6"], Float[Array, "nv 6"]]:
    """J M^-1 J^T + diag(damping), regularised so that its Cholesky factor exists, and M^-1 J^T."""
    if chain.nv < 6 and isinstance(damping, int | float) and damping == 0:
        raise ModelError(
            f"a robot with {chain.nv} velocities cannot move a frame in six directions, so its inertia is infinite in "
            "some directions; pass damping= or use operational_space"
        )
    mobility, solved = _mobility_factors(chain, q, frame, reference)
    # Rounding can make a singular matrix indefinite by a few eps of its diagonal (Higham 2002, theorem 10.7). Therefore each
    # diagonal entry is increased by a few eps of its value, with a tiny lower limit for directions without motion.
    own, eps = jnp.diagonal(mobility), jnp.finfo(mobility.dtype).eps
    added = jnp.asarray(damping, mobility.dtype) + 16 * eps * jnp.maximum(own, eps * own.max())
    return mobility + jnp.diag(jnp.broadcast_to(added, (6,))), solved


def _drift(
    chain: Chain, q: Array, qd: Array, frame: str | None, reference: Reference, solved: Array
) -> Float[Array, "6"]:
    """The negative of the frame's acceleration at zero torques, J M^-1 (C qd + g) - dJ/dt qd."""
    return solved.T @ bias_force(chain, q, qd) - jacobian_derivative(chain, q, qd, frame, reference) @ qd


def _solve(mobility: Array, b: Array) -> Array:
    return cho_solve(cho_factor(mobility, lower=True), b)


def symmetric_pseudo_inverse(a: Float[Array, "k k"], tolerance: Float[Array, ""]) -> Float[Array, "k k"]:
    """`pseudo_inverse` of a positive semidefinite matrix, with `tolerance` relative to the largest eigenvalue."""
    values, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(a))
    inverses = _inverses(values, tolerance * values[-1])
    return _differentiable(a, (vectors * inverses[None, :]) @ vectors.T)


def pseudo_inverse(
    matrix: Float[Array, "m n"], tolerance: float | Float[Array, ""] | None = None
) -> tuple[Float[Array, "n m"], Float[Array, ""]]:
    """Moore-Penrose inverse and rank, with singular values below `tolerance` times the largest treated as zero."""
    left, values, right = jnp.linalg.svd(jax.lax.stop_gradient(matrix), full_matrices=False)
    inverse = _inverses(values, limit := rank_tolerance(matrix, tolerance) * values[0])
    return _differentiable(matrix, (right.T * inverse[None]) @ left.T), (values > limit).sum().astype(matrix.dtype)


def rank_tolerance(like: Array, tolerance: float | Float[Array, ""] | None) -> Float[Array, ""]:
    """The given tolerance, or by default the square root of the machine epsilon."""
    value = float(jnp.finfo(like.dtype).eps) ** 0.5 if tolerance is None else tolerance
    return jnp.asarray(value, like.dtype)


def _inverses(values: Float[Array, " k"], limit: Float[Array, ""]) -> Float[Array, " k"]:
    """Reciprocals of the values above a limit, and zero for the others."""
    kept = values > limit
    return jnp.where(kept, 1 / jnp.where(kept, values, jnp.ones_like(values)), jnp.zeros_like(values))


@jax.custom_jvp
def _differentiable(matrix: Float[Array, "m n"], inverse: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """`inverse`, differentiated as the pseudo-inverse of `matrix`."""
    del matrix
    return inverse


@_differentiable.defjvp
def _differentiable_jvp(primals, tangents):
    a, constant = primals
    da = tangents[0]
    p = _differentiable(a, constant)
    turned = da.T @ p.T  # dA^T A^+T
    outside = turned @ p
    inside = p @ (p.T @ da.T)
    return p, -p @ da @ p + inside - (inside @ a) @ p + outside - p @ (a @ outside)
