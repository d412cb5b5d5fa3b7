"""Reduction of a constrained robot to independent coordinates."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._mechanisms.constraint import Constraints, coordinate_columns
from .._equations.inverse import inverse_dynamics
from .._equations.mass_matrix import crba
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

    The other rows are -J_d^+ J_i, J_i and J_d the columns of J of the independent and of the dependent coordinates. Where J_d
    has not the rank of their number the choice does not determine the motion: J G is not 0, or motions are missing.

    Args:
        independent: names of joints (of coordinates, where there is a coupling) or columns of v, as many as the mechanism
            has degrees of freedom.

    Raises:
        ModelError: no such coordinate, or more dependent ones than constraints.
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
    g, dependent, inverse = _split(chain, constraints, q, independent)
    qd = g @ w
    dependent_rate = -inverse @ constraint_bias(chain, constraints, q, qd)
    acceleration = jnp.zeros_like(qd).at[dependent].set(dependent_rate, unique_indices=True)
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
