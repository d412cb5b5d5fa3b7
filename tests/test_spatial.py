"""Rotations, rigid motions and inertias: group axioms, inverses near their singularities, and invariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from helpers import random_inertia, random_rotation, relative
from jaxdyn.spatial import components as components, inertia, se3, so3

EPS = {"float64": 2.3e-16, "float32": 1.2e-7}
DTYPES = tuple(EPS)


def batched(f):
    return jax.jit(jax.vmap(f))


exp3, log3 = batched(so3.rotation_exp), batched(so3.rotation_log)
exp6, log6 = batched(se3.pose_exp), batched(se3.pose_log)
to_quaternion, from_quaternion = batched(so3.rotation_to_quaternion), batched(so3.quaternion_to_rotation)
to_rpy, from_rpy = batched(so3.rotation_to_rpy), batched(so3.rpy_to_rotation)
adjoint, ad = batched(se3.adjoint), batched(se3.twist_cross)
inverse = batched(se3.pose_inverse)
spatial, pseudo = batched(inertia.spatial_inertia), batched(inertia.pseudo_inertia)


def unit(rng, count, size=3):
    x = rng.normal(size=(count, size))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def rotation_vectors(dtype, lowest=1e-9, highest=np.pi - 1e-3):
    """Axes times angles from almost nothing to almost pi, with the switch to the series (|w| = 0.1) straddled."""
    rng = np.random.default_rng(0)
    angles = np.concatenate([[0.0], np.geomspace(lowest, 0.09999, 20), np.linspace(0.10001, highest, 43)])
    return jnp.asarray(unit(rng, 64) * angles[:, None], dtype)


def expm_of_skew(w):
    return np.array([scipy.linalg.expm(np.cross(np.eye(3), x)) for x in np.asarray(w, "float64")])


def poses(count, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    t = np.tile(np.eye(4), (count, 1, 1))
    t[:, :3, :3] = [random_rotation(rng) for _ in range(count)]
    t[:, :3, 3] = rng.normal(size=(count, 3))
    return jnp.asarray(t, dtype)


def bodies(count, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    return jnp.asarray(np.array([random_inertia(rng) for _ in range(count)]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation_exp_is_the_matrix_exponential(dtype):
    w = rotation_vectors(dtype)
    r = exp3(w)
    assert r.dtype == dtype
    exact = expm_of_skew(w)
    assert relative(r, exact) < 16 * EPS[dtype]
    r = np.asarray(r)
    assert np.abs(np.swapaxes(r, 1, 2) @ r - np.eye(3, dtype=dtype)).max() < 8 * EPS[dtype]
    assert np.abs(np.linalg.det(r.astype("float64")) - 1).max() < 8 * EPS[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation_log_inverts_exp(dtype):
    w = rotation_vectors(dtype)
    back = log3(exp3(w))
    error = np.abs(np.asarray(back - w)).max(axis=1)
    assert error.max() < 40 * EPS[dtype]
    assert back.dtype == dtype


def test_rotation_log_keeps_small_angles_to_relative_precision():
    w = rotation_vectors("float64", lowest=1e-12)[1:]
    back = log3(exp3(w))
    error = np.linalg.norm(back - w, axis=1) / np.linalg.norm(w, axis=1)
    assert error.max() < 1e-14


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("away", [0.0, 1e-12, 1e-8, 1e-4])
def test_rotation_log_is_accurate_near_half_a_turn(dtype, away):
    axes = np.concatenate([unit(np.random.default_rng(1), 20), np.eye(3), -np.eye(3), [[0.6, 0.8, 0], [0, -0.6, 0.8]]])
    w = jnp.asarray(axes * (np.pi - away))
    r = expm_of_skew(w)
    back = np.asarray(log3(jnp.asarray(r, dtype)), "float64")
    opposite = np.sum(back * axes, axis=1, keepdims=True) < 0  # axis and -axis are one rotation at pi
    assert away < 1e-6 or not opposite.any()
    error = np.where(opposite, -back, back) - np.asarray(w)
    assert np.abs(error).max() < max(20 * EPS[dtype], 2.1 * away if opposite.any() else 0)
    assert np.linalg.norm(back, axis=1).max() <= np.pi + 4 * EPS[dtype]


def test_rotation_log_and_exp_have_derivatives_at_the_identity():
    chart = lambda w: so3.rotation_log(so3.rotation_exp(w))
    derivatives = jax.jit(
        lambda w: (jax.jacfwd(chart)(w), jax.jacrev(chart)(w), jax.jacfwd(jax.jacrev(so3.rotation_exp))(w))
    )
    forward, reverse, second = derivatives(jnp.zeros(3))
    np.testing.assert_allclose(forward, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(reverse, np.eye(3), atol=1e-15)
    # the second derivative of exp([w]) at 0 is the symmetric part of [e_i][e_j]
    k = np.array([so3.skew(e) for e in jnp.eye(3)])
    exact = 0.5 * (np.einsum("iab,jbc->acij", k, k) + np.einsum("jab,ibc->acij", k, k))
    np.testing.assert_allclose(second, exact, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_coefficients_are_smooth_across_the_switch(dtype):
    """Both branches against a sum of 30 terms, in extended precision."""
    t2 = np.concatenate([np.geomspace(1e-16, 9.9999e-3, 40), np.geomspace(1.00001e-2, 9.8, 40)]).astype(dtype)
    got = batched(so3.exp_coefficients)(jnp.asarray(t2))
    x = t2.astype(np.longdouble)
    for first, value in zip((1, 2, 3), got, strict=True):
        term = np.ones_like(x) / np.prod(np.arange(1, first + 1))
        exact = np.zeros_like(x)
        for k in range(30):
            exact += term
            term = -term * x / ((2 * k + first + 1) * (2 * k + first + 2))
        # of 1 - cos t and t - sin t digits cancel above the switch: about 2 and 6 eps / t^2 of the values 1/2 and 1/6 at zero
        lost = (1, 2, 6)[first - 1] / np.where((t2 < 1e-2) | (first == 1), 1, np.minimum(t2, 1))
        assert (np.abs(np.asarray(value) - exact) / np.abs(exact[0]) / lost).max() < 2 * EPS[dtype], first


@pytest.mark.parametrize("dtype", DTYPES)
def test_quaternions_are_converted_to_rotations_and_back(dtype):
    rng = np.random.default_rng(2)
    r = jnp.asarray(np.array([random_rotation(rng) for _ in range(64)]), dtype)
    quaternions = to_quaternion(r)
    assert np.abs(np.linalg.norm(quaternions, axis=1) - 1).max() < 4 * EPS[dtype]
    assert np.all(quaternions[:, 0] >= 0)
    assert np.abs(from_quaternion(quaternions) - r).max() < 8 * EPS[dtype]
    assert np.abs(from_quaternion(-3 * quaternions) - r).max() < 8 * EPS[dtype]
    w = log3(r)  # (cos, sin axis) of half the angle
    half = np.linalg.norm(w, axis=1, keepdims=True) / 2
    assert np.abs(quaternions - np.hstack([np.cos(half), np.sin(half) * w / (2 * half)])).max() < 8 * EPS[dtype]


def test_quaternions_of_half_and_quarter_turns_are_exact():
    turns = jnp.asarray(np.concatenate([np.eye(3) * np.pi, np.eye(3) * np.pi / 2, np.zeros((1, 3))]))
    quaternions = to_quaternion(exp3(turns))
    h = np.sqrt(0.5)
    exact = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [h, h, 0, 0], [h, 0, h, 0], [h, 0, 0, h], [1, 0, 0, 0]]
    np.testing.assert_allclose(np.abs(quaternions), exact, atol=2e-16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_roll_pitch_yaw_are_rotations_about_fixed_axes(dtype):
    rng = np.random.default_rng(3)
    rpy = jnp.asarray(rng.uniform([-3.1, -1.5, -3.1], [3.1, 1.5, 3.1], (64, 3)), dtype)
    r = from_rpy(rpy)
    about_x, about_y, about_z = (exp3(jnp.einsum("k,i->ki", rpy[:, i], jnp.eye(3, dtype=dtype)[i])) for i in range(3))
    exact = about_z @ about_y @ about_x
    assert np.abs(r - exact).max() < 8 * EPS[dtype]
    cos_pitch = np.cos(rpy[:, 1:2])
    assert (np.abs(to_rpy(r) - rpy) * cos_pitch).max() < 16 * EPS[dtype]


@pytest.mark.parametrize("sign", [1, -1])
def test_roll_pitch_yaw_are_found_at_the_gimbal_lock(sign):
    rpy = jnp.asarray([[0.3, sign * np.pi / 2, -1.1], [2.0, sign * np.pi / 2, 0.4], [0.0, sign * np.pi / 2, 0.0]])
    r = from_rpy(rpy)
    back = to_rpy(r)
    assert np.all(back[:, 2] == 0)
    np.testing.assert_allclose(from_rpy(back), r, atol=1e-15)


def test_poses_form_a_group():
    a, b, c = poses(32, 0), poses(32, 1), poses(32, 2)
    np.testing.assert_allclose((a @ b) @ c, a @ (b @ c), atol=1e-14)
    np.testing.assert_allclose(inverse(a) @ a, np.tile(np.eye(4), (32, 1, 1)), atol=1e-15)
    np.testing.assert_allclose(inverse(a @ b), inverse(b) @ inverse(a), atol=1e-14)
    built = jax.vmap(se3.pose)(a[:, :3, :3], a[:, :3, 3])
    assert np.all(built == a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pose_log_inverts_pose_exp(dtype):
    rng = np.random.default_rng(4)
    s = jnp.concatenate([rotation_vectors(dtype), jnp.asarray(rng.normal(size=(64, 3)), dtype)], axis=1)
    t = exp6(s)
    assert t.dtype == dtype
    bracket = np.zeros((64, 4, 4))
    bracket[:, :3, :3], bracket[:, :3, 3] = jax.vmap(so3.skew)(s[:, :3]), s[:, 3:]
    exact = np.array([scipy.linalg.expm(x) for x in bracket])
    assert relative(t, exact) < 16 * EPS[dtype]
    assert np.abs(log6(t) - s).max() < 100 * EPS[dtype]


@pytest.mark.ci
def test_pose_exp_has_derivatives_at_zero():
    np.testing.assert_array_equal(se3.pose_exp(jnp.asarray([0, 0, 0, 1.0, 2, 3]))[:3, 3], [1, 2, 3])
    chart = lambda s: se3.pose_log(se3.pose_exp(s))
    for derivative in jax.jit(lambda s: (jax.jacfwd(chart)(s), jax.jacrev(chart)(s)))(jnp.zeros(6)):
        np.testing.assert_allclose(derivative, np.eye(6), atol=1e-15)


def test_pose_log_is_accurate_near_half_a_turn():
    rng = np.random.default_rng(5)
    s = jnp.asarray(np.hstack([unit(rng, 20) * (np.pi - 1e-6), rng.normal(size=(20, 3))]))
    np.testing.assert_allclose(log6(exp6(s)), s, atol=1e-12)


def test_adjoints_satisfy_their_identities():
    a, b = poses(32, 0), poses(32, 1)
    np.testing.assert_allclose(adjoint(a @ b), adjoint(a) @ adjoint(b), atol=1e-14)
    np.testing.assert_allclose(adjoint(inverse(a)) @ adjoint(a), np.tile(np.eye(6), (32, 1, 1)), atol=1e-14)
    rng = np.random.default_rng(6)
    v, u, f = (jnp.asarray(rng.normal(size=(32, 6))) for _ in range(3))
    # T exp([V]) T^-1 = exp([Ad_T V])
    conjugate = a @ exp6(v) @ inverse(a)
    np.testing.assert_allclose(conjugate, exp6(jnp.einsum("kij,kj->ki", adjoint(a), v)), atol=1e-13)
    # a wrench's power does not depend on the frame: F_b . V_b = F_a . V_a with V_a = Ad V_b, F_b = Ad^T F_a
    power = jnp.einsum("ki,kij,kj->k", f, adjoint(a), v)
    np.testing.assert_allclose(jnp.einsum("ki,ki->k", jnp.einsum("kji,kj->ki", adjoint(a), f), v), power, atol=1e-13)
    # Ad_exp([V]) = expm(ad_V)
    exact = [scipy.linalg.expm(np.asarray(x)) for x in ad(v)]
    np.testing.assert_allclose(adjoint(exp6(v)), exact, atol=1e-12)
    # ad is antisymmetric and satisfies the Jacobi identity
    bracket = lambda x, y: jnp.einsum("kij,kj->ki", ad(x), y)
    np.testing.assert_allclose(bracket(v, u), -bracket(u, v), atol=1e-15)
    jacobi = bracket(v, bracket(u, f)) + bracket(u, bracket(f, v)) + bracket(f, bracket(v, u))
    np.testing.assert_allclose(jacobi, 0, atol=1e-14)
    np.testing.assert_allclose(
        ad(jnp.einsum("kij,kj->ki", adjoint(a), v)), adjoint(a) @ ad(v) @ adjoint(inverse(a)), atol=1e-13
    )


def test_skew_is_the_cross_product():
    rng = np.random.default_rng(7)
    v, u = rng.normal(size=(2, 3))
    np.testing.assert_allclose(so3.skew(jnp.asarray(v)) @ u, np.cross(v, u), rtol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inertial_parameters_are_converted_and_back(dtype):
    pi = bodies(32, dtype=dtype)
    mass, com, moments = jax.vmap(inertia.inertial_parameters_to_com)(pi)
    back = jax.vmap(inertia.inertial_parameters_from_com)(mass, com, moments)
    assert back.dtype == dtype
    assert relative(back, pi) < 8 * EPS[dtype]
    assert np.linalg.eigvalsh(np.asarray(moments, "float64")).min() > 0
    assert np.all(jax.vmap(inertia.inertial_parameters_from_spatial)(spatial(pi)) == pi)
    assert np.all(spatial(pi) == np.swapaxes(spatial(pi), 1, 2))
    i = jax.vmap(inertia.rotational_inertia)(pi)
    assert np.all(np.stack([i[:, 0, 0], i[:, 0, 1], i[:, 1, 1], i[:, 0, 2], i[:, 1, 2], i[:, 2, 2]], 1) == pi[:, 4:])


def test_a_massless_body_has_its_centre_at_the_origin():
    mass, com, moments = inertia.inertial_parameters_to_com(jnp.zeros(10))
    assert mass == 0 and np.all(com == 0) and np.all(moments == 0)
    assert np.all(np.isfinite(jax.jacrev(lambda pi: inertia.inertial_parameters_to_com(pi)[1])(jnp.zeros(10))))


def test_inertial_parameters_are_sums_over_point_masses():
    """The definitions, summed over points: m, sum m r, sum m (r.r 1 - r r^T), sum m r r^T."""
    rng = np.random.default_rng(8)
    points, masses = rng.normal(size=(9, 3)), rng.uniform(0.1, 1, 9)
    com = masses @ points / masses.sum()
    about = np.einsum("k,ki,kj->ij", masses, points - com, points - com)
    pi = inertia.inertial_parameters_from_com(
        jnp.asarray(masses.sum()), jnp.asarray(com), jnp.asarray(np.trace(about) * np.eye(3) - about)
    )
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    moments = np.trace(second) * np.eye(3) - second
    np.testing.assert_allclose(inertia.rotational_inertia(pi), moments, rtol=1e-13)
    np.testing.assert_allclose(pi[1:4], masses @ points, rtol=1e-13)
    np.testing.assert_allclose(inertia.pseudo_inertia(pi)[:3, :3], second, rtol=1e-12, atol=1e-14)
    v = rng.normal(size=6)
    energy = 0.5 * sum(m * np.sum((v[3:] + np.cross(v[:3], p)) ** 2) for m, p in zip(masses, points, strict=True))
    np.testing.assert_allclose(0.5 * v @ inertia.spatial_inertia(pi) @ v, energy, rtol=1e-14)


def test_a_moved_inertia_has_the_same_energy():
    pi, t = bodies(32), poses(32, 3)
    moved = jax.vmap(inertia.transform_inertial_parameters)(t, pi)
    v = jnp.asarray(np.random.default_rng(9).normal(size=(32, 6)))
    twist = jnp.einsum("kij,kj->ki", adjoint(t), v)  # the same motion, seen from a
    energy = lambda p, x: jnp.einsum("ki,kij,kj->k", x, spatial(p), x)
    np.testing.assert_allclose(energy(moved, twist), energy(pi, v), rtol=1e-12)
    # the pseudo-inertia is congruent under the pose itself
    np.testing.assert_allclose(pseudo(moved), t @ pseudo(pi) @ np.swapaxes(t, 1, 2), atol=1e-12)
    back = jax.vmap(inertia.transform_inertial_parameters)(inverse(t), moved)
    np.testing.assert_allclose(back, pi, atol=1e-12)
    assert np.linalg.eigvalsh(pseudo(pi)).min() > 0


def test_components_are_the_array_operations():
    rng = np.random.default_rng(10)
    r, m, s = (jnp.asarray(rng.normal(size=(3, 3))) for _ in range(3))
    s = s + s.T
    u, v = (jnp.asarray(rng.normal(size=3)) for _ in range(2))
    vec, mat = components.unstack, lambda x: components.unstack(x.reshape(9))
    sym = tuple(s[i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)))
    for got, exact in (
        (components.add(vec(u), vec(v), vec(u)), 2 * u + v),
        (components.sub(vec(u), vec(v)), u - v),
        (components.scale(u[0], vec(v)), u[0] * v),
        ((components.dot(vec(u), vec(v)),), jnp.dot(u, v)[None]),
        (components.cross(vec(u), vec(v)), jnp.cross(u, v)),
        (components.rotate(mat(r), vec(v)), r @ v),
        (components.unrotate(mat(r), vec(v)), r.T @ v),
        (components.matmul(mat(r), mat(m)), (r @ m).reshape(9)),
        (components.transpose(mat(r)), r.T.reshape(9)),
        (components.sym_apply(sym, vec(v)), s @ v),
        (components.sym_to_mat(sym), s.reshape(9)),
        (components.mat_to_sym(mat(s)), jnp.stack(sym)),
        (components.sym_to_mat(components.sym_congruence(mat(r), sym)), (r @ s @ r.T).reshape(9)),
        (components.zeros(2, (u, v), (r,)), jnp.zeros(2)),
    ):
        np.testing.assert_allclose(jnp.stack(got), exact, rtol=1e-13, atol=1e-15)


def test_sines_and_cosines_of_kernels_are_exact_to_rounding_however_far_the_angle_turns():
    from jaxdyn.spatial.so3 import sine_and_cosine

    rng = np.random.default_rng(0)
    for scale in (1.0, 10.0, 1e3, 1e6):
        x = jnp.asarray(np.concatenate([scale * rng.uniform(-1, 1, 1000), np.arange(-8, 9) * np.pi / 4 * scale]))
        (sine, cosine), (by_sine, by_cosine) = jax.jvp(sine_and_cosine, (x,), (jnp.ones_like(x),))
        np.testing.assert_allclose(sine, np.sin(x), rtol=0, atol=2.5e-16)
        np.testing.assert_allclose(cosine, np.cos(x), rtol=0, atol=2.5e-16)
        np.testing.assert_array_equal((by_sine, by_cosine), (cosine, -sine))
    assert np.isnan(np.asarray(sine_and_cosine(jnp.array([np.nan, np.inf])))).all()
