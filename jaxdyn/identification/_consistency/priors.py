"""Divergences of a link from its prior, as convex regularisers of its ten inertial parameters.

J denotes the pseudo-inertia of the link, and J0 that of its prior. All three divergences are convex in the ten
parameters, and zero only at the prior (Lee, Wensing & Park 2020). The entropic and the pullback divergences depend only
on relative changes of the parameters, so they are independent of units and frames. To second order in dJ = J - J0, both
equal tr((J0^-1 dJ)^2) / 2.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...spatial.inertia import pseudo_inertia
from ...spatial.pseudo_inertia import pseudo_inertia_factor

Divergence = Callable[[Float[Array, "10"], Float[Array, "10"]], Float[Array, ""]]


def euclidean_divergence(pi: Float[Array, "10"], prior: Float[Array, "10"]) -> Float[Array, ""]:
    """Euclidean divergence D = |pi - pi0|^2 / 2, which depends on the units and on the link's frame."""
    return 0.5 * jnp.sum((pi - prior) ** 2)


def entropic_divergence(pi: Float[Array, "10"], prior: Float[Array, "10"]) -> Float[Array, ""]:
    """Entropic (log-det Bregman) divergence D = tr(J0^-1 J) - log det(J0^-1 J) - 4.

    D grows without bound as a link becomes flat, thin or massless, which keeps estimates physically consistent. It is
    NaN if the pseudo-inertia J of the link, or J0 of the prior, is not positive definite.
    """
    u0, u = pseudo_inertia_factor(pseudo_inertia(prior)), pseudo_inertia_factor(pseudo_inertia(pi))
    m = _left_solve(u0, u)
    return jnp.sum(m**2) - 2 * jnp.sum(jnp.log(jnp.diagonal(u) / jnp.diagonal(u0))) - 4


def pullback_divergence(pi: Float[Array, "10"], prior: Float[Array, "10"]) -> Float[Array, ""]:
    """Pullback divergence D = tr((J0^-1 (J - J0))^2) / 2, the squared distance in the affine-invariant metric at the prior.

    D is NaN if the pseudo-inertia J0 of the prior is not positive definite.
    """
    u0 = pseudo_inertia_factor(pseudo_inertia(prior))
    white = _left_solve(u0, _left_solve(u0, pseudo_inertia(pi)).T) - jnp.eye(4, dtype=pi.dtype)
    return 0.5 * jnp.sum(white**2)


def _left_solve(u: Float[Array, "4 4"], a: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    return jax.scipy.linalg.solve_triangular(u, a, lower=False)
