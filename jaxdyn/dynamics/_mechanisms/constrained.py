"""Dynamics under constraints: accelerations and constraint forces, and the torques for a given motion."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._mechanisms.constraint import Constraints, coordinate_columns
from .._equations.inverse import bias_force, inverse_dynamics
from .._equations.mass_matrix import crba
from .._lowering import sparse_jvp
from .constraint import constraint_jacobian, constraint_target, constraint_terms
from .pseudo_inverse import pseudo_inverse, rank_tolerance

Stabilisation = tuple[float | Array, float | Array]


class ConstrainedDynamics(NamedTuple):
    """Accelerations under constraints, constraint forces, and residuals.

    Attributes:
        acceleration: accelerations qdd [rad/s^2 or m/s^2].
        multipliers: constraint forces on the robot, one per row of J. For frames, they are the moment and force (n, f) that
            `other` exerts on `frame`, in the axes and about the origin of the constraint's frame on `other` [N m, N]. If
            constraints are redundant, the multipliers have minimum norm.
        rank: number of independent rows of J.
        redundant: True if rows of J are dependent; accelerations are then unique, but multipliers are not.
        residual: largest absolute entry of J qdd - r, where r is the required value of J qdd; it exceeds rounding errors if
            constraints contradict each other [m/s^2, rad/s^2].
        consistent: True if the residual is within rounding errors.
    """

    acceleration: Float[Array, " nv"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    redundant: Bool[Array, ""]
    residual: Float[Array, ""]
    consistent: Bool[Array, ""]


@compiled
def constrained_forward_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    stabilisation: Stabilisation = (0.0, 0.0),
    tolerance: float | Float[Array, ""] | None = None,
) -> ConstrainedDynamics:
    """Accelerations qdd and constraint forces lambda of a robot under constraints phi(q) = 0:

        M(q) qdd + C(q, qd) qd + g(q) = tau + J(q)^T lambda,
        J(q) qdd + dJ/dt qd = -2 alpha d phi/dt - beta^2 phi.

    The cost is O(n^3). Friction and springs are not included; to include them, pass tau - resistive_force(chain, q, qd).

    Let M = L L^T, W = J L^-T, and let r be the required value of J qdd. The solution is L^T qdd = z + W^+ (r - W z) and
    lambda = W^+T W^+ (r - W z), where z = L^-1 (tau - C qd - g) is the unconstrained solution. The pseudo-inverse W^+ is
    computed by singular value decomposition, so multipliers of redundant constraints have minimum norm. Derivatives are
    obtained by implicit differentiation of the two equations, at constant rank.

    Args:
        constraints: one or more constraints (`point_constraint`, `pose_constraint`, `FunctionConstraint`).
        tau: joint torques [N m] (forces [N] for prismatic joints).
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        stabilisation: Baumgarte's gains (alpha, beta) [1/s], which counteract drift; if they are equal, phi is critically
            damped.
        tolerance: singular values of W below this fraction of the largest are treated as zero; by default, the square
            root of the machine epsilon.

    Raises:
        ModelError: there is no constraint, or a constraint refers to an unknown frame.
    """
    gains = jnp.asarray(stabilisation[0], q.dtype), jnp.asarray(stabilisation[1], q.dtype)
    tolerance = rank_tolerance(q, tolerance)
    a, multipliers, rank, residual, bound = _dynamics(
        chain, constraints, q, qd, tau, external_wrenches, gains, tolerance
    )
    rank = rank.astype(int)
    redundant = rank < multipliers.shape[0]
    return ConstrainedDynamics(a, multipliers, rank, redundant, residual, residual <= bound)


class Factors(NamedTuple):
    """The Cholesky factor L of M = L L^T, the matrix W = J L^-T, its pseudo-inverse, the Jacobian J, and the rank of W."""

    lower: Float[Array, "nv nv"]
    whitened: Float[Array, "m nv"]
    inverse: Float[Array, "nv m"]
    jacobian: Float[Array, "m nv"]
    rank: Float[Array, ""]


def factorise(chain: Chain, q: Float[Array, " nq"], j: Float[Array, "m nv"], tolerance) -> Factors:
    """Compute the factors that `solve` requires, O(n^3)."""
    lower = jnp.linalg.cholesky(crba(chain, q))
    whitened = solve_triangular(lower, j.T, lower=True).T
    inverse, rank = pseudo_inverse(whitened, tolerance)
    return Factors(lower, whitened, inverse, j, rank)


def solve(
    factors: Factors, force: Float[Array, " nv"], rate: Float[Array, " m"]
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Solution (x, lambda) of M x = force + J^T lambda and J x = rate, O(n^2)."""
    free = solve_triangular(factors.lower, force, lower=True)
    change = factors.inverse @ (rate - factors.whitened @ free)
    x = solve_triangular(factors.lower, free + change, lower=True, trans="T")
    return x, factors.inverse.T @ change


