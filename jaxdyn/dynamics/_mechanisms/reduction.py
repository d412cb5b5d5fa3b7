"""Reduction of a constrained robot to independent coordinates."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._configuration import integrate
from ...model._mechanisms.constraint import Constraints, coordinate_columns
from .._equations.coriolis import coriolis_matrix
from .._equations.inverse import gravity_force, inverse_dynamics
from .._equations.mass_matrix import crba
from .._equations.regressor import regressor
from .constraint import constraint_bias, constraint_jacobian
from .pseudo_inverse import pseudo_inverse


class ReducedDynamics(NamedTuple):
    """Terms of the equation of motion M_r a + b = G^T tau in independent velocities w.

    The velocities and accelerations of all coordinates are qd = G w and qdd = G a + dG/dt w, with a = dw/dt.

    Attributes:
        map: matrix G, which maps independent velocities to those of all coordinates.
        acceleration: accelerations dG/dt w of all coordinates at a = 0 [rad/s^2 or m/s^2].
        mass_matrix: reduced mass matrix M_r = G^T M G [kg m^2 or kg].
        bias: bias forces b = G^T (C(q, qd) qd + g + M dG/dt w) [N m or N].
    """

    map: Float[Array, "nv k"]
    acceleration: Float[Array, " nv"]
    mass_matrix: Float[Array, "k k"]
    bias: Float[Array, " k"]


@compiled
def independent_coordinates(
    chain: Chain, constraints: Constraints, q: Float[Array, " nq"], independent: Sequence[str | int]
) -> Float[Array, "nv k"]:
    """Matrix G(q) with qd = G w and J G = 0, where w are the independent velocities [rad/s or m/s], O(n^3).

    G is the identity in the rows of the independent coordinates and -J_d^+ J_i in the rows of the dependent coordinates, where
    J_i and J_d are the columns of J for the independent and the dependent coordinates. If J_d does not have full column rank,
    the independent coordinates do not determine the motion: J G is not 0, or G does not contain all admissible motions.

    Args:
        independent: independent coordinates, one per degree of freedom of the mechanism, given as names of joints (of
            coordinates if joints are coupled) or columns of v.

    Raises:
        ModelError: a coordinate is unknown, there are no dependent coordinates, or there are more dependent coordinates than
            constraint rows.
    """
    return _split(chain, constraints, q, independent)[0]


@compiled
def reduced_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    w: Float[Array, " k"],
    independent: Sequence[str | int],
    external_wrenches: Float[Array, "n 6"] | None = None,
) -> ReducedDynamics:
    """Equation of motion in the independent velocities w, without constraint forces: M_r a + b = G^T tau, O(n^3).

    Substituting qd = G w and qdd = G a + dG/dt w into M qdd + C qd + g = tau + sum_i J_i^T F_i + J^T lambda, and multiplying by
    G^T, yields M_r = G^T M G and b = G^T (M dG/dt w + C qd + g - sum_i J_i^T F_i).

    Args:
        w: velocities of the independent coordinates [rad/s or m/s].
        independent: independent coordinates, as for `independent_coordinates`, which raises the same errors.
        external_wrenches: wrenches (n, f) F_i that act *on* each link, in the link's frame [N m, N].
    """
    g, qd, acceleration = reduced_motion(chain, constraints, q, w, jnp.zeros_like(w), independent)
    bias = g.T @ inverse_dynamics(chain, q, qd, acceleration, external_wrenches)
    return ReducedDynamics(g, acceleration, g.T @ crba(chain, q) @ g, bias)


@compiled
def reduced_forward_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    w: Float[Array, " k"],
    tau: Float[Array, " nv"],
    independent: Sequence[str | int],
    external_wrenches: Float[Array, "n 6"] | None = None,
) -> Float[Array, " k"]:
    """Accelerations M_r^-1 (G^T tau - b) of the independent coordinates, O(n^3) [rad/s^2 or m/s^2].

    The accelerations agree with those of `constrained_forward_dynamics`. The other arguments and the errors are the same as for
    `reduced_dynamics`.

    Args:
        tau: torques on all coordinates [N m or N].
    """
    terms = reduced_dynamics(chain, constraints, q, w, independent, external_wrenches)
    return cho_solve(cho_factor(terms.mass_matrix, lower=True), terms.map.T @ tau - terms.bias)


@compiled
def reduced_regressor(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    w: Float[Array, " k"],
    a: Float[Array, " k"],
    independent: Sequence[str | int],
) -> Float[Array, "k p"]:
    """Regressor Y_r = G^T Y(q, G w, G a + dG/dt w) of a mechanism: Y_r pi = M_r a + b [N m or N], O(n^3).

    M_r and b are those of `reduced_dynamics`, without armature and rotors. Columns are ordered as in `regressor`, for pi =
    inertial_parameters(chain).reshape(-1). Since the independent coordinates determine q (`project_configuration`), a mechanism
    can be identified from the reduced motor torques G^T tau, without sensors at its passive joints. The other arguments and the
    errors are the same as for `independent_coordinates`.

    Args:
        w: velocities of the independent coordinates [rad/s or m/s].
        a: accelerations of the independent coordinates [rad/s^2 or m/s^2].
    """
    g, qd, qdd = reduced_motion(chain, constraints, q, w, a, independent)
    return g.T @ regressor(chain, q, qd, qdd)


def reduced_motion(
    chain: Chain, constraints: Constraints, q: Array, w: Array, a: Array, independent: Sequence[str | int]
) -> tuple[Float[Array, "nv k"], Float[Array, " nv"], Float[Array, " nv"]]:
    """The matrix G, and the velocities G w and accelerations G a + dG/dt w of all coordinates."""
    g, dependent, inverse = _split(chain, constraints, q, independent)
    qd = g @ w
    bias = -inverse @ constraint_bias(chain, constraints, q, qd)
    return g, qd, (g @ a).at[dependent].add(bias, unique_indices=True)


@compiled
def reduced_coriolis_matrix(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    w: Float[Array, " k"],
    independent: Sequence[str | int],
) -> Float[Array, "k k"]:
    """Coriolis matrix C_r = G^T (C(q, G w) G + M dG/dt) of a mechanism, O(n^3) [N m s/rad].

    The bias in `reduced_dynamics` is b = C_r w + G^T g, where G^T g is `reduced_gravity_force`. The matrix dM_r/dt - 2 C_r =
    G^T (dM/dt - 2 C) G + dG/dt^T M G - G^T M dG/dt is skew-symmetric, since dM/dt - 2 C is skew-symmetric for the
    `coriolis_matrix` C. The other arguments and the errors are the same as for `independent_coordinates`.

    Args:
        w: velocities of the independent coordinates [rad/s or m/s].
    """
    g, _, _ = _split(chain, constraints, q, independent)
    qd = g @ w
    moved = lambda t: _split(chain, constraints, integrate(chain, q, t * qd), independent)[0]
    _, rate = jax.jvp(moved, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
    return g.T @ (coriolis_matrix(chain, q, qd) @ g + crba(chain, q) @ rate)


@compiled
def reduced_gravity_force(
    chain: Chain, constraints: Constraints, q: Float[Array, " nq"], independent: Sequence[str | int]
) -> Float[Array, " k"]:
    """Generalised forces g_r = G^T g(q) that hold the mechanism still against gravity [N m or N].

    The equation of motion is M_r a + C_r w + g_r = G^T tau with C_r = `reduced_coriolis_matrix`. The arguments and errors are
    the same as for `independent_coordinates`.
    """
    return _split(chain, constraints, q, independent)[0].T @ gravity_force(chain, q)


def _split(chain: Chain, constraints: Constraints, q: Array, independent: Sequence[str | int]):
    """G, the dependent columns, and J_d^+."""
    chosen = coordinate_columns(chain, independent)
    dependent = np.setdiff1d(np.arange(chain.nv), chosen)
    j = constraint_jacobian(chain, constraints, q)
    if len(dependent) > j.shape[0] or not len(dependent):
        raise ModelError(
            f"{len(chosen)} of {chain.nv} coordinates are independent, which leaves {len(dependent)} dependent ones for "
            f"{j.shape[0]} constraint rows; choose one independent coordinate per degree of freedom"
        )
    inverse, _ = pseudo_inverse(j[:, dependent])
    k = len(chosen)
    g = jnp.zeros((chain.nv, k), j.dtype).at[chosen].set(jnp.eye(k, dtype=j.dtype), unique_indices=True)
    return g.at[dependent].set(-inverse @ j[:, chosen], unique_indices=True), dependent, inverse
