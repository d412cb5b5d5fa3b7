"""Dynamics in the coordinates of a task, the twist of a frame: F = Lambda(q) dV/dt + eta(q, v)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float, Int

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.jacobian import Reference, jacobian, jacobian_derivative
from .inverse import bias_force
from .mass_matrix import crba


class OperationalSpace(NamedTuple):
    """The result of `operational_space`.

    Attributes:
        inertia: Lambda, zero in the directions in which the frame cannot move.
        bias: eta.
        inverse: J_bar = M^-1 J^T Lambda.
        rank: number of independent directions in which the frame can move, to the tolerance.
    """

    inertia: Float[Array, "6 6"]
    bias: Float[Array, "6"]
    inverse: Float[Array, "nv 6"]
    rank: Int[Array, ""]


@compiled
def operational_space_inertia(
    chain: Chain,
    q: Float[Array, " nq"],
    frame: str | None = None,
    reference: Reference = "body",
    damping: float | Float[Array, ""] | Float[Array, "6"] = 0.0,
) -> Float[Array, "6 6"]:
    """Lambda(q) = (J M^-1 J^T)^-1, the inertia felt at a frame: J^-T M J^-1 where J is square (Lynch & Park 2017, sec. 8.6).

    For six joints or more, away from singularities; for fewer see `operational_space`. With damping d it is
    (J M^-1 J^T + diag(d))^-1: no direction is heavier than 1 / d. Without damping, values and derivatives stay finite
    at singularities, but only indicate lost directions: they are of order 1 / eps and its square.

    Args:
        frame: link or frame; the chain's tip if None.
        reference: coordinates of the twist, as for `jacobian`.
        damping: one number, or one for each of the six directions [1/(kg m^2), 1/kg].

    Returns:
        6x6, symmetric [kg m^2, kg m, kg].

    Raises:
        ModelError: unknown frame or reference; fewer than six velocities and no damping.
    """
    mobility, _ = _mobility(chain, q, frame, reference, damping)
    return _inverse(mobility)


@compiled
def operational_space_bias(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | None = None,
    reference: Reference = "body",
    damping: float | Float[Array, ""] | Float[Array, "6"] = 0.0,
) -> Float[Array, "6"]:
    """eta(q, v) = J_bar^T (C v + g) - Lambda dJ/dt v, so that the wrench F = Lambda dV/dt + eta gives dV/dt [N m, N].

    F acts on the robot at the frame, as the torques J^T F of the joints do. With J square this is
    J^-T (C v + g) - Lambda dJ/dt J^-1 V. Arguments, cost and errors as for `operational_space_inertia`.
    """
    mobility, solved = _mobility(chain, q, frame, reference, damping)
    return _solve(mobility, _drift(chain, q, v, frame, reference, solved))


@compiled
def dynamically_consistent_inverse(
    chain: Chain,
    q: Float[Array, " nq"],
    frame: str | None = None,
    reference: Reference = "body",
    damping: float | Float[Array, ""] | Float[Array, "6"] = 0.0,
) -> Float[Array, "nv 6"]:
    """J_bar = M^-1 J^T Lambda: v = J_bar V has the least kinetic energy of all v with J v = V (Khatib 1987).

    J J_bar = 1 to rounding without damping, and torques (1 - J^T J_bar^T) tau do not accelerate the frame. Arguments
    and errors as for `operational_space_inertia`.
    """
    mobility, solved = _mobility(chain, q, frame, reference, damping)
    return _solve(mobility, solved.T).T


@compiled
def operational_space(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | None = None,
    reference: Reference = "body",
    tolerance: float | None = None,
) -> OperationalSpace:
    """Lambda, eta and J_bar by the pseudo-inverse of J M^-1 J^T, for any number of joints, and the rank of J.

    Where the frame can move in all six directions these are the three functions above. Otherwise (fewer than six
    joints, or at a singularity) F = Lambda dV/dt + eta is the minimum-norm wrench for feasible accelerations dV/dt;
    with fewer than six independent joints, J^T F are the joint torques. The norm is in SI units, with moments and
    forces weighted equally, and depends on `reference`. Derivatives are those at constant rank (Golub & Pereyra 1973);
    Lambda is discontinuous at a singularity, where damping is the smooth alternative.

    Args:
        frame: link or frame; the chain's tip if None.
        reference: coordinates of the twist, as for `jacobian`.
        tolerance: eigenvalues of J M^-1 J^T below this times the largest are taken as zero; eps^0.75 of the type if None.

    Raises:
        ModelError: unknown frame or reference.
    """
    mobility, solved = _mobility_factors(chain, q, frame, reference)
    least = jnp.finfo(mobility.dtype).eps ** 0.75 if tolerance is None else tolerance
    inertia = _pseudo_inverse(mobility, jnp.asarray(least, mobility.dtype))
    bias = inertia @ _drift(chain, q, v, frame, reference, solved)
    # the projector onto the remaining directions
    rank = jnp.round(jnp.trace(jax.lax.stop_gradient(inertia @ mobility))).astype(jnp.int32)
    return OperationalSpace(inertia, bias, solved @ inertia, rank)


def _mobility_factors(
    chain: Chain, q: Array, frame: str | None, reference: Reference
) -> tuple[Float[Array, "6 6"], Float[Array, "nv 6"]]:
    """J M^-1 J^T and M^-1 J^T."""
    j = jacobian(chain, q, frame, reference)
    lower = jnp.linalg.cholesky(crba(chain, q))
    half = solve_triangular(lower, j.T, lower=True)  # J M^-1 J^T = half^T half, of exactly the rank of J
    return half.T @ half, solve_triangular(lower, half, lower=True, trans=1)


def _mobility(
    chain: Chain, q: Array, frame: str | None, reference: Reference, damping: float | Array
) -> tuple[Float[Array, "6 6"], Float[Array, "nv 6"]]:
    """J M^-1 J^T + diag(damping), which has a Cholesky factor, and M^-1 J^T."""
    if chain.nv < 6 and isinstance(damping, int | float) and damping == 0:
        raise ModelError(
            f"a robot of {chain.nv} joints cannot move a frame in six directions, so its inertia is infinite in some: "
            "pass damping=, or use operational_space"
        )
    mobility, solved = _mobility_factors(chain, q, frame, reference)
    # Rounding makes a singular matrix indefinite by some eps of its diagonal (Higham 2002, theorem 10.7): that much is
    # added in every direction, in its own units, and almost nothing in directions without motion
    own, eps = jnp.diagonal(mobility), jnp.finfo(mobility.dtype).eps
    added = jnp.asarray(damping, mobility.dtype) + 16 * eps * jnp.maximum(own, eps * own.max())
    return mobility + jnp.diag(jnp.broadcast_to(added, (6,))), solved


def _drift(
    chain: Chain, q: Array, v: Array, frame: str | None, reference: Reference, solved: Array
) -> Float[Array, "6"]:
    """J M^-1 (C v + g) - dJ/dt v: minus the frame's acceleration at zero torques."""
    return solved.T @ bias_force(chain, q, v) - jacobian_derivative(chain, q, v, frame, reference) @ v


