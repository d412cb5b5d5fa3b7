"""M_r, C_r and g_r of a closed chain by hand, and the skew symmetry of dM_r/dt - 2 C_r."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import once
from jaxdyn.mechanisms import linkages, reduced_coriolis_matrix, reduced_dynamics, reduced_gravity_force

INDEPENDENT = "joint1", "joint2"


@pytest.mark.ci
def test_the_five_bar_has_the_reduced_matrices_derived_by_hand():
    """Spong, Hutchinson & Vidyasagar 2020, sec. 6.4: M, C and g in the two absolute angles."""
    (m1, m2, m3, m4) = masses = (1.1, 0.9, 0.8, 0.7)
    (i1, i2, i3, i4) = inertias = (0.05, 0.02, 0.04, 0.06)
    (lc1, lc2, lc3, lc4) = distances = (0.4, 0.2, 0.45, 0.3)
    l1, l2 = 0.9, 0.35
    chain, pin = linkages.five_bar(masses=masses, l1=l1, l2=l2, com_distances=distances, inertias=inertias, gravity=9.7)
    q1, q2, w1, w2 = 0.5, 1.4, 1.1, -0.6
    q, w = jnp.asarray([q1, q2, q1 - q2, q2 - q1]), jnp.asarray([w1, w2])

    @once
    def found(q, w):
        terms = reduced_dynamics(chain, pin, q, w, INDEPENDENT)
        along = lambda t: reduced_dynamics(chain, pin, q + t * (terms.map @ w), w, INDEPENDENT).mass_matrix
        rate = jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),))[1]
        coriolis = reduced_coriolis_matrix(chain, pin, q, w, INDEPENDENT)
        return terms, rate, coriolis, reduced_gravity_force(chain, pin, q, INDEPENDENT)

    terms, rate, coriolis, held = found(q, w)
    d = m3 * l2 * lc3 - m4 * l1 * lc4
    d11 = m1 * lc1**2 + m3 * lc3**2 + m4 * l1**2 + i1 + i3
    d22 = m2 * lc2**2 + m3 * l2**2 + m4 * lc4**2 + i2 + i4
    d12, s12 = d * np.cos(q2 - q1), np.sin(q1 - q2)
    gravity = 9.7 * np.array(
        [(m1 * lc1 + m3 * lc3 + m4 * l1) * np.cos(q1), (m2 * lc2 + m3 * l2 - m4 * lc4) * np.cos(q2)]
    )
    np.testing.assert_allclose(terms.mass_matrix, [[d11, d12], [d12, d22]], atol=1e-12)
    np.testing.assert_allclose(coriolis, [[0, d * s12 * w2], [-d * s12 * w1, 0]], atol=1e-12)
    np.testing.assert_allclose(held, gravity, atol=1e-12)
    np.testing.assert_allclose(coriolis @ w + held, terms.bias, atol=1e-12)
    n = rate - 2 * coriolis
    np.testing.assert_allclose(n + n.T, np.zeros((2, 2)), atol=1e-12)
    assert np.abs(rate).max() > 1e-3
