"""Pseudo-inertias, log-Cholesky parameters and divergences of one body, against Pinocchio and against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest

from helpers import random_inertia, random_rotation
from jaxdyn import ModelError
from jaxdyn.identification import entropic_divergence
from jaxdyn.spatial.inertia import (
    check_consistent,
    inertial_parameters_from_pseudo_inertia,
    log_cholesky_factor,
    log_cholesky_from_factor,
    log_cholesky_from_inertial_parameters,
    log_cholesky_to_inertial_parameters,
    pseudo_inertia,
    transform_inertial_parameters,
)

THETA = np.random.default_rng(0).normal(size=(20, 10)) * np.array([0.5, *[0.5] * 3, *[0.3] * 6])
to_pi = jax.jit(jax.vmap(log_cholesky_to_inertial_parameters))
to_theta = jax.jit(jax.vmap(log_cholesky_from_inertial_parameters))


def test_log_cholesky_parameters_are_converted_and_back():
    pi = to_pi(THETA)
    np.testing.assert_allclose(to_theta(pi), THETA, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(
        jax.vmap(log_cholesky_from_factor)(jax.vmap(log_cholesky_factor)(THETA)), THETA, atol=1e-14
    )
    np.testing.assert_allclose(
        jax.vmap(lambda x: inertial_parameters_from_pseudo_inertia(pseudo_inertia(x)))(pi), pi, atol=1e-14
    )
    for one in np.asarray(pi):
        check_consistent("link", one)
    own = np.array([random_inertia(np.random.default_rng(k)) for k in range(5)])
    np.testing.assert_allclose(to_pi(to_theta(own)), own, rtol=1e-12, atol=1e-14)
    single = np.asarray(to_theta(to_pi(THETA.astype(np.float32))))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, THETA, atol=2e-3)  # the centre of mass shifts the moments, which costs digits


def test_pinocchio_has_the_same_log_cholesky_parameters():
    jacobian = jax.vmap(jax.jacfwd(log_cholesky_to_inertial_parameters))(THETA)
    for theta, pi, slope in zip(THETA, np.asarray(to_pi(THETA)), np.asarray(jacobian), strict=True):
        other = pin.LogCholeskyParameters(theta)
        np.testing.assert_allclose(pi, np.asarray(other.toDynamicParameters()).ravel(), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(slope, other.calculateJacobian(), rtol=1e-11, atol=1e-13)
        matrix = np.asarray(pseudo_inertia(jnp.asarray(pi)))
        np.testing.assert_allclose(matrix, other.toPseudoInertia().toMatrix(), rtol=1e-12, atol=1e-14)


@pytest.mark.ci
def test_derivatives_of_both_conversions_are_inverses():
    pi = to_pi(THETA)
    there = jax.vmap(jax.jacrev(log_cholesky_to_inertial_parameters))(THETA)
    back = jax.vmap(jax.jacfwd(log_cholesky_from_inertial_parameters))(pi)
    np.testing.assert_allclose(back @ there, np.broadcast_to(np.eye(10), (20, 10, 10)), atol=1e-8)


POINT = [2.0, 0, 0, 0.6, 0.18, 0, 0.18, 0, 0, 0.0]


@pytest.mark.parametrize(
    ("pi", "message"),
    [
        ([-1.0, *[0.0] * 9], "link 'arm': mass -1 kg is not positive"),
        ([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 3], "link 'arm': no body of positive density .*triangle inequality"),
        (POINT, "no body of positive density"),
        ([1.0, 2, 0, 0, 1, 0, 1, 0, 0, 1], "no body of positive density"),
        ([1.0, np.nan, *[0.0] * 8], "NaN"),
    ],
)
def test_impossible_bodies_are_refused(pi, message):
    with pytest.raises(ModelError, match=message):
        check_consistent("arm", np.array(pi))


def test_the_entropic_divergence_is_convex_and_least_at_the_prior():
    pi = np.asarray(to_pi(THETA))
    prior = jnp.asarray(pi[0])
    value = jax.jit(jax.vmap(entropic_divergence, in_axes=(0, None)))
    assert abs(value(pi[:1], prior)[0]) < 1e-12 and np.all(value(pi[1:], prior) > 0)
    assert np.abs(jax.grad(entropic_divergence)(prior, prior)).max() < 1e-11
    middle = 0.5 * (pi[1:-1] + pi[2:])
    assert np.all(value(middle, prior) <= 0.5 * (value(pi[1:-1], prior) + value(pi[2:], prior)))


def test_the_entropic_divergence_is_quadratic_nearby_and_the_same_in_every_frame():
    pi, prior = (jnp.asarray(x) for x in np.asarray(to_pi(THETA[:2] * 0.3)))
    near = prior + 1e-5 * (pi - prior)
    change = np.linalg.solve(pseudo_inertia(prior), pseudo_inertia(near - prior))
    assert float(entropic_divergence(near, prior)) == pytest.approx(0.5 * np.trace(change @ change), rel=1e-3)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = random_rotation(np.random.default_rng(1)), [0.3, -0.2, 0.5]
    moved = [transform_inertial_parameters(jnp.asarray(pose), x) for x in (pi, prior)]
    assert float(entropic_divergence(*moved)) == pytest.approx(float(entropic_divergence(pi, prior)), rel=1e-9)
    # of a body twice as dense: 4 (2 - log 2 - 1)
    assert float(entropic_divergence(2 * prior, prior)) == pytest.approx(4 * (1 - np.log(2)), rel=1e-12)