def _solution(chain, constraints, q, qd, tau, wrenches, stabilisation, tolerance):
    terms = constraint_terms(chain, constraints, q, qd)
    factors = factorise(chain, q, terms.jacobian, tolerance)
    wanted = constraint_target(terms, qd, stabilisation)
    a, multipliers = solve(factors, tau - bias_force(chain, q, qd, wrenches), wanted)
    residual, bound = _violation(factors.jacobian, a, wanted)
    return (a, multipliers, factors.rank, residual, bound), factors


def _violation(matrix: Array, x: Array, wanted: Array) -> tuple[Array, Array]:
    """Largest |A x - wanted|, and a bound on the part of it that is due to rounding."""
    matrix, x, wanted = (jax.lax.stop_gradient(y) for y in (matrix, x, wanted))
    size = (jnp.abs(matrix) @ jnp.abs(x) + jnp.abs(wanted)).max()
    return jnp.abs(matrix @ x - wanted).max(), size * float(jnp.finfo(x.dtype).eps) ** 0.5


@jax.custom_jvp
def _dynamics(chain, constraints, q, qd, tau, wrenches, stabilisation, tolerance):
    return _solution(chain, constraints, q, qd, tau, wrenches, stabilisation, tolerance)[0]


def _dynamics_jvp(primals, tangents):
    out, factors = _solution(*primals)
    a, multipliers = out[:2]
    # W^+ determines only the part of d lambda in the range of J; the remainder, which keeps lambda in that range as J changes,
    # is (1 - W W^+) dJ y with y = M^-1 J^T A^+ lambda and A = W W^T
    y, _ = solve(factors, jnp.zeros_like(a), multipliers)

    def equations(chain, constraints, q, qd, tau, wrenches, stabilisation):
        terms = constraint_terms(chain, constraints, q, qd)
        j = terms.jacobian
        force = tau - inverse_dynamics(chain, q, qd, a, wrenches) + j.T @ multipliers
        return force, constraint_target(terms, qd, stabilisation) - j @ a, j @ y

    _, (force, rate, turn) = sparse_jvp(equations, primals[:-1], tangents[:-1])
    da, d_multipliers = solve(factors, force + factors.jacobian.T @ turn, rate)
    rank, residual, bound = (jnp.zeros_like(x) for x in out[2:])
    return out, (da, d_multipliers + turn, rank, residual, bound)


_dynamics.defjvp(_dynamics_jvp, symbolic_zeros=True)


class ConstrainedTorques(NamedTuple):
    """Torques that produce a given motion under constraints.

    Attributes:
        torques: torques on the actuated coordinates, in the order of the argument `actuated` [N m or N].
        multipliers: constraint forces on the robot, as in `ConstrainedDynamics` [N m, N].
        rank: number of independent motions that the actuated coordinates drive.
        residual: largest absolute entry of M qdd + C qd + g - B u - J^T lambda, the force that cannot be produced [N m or N].
        feasible: True if the residual is within rounding errors.
    """

    torques: Float[Array, " k"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    residual: Float[Array, ""]
    feasible: Bool[Array, ""]


@compiled
def constrained_inverse_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    actuated: Sequence[str | int],
    external_wrenches: Float[Array, "n 6"] | None = None,
    tolerance: float | Float[Array, ""] | None = None,
) -> ConstrainedTorques:
    """Torques u on the actuated coordinates that produce qdd: M qdd + C qd + g = B u + J^T lambda, O(n^3).

    B contains the columns of the identity matrix for the actuated coordinates. The acceleration must satisfy the constraints, J
    qdd = -dJ/dt qd.

    With N = 1 - J^+ J, the solution is u = (N B)^+ N (M qdd + C qd + g) and lambda = J^+T (M qdd + C qd + g - B u). These
    torques have minimum norm if the robot is over-actuated, and are the least-squares solution if it is under-actuated.

    Args:
        actuated: actuated coordinates, given as names of joints (of coordinates if joints are coupled) or columns of v.
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        tolerance: tolerance for the rank of J and of N B, as in `constrained_forward_dynamics`.

    Raises:
        ModelError: a coordinate is unknown, there is no constraint, or a constraint refers to an unknown frame.
    """
    columns = jnp.asarray(coordinate_columns(chain, actuated))
    needed = inverse_dynamics(chain, q, qd, qdd, external_wrenches)
    j = constraint_jacobian(chain, constraints, q)
    inverse, _ = pseudo_inverse(j, tolerance)
    free = jnp.eye(chain.nv, dtype=j.dtype) - inverse @ j
    drive, rank = pseudo_inverse(free[:, columns], tolerance)
    torques = drive @ (free @ needed)
    rest = needed.at[columns].add(-torques)
    multipliers = inverse.T @ rest
    residual, bound = _violation(j.T, multipliers, rest)
    bound = jnp.maximum(bound, jax.lax.stop_gradient(jnp.abs(needed).max()) * float(jnp.finfo(j.dtype).eps) ** 0.5)
    return ConstrainedTorques(torques, multipliers, rank.astype(int), residual, residual <= bound)