def _solve(mobility: Array, b: Array) -> Array:
    return cho_solve(cho_factor(mobility, lower=True), b)


def _inverse(mobility: Array) -> Array:
    inverse = _solve(mobility, jnp.eye(6, dtype=mobility.dtype))
    return 0.5 * (inverse + inverse.T)


@jax.custom_jvp
def _pseudo_inverse(a: Float[Array, "k k"], tolerance: Float[Array, ""]) -> Float[Array, "k k"]:
    """The pseudo-inverse of a symmetric, positive semidefinite matrix, ignoring eigenvalues below tolerance times the
    largest."""
    values, vectors = jnp.linalg.eigh(a)
    kept = values > tolerance * values[-1]
    inverses = jnp.where(kept, 1 / jnp.where(kept, values, jnp.ones_like(values)), jnp.zeros_like(values))
    return (vectors * inverses[None, :]) @ vectors.T


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals, tangents):
    # dP = -P dA P + P P dA (1 - A P) + (1 - P A) dA P P at constant rank: no eigenvectors are differentiated
    a, tolerance = primals
    da = 0.5 * (tangents[0] + tangents[0].T)
    p = _pseudo_inverse(a, tolerance)
    rest = jnp.eye(a.shape[0], dtype=a.dtype) - a @ p
    across = p @ p @ da @ rest
    return p, across + across.T - p @ da @ p
