"""How well a predicted torque is known: the part of it that the uncertainty of the parameters makes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model._chain import Chain
from .._regression.base_parameters import BaseParameters
from .._regression.columns import Columns
from .._regression.prediction import by_chunks
from .._regression.robot import as_float64


def torque_band(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    covariance: Float[np.ndarray, "b b"],
    q: Float[np.ndarray, "N n"],
    qd: Float[np.ndarray, "N n"],
    qdd: Float[np.ndarray, "N n"],
) -> Float[np.ndarray, "N n"]:
    """Standard deviation of the torque predicted along a motion: sqrt(diag(W C W^T)), row by row [N m or N].

    W is the base regressor and C the covariance of the base parameters (`Estimate.covariance`). It says in torques what the
    estimate's uncertainty comes to, whatever the parameters are, where intervals of single parameters say little or, for
    those that no torque sees, nothing. Measured torques scatter about the prediction by their noise besides:
    sqrt(band^2 + Estimate.noise^2).

    Cost: a base regressor a sample and O(n b^2), in chunks of one size.
    """
    root = np.linalg.cholesky(covariance + 1e-15 * np.diag(np.diag(covariance)))
    with jax.enable_x64(True):
        model, kept, held = as_float64(chain), jnp.asarray(base.kept), jnp.asarray(root)
        return by_chunks(functools.partial(_band, columns, model, kept, held), q, qd, qdd)


@functools.partial(jax.jit, static_argnums=0)
def _band(columns: Columns, chain: Chain, kept: Array, root: Array, q: Array, qd: Array, qdd: Array) -> Array:
    def row(*state):
        return jnp.sqrt(((columns.matrix(chain, *state)[:, kept] @ root) ** 2).sum(1))

    return jax.vmap(row)(q, qd, qdd)
