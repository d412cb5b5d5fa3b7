"""Certified bounds of the mass matrix: against eigenvalues by hand, fine grids, and every sample."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_chain
from jaxdyn import textbook
from jaxdyn.dynamics import certified_mass_matrix_bounds


def test_the_elbow_has_the_bounds_derived_by_hand():
    """Eigenvalues of the elbow depend on cos q2 alone, which takes all values from -1 to 1."""
    m1, m2, l1, lc1, lc2, i1, i2 = 1.2, 0.8, 0.7, 0.3, 0.2, 0.05, 0.03
    chain = textbook.planar_elbow(m1=m1, m2=m2, l1=l1, lc1=lc1, lc2=lc2, i1=i1, i2=i2)
    c = np.linspace(-1, 1, 20001)
    k = m2 * l1 * lc2
    m11 = m1 * lc1**2 + m2 * (l1**2 + lc2**2) + 2 * k * c + i1 + i2
    m12, m22 = m2 * lc2**2 + k * c + i2, m2 * lc2**2 + i2
    middle, radius = (m11 + m22) / 2, np.hypot((m11 - m22) / 2, m12)
    low, high = (middle - radius).min(), (middle + radius).max()
    found = certified_mass_matrix_bounds(chain, tolerance=1e-5)
    assert found.below <= low <= found.lowest + 1e-9 and found.highest - 1e-9 <= high <= found.above
    assert low - found.below < 1.1e-5 * high and found.above - high < 1.1e-5 * high
    assert found.boxes < 20_000


def test_the_bounds_of_one_link_are_its_moment_of_inertia():
    found = certified_mass_matrix_bounds(textbook.pendulum(mass=2.0, length=0.6))
    moment = 2.0 * 0.6**2 / 3
    np.testing.assert_allclose(found[:4], 4 * [moment], rtol=1e-11)


@pytest.mark.parametrize("limits", [None, (0.1, 0.4)])
def test_no_sampled_eigenvalue_is_outside_the_proved_bounds(limits):
    """Three joints in space with axes anywhere: bounds hold at 3000 configurations, and are close to what these reach."""
    chain = random_chain(3, 1, "revolute")
    low, high = (-np.pi, np.pi) if limits is None else limits
    if limits is not None:
        few = dataclasses.replace(chain.limits, position=jnp.tile(jnp.asarray(limits), (3, 1)))
        chain = dataclasses.replace(chain, limits=few)
    found = certified_mass_matrix_bounds(chain, tolerance=1e-2)
    samples = jax.random.uniform(jax.random.key(0), (3000, 3), minval=low, maxval=high)
    values = once(lambda q: jax.lax.map(lambda x: jnp.linalg.eigvalsh(jaxdyn.crba(chain, x)), q))(samples)
    assert 0 < found.below < values.min() and values.max() < found.above
    assert (
        found.below <= found.lowest <= found.below / 0.99 + 1e-9
        and found.highest <= found.above <= 1.0101 * found.highest
    )


def test_bounds_hold_for_trees_and_with_few_boxes():
    """Two arms on one base turn by themselves; with few boxes the bounds are wide, and still hold."""
    chain = random_chain(4, 2, "revolute")
    chain = dataclasses.replace(chain, topology=jaxdyn.Topology((-1, 0, -1, 2)))
    loose, close = (certified_mass_matrix_bounds(chain, boxes=b, tolerance=1e-2) for b in (10, 2000))
    assert (
        loose.below < close.below <= close.lowest and close.highest <= close.above < loose.above and loose.boxes <= 22
    )
    samples = jax.random.uniform(jax.random.key(0), (1000, 4), minval=-np.pi, maxval=np.pi)
    values = once(lambda q: jax.lax.map(lambda x: jnp.linalg.eigvalsh(jaxdyn.crba(chain, x)), q))(samples)
    assert close.below < values.min() and values.max() < close.above


def test_robots_whose_bounds_cannot_be_proved_are_refused():
    others = textbook.biped(floating=True), textbook.remotely_driven_elbow(), textbook.geared_link()
    for chain in (*others, textbook.cartesian_two_link(), random_chain(2, joints="helical")):
        with pytest.raises(jaxdyn.ModelError, match="revolute joints"):
            certified_mass_matrix_bounds(chain)
    with pytest.raises(jaxdyn.ModelError, match="M depends on 9 joints"):
        certified_mass_matrix_bounds(textbook.biped())
