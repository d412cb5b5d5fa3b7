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
    """Terms of M_r a + b = G^T tau in independent velocities w, with qd = G w and qdd = G a + acceleration.

    Attributes:
        map: G.
        acceleration: dG/dt w, the accelerations of all coordinates at a = 0.
        mass_matrix: M_r = G^T M G.
        bias: b = G^T (C(q, qd) qd + g + M dG/dt w).
    """

    map: Float[Array, "nv k"]
    acceleration: Float[Array, " nv"]
    mass_matrix: Float[Array, "k k"]
    bias: Float[Array, " k"]


@compiled
def independent_coordinates(
    chain: Chain, constraints: Constraints, q: Float[Array, " nq"], independent: Sequence[str | int]
) -> Float[Array, "nv k"]:
    """G(q) with qd = G w, w the velocities of the independent coordinates: J G = 0, and G is 1 in their rows.

    The other rows are -J_d^+ J_i, J_i and J_d the columns of J for the independent and dependent coordinates. If J_d
    lacks full column rank, the choice does not determine the motion: J G is not 0, or motions are missing.

    Args:
        independent: names of joints (of coordinates, where there is a coupling) or columns of v, as many as the mechanism
            has degrees of freedom.

    Raises:
        ModelError: unknown coordinate, or more dependent ones than constraints.
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
    """Equation of motion in the independent velocities w, without constraint forces: M_r a + b = G^T tau.

    From M qdd + C qd + g = tau + J^T lambda with qd = G w, qdd = G a + dG/dt w, multiplied by G^T: M_r = G^T M G and
    b = G^T (M dG/dt w + C qd + g - sum_i J_i^T F_i). O(n^3). Arguments as for `independent_coordinates`.
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
    """Accelerations of the independent coordinates, M_r^-1 (G^T tau - b): those of `constrained_forward_dynamics`.

    Args:
        tau: torques on all coordinates [N m].
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
    """G^T Y(q, G w, G a + dG/dt w): the torques M_r a + b of `reduced_dynamics` are this times pi, without constraint forces.

    pi = inertial_parameters(chain).reshape(-1); armature and rotors are excluded, as in `regressor`. With the motors' torques
    G^T tau it identifies a mechanism whose passive joints need not be measured: q follows from the independent
    coordinates (`project_configuration`). O(n^3). Arguments as for `independent_coordinates`.

    Args:
        w: velocities of the independent coordinates.
        a: their accelerations.
    """
    g, qd, qdd = reduced_motion(chain, constraints, q, w, a, independent)
    return g.T @ regressor(chain, q, qd, qdd)


def reduced_motion(
    chain: Chain, constraints: Constraints, q: Array, w: Array, a: Array, independent: Sequence[str | int]
) -> tuple[Float[Array, "nv k"], Float[Array, " nv"], Float[Array, " nv"]]:
    """G, and the velocities G w and accelerations G a + dG/dt w of all coordinates."""
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
    """C_r = G^T (C(q, G w) G + M dG/dt): b = C_r w + G^T g, and dM_r/dt - 2 C_r is skew-symmetric.

    With the Christoffel matrix C, dM_r/dt - 2 C_r = G^T (dM/dt - 2 C) G + dG/dt^T M G - G^T M dG/dt. The gravity force of the
    independent coordinates is G^T gravity_force(chain, q). O(n^3). Arguments as for `independent_coordinates`.
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
    """g_r = G^T g(q), which holds the mechanism at rest: M_r a + C_r w + g_r = G^T tau with `reduced_coriolis_matrix`.

    Arguments and errors as for `independent_coordinates`.
    """
    return _split(chain, constraints, q, independent)[0].T @ gravity_force(chain, q)


def _split(chain: Chain, constraints: Constraints, q: Array, independent: Sequence[str | int]):
    """G, the dependent columns, and J_d^+."""
    chosen = coordinate_columns(chain, independent)
    dependent = np.setdiff1d(np.arange(chain.nv), chosen)
    j = constraint_jacobian(chain, constraints, q)
    if len(dependent) > j.shape[0] or not len(dependent):
        raise ModelError(
            f"{len(chosen)} independent coordinates leave {len(dependent)} of {chain.nv} to {j.shape[0]} constraint rows; "
            "give as many as the mechanism has degrees of freedom"
        )
    inverse, _ = pseudo_inverse(j[:, dependent])
    k = len(chosen)
    g = jnp.zeros((chain.nv, k), j.dtype).at[chosen].set(jnp.eye(k, dtype=j.dtype), unique_indices=True)
    return g.at[dependent].set(-inverse @ j[:, chosen], unique_indices=True), dependent, inverse
