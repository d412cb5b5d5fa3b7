"""Velocity terms taken apart, and the identities of skew matrices and adjoints that the derivations rest on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, random_rotation, random_state, relative
from jaxdyn import textbook
from jaxdyn.dynamics import decomposition, velocity_products
from jaxdyn.spatial.se3 import adjoint, pose_exp, pose_inverse, twist_cross
from jaxdyn.spatial.so3 import skew


def products(qd, pairs):
    return np.array([qd[j] * qd[k] for j, k in pairs])


@pytest.mark.ci
def test_the_elbow_has_one_coriolis_term_and_two_centrifugal_ones():
    """Spong, Hutchinson & Vidyasagar 2020, (6.90): with h = -m2 l1 lc2 sin q2, h (2 qd1 qd2 + qd2^2) and -h qd1^2."""
    chain, q2 = textbook.planar_elbow(m2=0.8, l1=0.7, lc2=0.2), 0.9
    split = once(velocity_products)(chain, jnp.asarray([0.4, q2]))
    h = -0.8 * 0.7 * 0.2 * np.sin(q2)
    np.testing.assert_allclose(split.coriolis, [[2 * h], [0]], atol=1e-14)
    np.testing.assert_allclose(split.centrifugal, [[0, h], [-h, 0]], atol=1e-14)
    remote = once(velocity_products)(textbook.remotely_driven_elbow(m2=0.8, l1=0.7, lc2=0.2), jnp.asarray([0.4, 1.3]))
    np.testing.assert_allclose(remote.coriolis, [[0], [0]], atol=1e-14)  # the belt's angles have none
    np.testing.assert_allclose(remote.centrifugal, [[0, h], [-h, 0]], atol=1e-14)


@pytest.mark.parametrize(
    "make", [lambda: random_chain(4, 2), pytest.param(lambda: random_mechanism(3), marks=pytest.mark.nightly)]
)
def test_parts_add_up(make):
    chain = make()
    q, v, _ = mechanism_state(chain, 1)
    split, whole = once(lambda q, v: (velocity_products(chain, q), jaxdyn.coriolis_force(chain, q, v)))(q, v)
    together = split.coriolis @ products(v, split.pairs) + split.centrifugal @ v**2
    assert relative(together, whole) < 1e-12


@pytest.mark.parametrize(
    "make", [lambda: random_chain(4, 5), pytest.param(lambda: random_mechanism(3), marks=pytest.mark.nightly)]
)
def test_the_decomposition_adds_up_to_mass_and_coriolis_matrix(make):
    """M and c by rotation and translation; each part keeps the skew symmetry by itself."""
    chain = make()
    q, v, _ = mechanism_state(chain, 1)

    @once
    def terms(q, v):
        parts = decomposition(chain, q, v)
        pair = lambda t: decomposition(chain, jaxdyn.integrate(chain, q, t * v), v)[:2]
        rates = jax.jvp(pair, (jnp.zeros(()),), (jnp.ones(()),))[1]
        return (
            parts,
            rates,
            jaxdyn.mass_matrix(chain, q),
            jaxdyn.coriolis_force(chain, q, v),
            jaxdyn.gravity_force(chain, q),
        )

    parts, rates, mass, force, gravity = terms(q, v)
    rotors = mass - parts.rotational_mass_matrix - parts.translational_mass_matrix
    drives = jnp.diag(chain.armature)
    if chain.coupling is not None:
        r, s = chain.transmission.matrix, chain.coupling.matrix
        drives = s.T @ (drives + r.T @ (chain.transmission.rotor_inertia[:, None] * r)) @ s
    assert np.abs(rotors - drives).max() < 1e-12
    coriolis = parts.rotational_coriolis_matrix, parts.translational_coriolis_matrix
    assert relative((coriolis[0] + coriolis[1]) @ v, force) < 1e-11
    assert relative(parts.gravity_force, gravity) < 1e-12
    for rate, c in zip(rates, coriolis, strict=True):
        n = rate - 2 * c
        assert np.abs(n + n.T).max() < 1e-11 * np.abs(rate).max()


def test_the_decomposition_of_the_rrp_arm_equals_that_by_hand():
    """D_w is that of the inertias i1, i2, D_v that of the masses (Shih et al. 2012, example 1)."""
    m1, m2, lc1, i1, i2 = 1.3, 0.6, 0.35, 0.04, 0.01
    chain = textbook.spherical_rrp(m1=m1, m2=m2, lc1=lc1, i1=i1, i2=i2)
    q, qd = jnp.asarray([0.5, 0.7, 0.9]), jnp.asarray([1.2, -0.8, 0.4])
    got = once(decomposition)(chain, q, qd)
    c, s, r = np.cos(0.7), np.sin(0.7), 0.9
    a = m1 * lc1**2 + m2 * r**2
    np.testing.assert_allclose(got.rotational_mass_matrix, np.diag([(i1 + i2) * c**2, i1 + i2, 0]), atol=1e-14)
    np.testing.assert_allclose(got.translational_mass_matrix, np.diag([a * c**2, a, m2]), atol=1e-14)
    spin = (i1 + i2) * s * c * np.array([[0.8, -1.2, 0], [1.2, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(got.rotational_coriolis_matrix, spin, atol=1e-14)


def test_skew_matrices_satisfy_their_identities():
    """[a]b = a x b = -[b]a, [a][b] = b a^T - (a . b) 1, [R a] = R [a] R^T, a . [b]c = c . [a]b = b . [c]a."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b, c = rng.normal(size=(3, 3))
        r = random_rotation(rng)
        hat = lambda x: np.asarray(skew(jnp.asarray(x)))
        np.testing.assert_allclose(hat(a) @ b, np.cross(a, b), atol=1e-14)
        np.testing.assert_allclose(hat(a) @ b, -hat(b) @ a, atol=1e-14)
        np.testing.assert_allclose(hat(a) @ hat(b), np.outer(b, a) - (a @ b) * np.eye(3), atol=1e-14)
        np.testing.assert_allclose(hat(np.cross(a, b)), hat(a) @ hat(b) - hat(b) @ hat(a), atol=1e-14)
        np.testing.assert_allclose(hat(r @ a), r @ hat(a) @ r.T, atol=1e-13)
        np.testing.assert_allclose([a @ hat(b) @ c] * 2, [c @ hat(a) @ b, b @ hat(c) @ a], atol=1e-14)


