"""Matrices between pairs of links, (n, n, *lanes), built row by row from vectors over links.

Computed row by row, because arrays of n numbers per state stay in cache, and because XLA cannot compile operations on
whole matrices inside a kernel (`_lowering`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._lowering import scan_links, spread_over_lanes


def by_row(
    carries: Bool[np.ndarray, "n n"],
    row: Callable[[Any], Any],
    of_rows: Any,
    together: Bool[np.ndarray, "n n"] | None = None,
) -> tuple[Float[Array, "n n *#lanes"], ...]:
    """Matrices X_k with X_k[i, j] = above_k[j] where link j carries i or is i, beyond_k[j] where i carries j, else 0.

    Args:
        carries: [j, i] whether link j carries link i or is it (`ancestor_mask`).
        row: gives (above, beyond) of row i, each a tuple of vectors over links, from the i-th of `of_rows`
            (with a leading axis of length 1).
        of_rows: arrays stacked over links, for `row`.
        together: pairs treated as j carries i in either order.
    """
    above = carries.T if together is None else carries.T | together
    beyond = carries & ~above
    spread = lambda m, x: m.reshape(m.shape + (1,) * (x.ndim - 1))

    def body(_, x):
        has_above, has_beyond, inputs = x
        pairs = zip(*row(jax.tree.map(lambda y: y[None], inputs)), strict=True)
        return None, tuple(
            jnp.where(spread(has_above, one), one, jnp.where(spread(has_beyond, one), other, jnp.zeros_like(one)))
            for one, other in pairs
        )

    return scan_links(body, None, (jnp.asarray(above), jnp.asarray(beyond), of_rows))[1]


def jacobian_by_column(
    function: Callable[[Float[Array, "n *lanes"]], Float[Array, "m *lanes"]], x: Float[Array, "n *#lanes"]
) -> Float[Array, "m n *#lanes"]:
    """The Jacobian of a function of one state, for every lane: like `jax.jacfwd`, along the unit vectors of the first axis."""
    x = spread_over_lanes(x)
    basis = jnp.eye(x.shape[0], dtype=x.dtype).reshape(x.shape[0], x.shape[0], *(1,) * (x.ndim - 1))
    along = lambda unit: jax.jvp(function, (x,), (jnp.broadcast_to(unit, x.shape),))[1]
    return jax.vmap(along, out_axes=1)(basis)


def with_diagonal(
    matrix: Float[Array, "n n *lanes"], x: Float[Array, " n"] | Float[Array, "n lanes"]
) -> Float[Array, "n n *lanes"]:
    """The matrix and x on its diagonal, of every lane."""
    n, lanes = matrix.shape[0], (1,) * (matrix.ndim - 2)
    diagonal = x.reshape(1, n, *(x.shape[1:] or lanes))
    return matrix + jnp.eye(n, dtype=matrix.dtype).reshape(n, n, *lanes) * diagonal