def test_adjoints_satisfy_the_identities_of_the_notes():
    """Ad of products and inverses, dAd_T/dt = Ad_T ad_V for the body twist V, and (Ad_T)^T is not Ad_{T^-1}^T."""
    rng = np.random.default_rng(1)

    @once
    def sides(s, u, v):
        t1, t2 = pose_exp(s), pose_exp(u)
        moved = lambda time: adjoint(t1 @ pose_exp(time * v))
        rate = jax.jvp(moved, (jnp.zeros(()),), (jnp.ones(()),))[1]
        return (
            (adjoint(t1 @ t2), adjoint(t1) @ adjoint(t2)),
            (jnp.linalg.inv(adjoint(t1)), adjoint(pose_inverse(t1))),
            (rate, adjoint(t1) @ twist_cross(v)),
            (adjoint(t1) @ twist_cross(v), twist_cross(adjoint(t1) @ v) @ adjoint(t1)),
            (jax.jacfwd(lambda x: twist_cross(v) @ x)(u) @ u, -twist_cross(u) @ v),
        )

    for _ in range(5):
        s, u, v = (jnp.asarray(x) for x in rng.normal(size=(3, 6)))
        for left, right in sides(s, u, v):
            np.testing.assert_allclose(left, right, atol=1e-12)
        t = pose_exp(s)
        assert np.abs(adjoint(t).T - adjoint(pose_inverse(t)).T).max() > 0.1  # the appendix's equation is false


def test_identities_hold_for_random_states():
    """The decomposition's c from the products of rates too: two splits of one force."""
    chain, (q, qd, _) = random_chain(3, 7), random_state(3, 7)
    parts, split = once(lambda q, qd: (decomposition(chain, q, qd), velocity_products(chain, q)))(q, qd)
    force = (parts.rotational_coriolis_matrix + parts.translational_coriolis_matrix) @ qd
    assert relative(split.coriolis @ products(qd, split.pairs) + split.centrifugal @ qd**2, force) < 1e-12
