"""Physics as tests: what must hold between mass matrix, Coriolis matrix, energies, Jacobians, wrenches and regressors."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import linear_friction, once, random_chain, relative
from jaxdyn import robots, textbook

N, COUNT = 4, 16  # "mixed" has one joint of every kind
REFERENCES = ("body", "space", "mixed")


def vee(x):
    """The twist of a matrix [V]."""
    return jnp.stack([x[2, 1], x[0, 2], x[1, 0], x[0, 3], x[1, 3], x[2, 3]])


@once
def quantities(chain, q, qd, qdd, wrenches, tip_wrench):
    """Both sides of the identities for a batch of states."""

    def one(q, qd, qdd, wrenches, tip_wrench):
        _, dmass = jax.jvp(lambda x: jaxdyn.crba(chain, x), (q,), (qd,))
        tau = jaxdyn.inverse_dynamics(chain, q, qd, qdd)
        accelerations = jaxdyn.forward_dynamics(chain, q, qd, tau)
        poses, dposes = jax.jvp(lambda x: jaxdyn.forward_kinematics(chain, x), (q,), (qd,))
        link_jacobians = jax.vmap(  # body twists of all links at unit speed of every joint, from the poses alone
            lambda unit: jax.vmap(lambda t, dt: vee(jnp.linalg.inv(t) @ dt))(
                poses, jax.jvp(lambda x: jaxdyn.forward_kinematics(chain, x), (q,), (unit,))[1]
            )
        )(jnp.eye(chain.n))
        return {
            "M": jaxdyn.mass_matrix(chain, q),
            "dM": dmass,
            "crba": jaxdyn.crba(chain, q),
            "C": jaxdyn.coriolis_matrix(chain, q, qd),
            "Gamma": jaxdyn.christoffel_symbols(chain, q),
            "c": jaxdyn.coriolis_force(chain, q, qd),
            "g": jaxdyn.gravity_force(chain, q),
            "dP": jax.grad(jaxdyn.potential_energy, argnums=1)(chain, q),
            "bias": jaxdyn.bias_force(chain, q, qd),
            "K": jaxdyn.kinetic_energy(chain, q, qd),
            "P": jaxdyn.potential_energy(chain, q),
            "L": jaxdyn.dynamics.lagrangian(chain, q, qd),
            "E": jaxdyn.total_energy(chain, q, qd),
            "springs": jaxdyn.dynamics.spring_energy(chain, q),
            "spring_force": jaxdyn.spring_force(chain, q),
            "dE": jax.jvp(lambda x, xd: jaxdyn.total_energy(chain, x, xd), (q, qd), (qd, qdd))[1],
            "tau": tau,
            "loaded": jaxdyn.inverse_dynamics(chain, q, qd, qdd, wrenches, tip_wrench),
            "lagrangian route": jaxdyn.dynamics.euler_lagrange_torque(chain, q, qd, qdd),
            "accelerations": accelerations,
            "aba": jaxdyn.aba(chain, q, qd, tau, wrenches),
            "torques": jaxdyn.inverse_dynamics(chain, q, qd, accelerations),
            "poses": poses,
            "dposes": dposes,
            "link_jacobians": link_jacobians,
            "J": {r: jaxdyn.jacobian(chain, q, "tool", r) for r in REFERENCES},
            "J of a link": jaxdyn.jacobian(chain, q, chain.link_names[1]),
            "tool": jax.jvp(lambda x: jaxdyn.frame_pose(chain, x, "tool"), (q,), (qd,)),
            "Y": jaxdyn.regressor(chain, q, qd, qdd),
            "drive": jaxdyn.dynamics.drive_regressor(chain, qd, qdd),
            "friction": jaxdyn.friction_force(chain, qd),
            "solved": jaxdyn.mass_matrix_solve(chain, q, tau),
            "m": jaxdyn.total_mass(chain),
            "centre": jaxdyn.centre_of_mass(chain, q),
            "J_c": jaxdyn.centre_of_mass_jacobian(chain, q),
            "A_G": jaxdyn.centroidal_momentum_matrix(chain, q),
            "h": jaxdyn.dynamics.total_momentum(chain, q, qd),
            "h_G": jaxdyn.centroidal_momentum(chain, q, qd),
            "dA_G v": jaxdyn.dynamics.centroidal_momentum_bias(chain, q, qd),
            "h_G, rate": jax.jvp(lambda x: jaxdyn.centroidal_momentum(chain, x, qd), (q,), (qd,))[1],
            "p": jaxdyn.dynamics.generalised_momentum(chain, q, qd),
            "H": jaxdyn.dynamics.hamiltonian(chain, q, qdd),
            "flow": jaxdyn.dynamics.hamiltonian_flow(chain, q, jaxdyn.crba(chain, q) @ qd, qdd),
            "Y_p": jaxdyn.dynamics.momentum_regressor(chain, q, qd),
            "y_K": jaxdyn.dynamics.kinetic_energy_regressor(chain, q, qd),
            "y_P": jaxdyn.dynamics.potential_energy_regressor(chain, q),
            "Slotine-Li": jaxdyn.dynamics.passivity_inverse_dynamics(chain, q, qd, qdd, tau),
            "Y_r": jaxdyn.dynamics.passivity_regressor(chain, q, qd, qdd, tau),
            "Y_r s": jaxdyn.dynamics.passivity_regressor_product(chain, q, qd, qdd, tau, tip_wrench[:N]),
        }

    return jax.lax.map(lambda state: one(*state), (q, qd, qdd, wrenches, tip_wrench))


@pytest.fixture(scope="module")
def chain():
    return random_chain(N, 11)


@pytest.fixture(scope="module")
def state():
    rng = np.random.default_rng(11)
    shapes = {"q": (N,), "qd": (N,), "qdd": (N,), "wrenches": (N, 6), "tip_wrench": (6,)}
    return {name: rng.normal(size=(COUNT, *shape)) * 2 for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def x(chain, state):
    return jax.tree.map(np.asarray, quantities(chain, **{k: jnp.asarray(v) for k, v in state.items()}))


def test_mass_matrix_is_symmetric_and_positive_definite(x):
    assert np.abs(x["M"] - x["M"].transpose(0, 2, 1)).max() < 1e-13 * np.abs(x["M"]).max()
    assert np.linalg.eigvalsh(x["M"]).min() > 0
    assert relative(x["crba"], x["M"]) < 1e-13
    # both halves are computed, and fused multiplications may round one otherwise (jaxlib 0.11)
    gap = np.abs(x["crba"] - x["crba"].transpose(0, 2, 1)).max()
    assert gap <= 4 * np.finfo(float).eps * np.abs(x["crba"]).max()


def test_rate_of_the_mass_matrix_less_twice_coriolis_is_skew(x):
    skew = x["dM"] - 2 * x["C"]
    assert np.abs(skew + skew.transpose(0, 2, 1)).max() < 1e-12 * np.abs(x["dM"]).max()
    assert np.abs(skew).max() > 0.1  # and is not zero


def test_coriolis_matrix_is_the_contraction_of_the_christoffel_symbols(x, state):
    assert relative(np.einsum("kijl,kl->kij", x["Gamma"], state["qd"]), x["C"]) < 1e-12
    assert relative(x["Gamma"], x["Gamma"].transpose(0, 1, 3, 2)) < 1e-12
    assert relative(np.einsum("kij,kj->ki", x["C"], state["qd"]), x["c"]) < 1e-12


def test_gravity_force_is_the_gradient_of_the_potential_energy(x):
    assert relative(x["dP"], x["g"]) < 1e-12


def test_torques_are_the_sum_of_their_terms(x, state):
    assert relative(x["c"] + x["g"], x["bias"]) < 1e-12
    assert relative(np.einsum("kij,kj->ki", x["M"], state["qdd"]) + x["bias"], x["tau"]) < 1e-12


def test_energies_follow_from_mass_matrix_and_potential(x, state):
    assert relative(0.5 * np.einsum("ki,kij,kj->k", state["qd"], x["M"], state["qd"]), x["K"]) < 1e-12
    assert relative(x["L"], x["K"] - x["P"]) < 1e-15 and relative(x["E"], x["K"] + x["P"] + x["springs"]) < 1e-15


def test_power_is_the_rate_of_energy(x, state):
    assert relative(np.einsum("ki,ki->k", state["qd"], x["tau"] + x["spring_force"]), x["dE"]) < 1e-12


def test_inverse_and_forward_dynamics_undo_each_other(x, state):
    assert relative(x["accelerations"], state["qdd"]) < 1e-12 * np.linalg.cond(x["M"]).max() / 10
    assert relative(x["torques"], x["tau"]) < 1e-12
    assert relative(np.einsum("kij,kj->ki", x["M"], x["solved"]), x["tau"]) < 1e-12


def test_the_lagrangian_route_gives_the_torques_of_newton_euler(x):
    assert relative(x["lagrangian route"], x["tau"]) < 1e-12  # the bar is 1e-10


def test_wrenches_load_the_joints_through_the_jacobians(x, state):
    """tau(F) - tau(0) = -sum_i J_i^T F_i + J_tip^T F_tip, the Jacobians of the links from derivatives of their poses."""
    by_links = np.einsum("kjia,kia->kj", x["link_jacobians"], state["wrenches"])
    by_tip = np.einsum("kaj,ka->kj", x["J"]["body"], state["tip_wrench"])
    assert relative(x["loaded"] - x["tau"], by_tip - by_links) < 1e-12


def test_wrenches_accelerate_the_robot_as_their_joint_torques_do(x, state):
    by_links = np.einsum("kjia,kia->kj", x["link_jacobians"], state["wrenches"])
    accelerations = state["qdd"] + np.linalg.solve(x["M"], by_links[..., None])[..., 0]
    assert relative(x["aba"], accelerations) < 1e-12 * np.linalg.cond(x["M"]).max() / 10


def test_jacobians_are_the_velocities_of_the_poses(x, state):
    pose, rate = x["tool"]
    for k in range(COUNT):
        body = np.linalg.inv(pose[k]) @ rate[k]
        space = rate[k] @ np.linalg.inv(pose[k])
        twist = {r: x["J"][r][k] @ state["qd"][k] for r in REFERENCES}
        np.testing.assert_allclose(twist["body"], vee(body), atol=1e-13)
        np.testing.assert_allclose(twist["space"], vee(space), atol=1e-13)
        np.testing.assert_allclose(twist["mixed"], [*vee(space)[:3], *rate[k][:3, 3]], atol=1e-13)
        np.testing.assert_allclose(x["J of a link"][k], x["link_jacobians"][k, :, 1].T, atol=1e-13)


def test_torques_are_linear_in_the_parameters(x, chain, state):
    pi = np.asarray(jaxdyn.inertial_parameters(chain)).reshape(-1)
    armature = np.asarray(chain.armature) * state["qdd"]
    assert relative(x["Y"] @ pi + armature, x["tau"]) < 1e-12


def test_momentum_of_the_whole_is_the_sum_over_the_links(x, chain, state):
    """About the world's origin and the centre of mass, from the links' poses and their rates alone."""
    pi = np.asarray(chain.inertia)
    mass, c = pi[:, 0].sum(), np.einsum("klij,lj->ki", x["poses"], np.hstack([pi[:, 1:4], pi[:, :1]]))[:, :3]
    c /= mass
    np.testing.assert_allclose(x["m"], mass, rtol=1e-15)
    assert relative(x["centre"], c) < 1e-13
    for k in range(COUNT):
        total = np.zeros(6)
        for pose, rate, body in zip(x["poses"][k], x["dposes"][k], pi, strict=True):
            xx, xy, yy, xz, yz, zz = body[4:]
            about = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            second = np.trace(about) / 2 * np.eye(3) - about  # of mass: sum m r r^T
            moments = np.block([[second, body[1:4, None]], [body[None, 1:4], body[:1, None]]])
            whole = rate @ moments @ pose.T  # sum m v r^T, in the world, homogeneous
            spin = whole[:3, :3].T - whole[:3, :3]
            total += [spin[1, 2], spin[2, 0], spin[0, 1], *whole[:3, 3]]
        np.testing.assert_allclose(x["h"][k], total, rtol=1e-11, atol=1e-11)
        about_c = np.concatenate([total[:3] - np.cross(c[k], total[3:]), total[3:]])
        np.testing.assert_allclose(x["h_G"][k], about_c, rtol=1e-11, atol=1e-11)
    assert relative(np.einsum("kij,kj->ki", x["A_G"], state["qd"]), x["h_G"]) < 1e-12
    assert relative(np.einsum("kij,kj->ki", x["J_c"], state["qd"]), x["h"][:, 3:] / mass) < 1e-12
    assert relative(x["dA_G v"], x["h_G, rate"]) < 1e-12


def test_hamiltons_equations_hold(x, state):
    momenta, rates = state["qdd"], np.linalg.solve(x["M"], state["qdd"][..., None])[..., 0]
    assert relative(x["p"], np.einsum("kij,kj->ki", x["M"], state["qd"])) < 1e-12
    energy = 0.5 * (momenta * rates).sum(1) + x["P"] + x["springs"]
    bound = 1e-12 * np.linalg.cond(x["M"]).max() / 10
    assert relative(x["H"], energy) < bound
    # their drift at the rates of the state, where C is known: C^T qd - g - k
    qd, pd = x["flow"]
    assert relative(qd, state["qd"]) < bound
    drift = np.einsum("kij,ki->kj", x["C"], state["qd"]) - x["g"] - x["spring_force"]
    assert relative(pd, drift + state["qdd"]) < 10 * bound


def test_regressors_of_energies_and_momenta_give_energies_and_momenta(x, chain, state):
    pi, links = np.asarray(chain.inertia).reshape(-1), x["M"] - np.diag(np.asarray(chain.armature))
    momenta = np.einsum("kij,kj->ki", links, state["qd"])
    assert relative(x["Y_p"] @ pi, momenta) < 1e-12
    assert relative(x["y_K"] @ pi, 0.5 * (momenta * state["qd"]).sum(1)) < 1e-12
    assert relative(x["y_P"] @ pi, x["P"]) < 1e-12


def test_torques_along_a_reference_use_the_skew_symmetric_coriolis_matrix(x, chain, state):
    """M a_r + C v_r + g with the C of the skew-symmetric matrix, and its regressor, of the links alone."""
    pi, v_ref, a_ref = np.asarray(chain.inertia).reshape(-1), state["qdd"], x["tau"]
    torques = np.einsum("kij,kj->ki", x["M"], a_ref) + np.einsum("kij,kj->ki", x["C"], v_ref) + x["g"]
    assert relative(x["Slotine-Li"], torques) < 1e-12
    assert relative(x["Y_r"] @ pi + np.asarray(chain.armature) * a_ref, torques) < 1e-12
    by_links = np.einsum("kjp,kj->kp", x["Y_r"], state["tip_wrench"][:, :N])
    assert relative(x["Y_r s"].reshape(COUNT, -1), by_links) < 1e-12


def test_the_drive_regressor_gives_friction_and_armature_torques(x, chain, state):
    drive = np.stack(
        [chain.armature, chain.friction.viscous, chain.friction.coulomb, chain.friction.offset], 1
    ).reshape(-1)
    friction = jax.vmap(jaxdyn.friction_force, (None, 0))(linear_friction(chain), jnp.asarray(state["qd"]))
    expected = np.asarray(chain.armature) * state["qdd"] + friction
    assert relative(x["drive"] @ drive, expected) < 1e-14
    qd, qdd = jnp.asarray(state["qd"][0]), jnp.asarray(state["qdd"][0])
    some = jaxdyn.dynamics.drive_regressor(chain, qd, qdd, ("offset", "viscous"))
    np.testing.assert_array_equal(some, np.kron(np.eye(N), [[1, 1]]) * np.stack([np.ones(N), qd], 1).reshape(-1))
    assert jaxdyn.dynamics.drive_regressor(chain, qd, qdd, ()).shape == (N, 0)


def test_friction_is_odd_about_its_offset_and_opposes_the_motion(chain):
    qd = jnp.asarray([-3.0, -0.2, 0.2, 3.0])
    at_rest = jaxdyn.friction_force(chain, jnp.zeros(N))
    np.testing.assert_array_equal(at_rest, chain.friction.offset)
    forward, backward = (jaxdyn.friction_force(chain, v) - at_rest for v in (qd, -qd))
    np.testing.assert_allclose(forward, -backward, rtol=1e-14)
    assert np.all(forward * qd > 0)
    fast = jaxdyn.friction_force(chain, jnp.full(N, 50.0)) - at_rest
    np.testing.assert_allclose(fast, 50 * chain.friction.viscous + chain.friction.coulomb, rtol=1e-14)


def test_one_link_has_the_torques_derived_by_hand():
    """A body of mass m and inertia I about its centre, at (a, b, 0) from a joint about z, gravity along -y."""
    m, a, b, inertia, armature = 2.0, 0.3, -0.4, 0.07, 0.05
    about = inertia + m * (a * a + b * b)
    pi = [m, m * a, m * b, 0, about, -m * a * b, about, 0, 0, about]
    chain = jaxdyn.make_chain(
        [np.eye(3)], [[0, 0, 0]], [[0, 0, 1, 0, 0, 0]], np.zeros((1, 10)), armature=armature, gravity=(0, -9.81, 0)
    )
    chain = jaxdyn.with_inertial_parameters(chain, jnp.array(pi, float))
    q, qd, qdd = jnp.asarray([0.7]), jnp.asarray([1.3]), jnp.asarray([-2.1])
    mass = about + armature
    weight = m * 9.81 * (a * np.cos(0.7) - b * np.sin(0.7))
    tau, accelerations, m, c = jax.jit(
        lambda: (
            jaxdyn.inverse_dynamics(chain, q, qd, qdd),
            jaxdyn.forward_dynamics(chain, q, qd, jnp.asarray([3.0])),
            jaxdyn.crba(chain, q),
            jaxdyn.coriolis_matrix(chain, q, qd),
        )
    )()
    np.testing.assert_allclose(tau, [mass * -2.1 + weight], rtol=1e-14)
    np.testing.assert_allclose(accelerations, [(3 - weight) / mass], rtol=1e-14)
    np.testing.assert_allclose(m, [[mass]], rtol=1e-15)
    np.testing.assert_allclose(c, [[0]], atol=1e-15)


def regressors(chain, count, seed=0, columns=()):
    """The regressors of random states, stacked, with columns of the drives on request."""
    rng = np.random.default_rng(seed)
    q, qd, qdd = (jnp.asarray(rng.normal(size=(count, chain.n)) * 2) for _ in range(3))
    y = jax.jit(
        jax.vmap(
            lambda q, qd, qdd: jnp.concatenate(
                [jaxdyn.regressor(chain, q, qd, qdd), jaxdyn.dynamics.drive_regressor(chain, qd, qdd, columns)], axis=1
            )
        )
    )(q, qd, qdd)
    return (np.asarray(q), np.asarray(qd), np.asarray(qdd)), np.asarray(y).reshape(count * chain.n, -1)


def rank(a) -> int:
    """Numerical rank, with a gap of at least six decades below the last singular value that counts."""
    s = np.linalg.svd(a, compute_uv=False)
    s = s / s[0]
    found = int((s > 1e-10).sum())
    assert s[found - 1] > 1e-7
    return found


@pytest.mark.parametrize("gravity", [9.81, 0.0])
def test_planar_elbow_is_linear_in_five_parameters_and_three_without_gravity(gravity):
    m1, m2, l1, lc1, lc2, i1, i2 = 3.0, 2.0, 0.7, 0.3, 0.25, 0.08, 0.05
    chain = textbook.planar_elbow(m1=m1, m2=m2, l1=l1, l2=0.6, lc1=lc1, lc2=lc2, i1=i1, i2=i2, gravity=gravity)
    (q, qd, qdd), y = regressors(chain, 50)
    tau = y @ np.asarray(chain.inertia).reshape(-1)
    c2, s2, c1, c12 = np.cos(q[:, 1]), np.sin(q[:, 1]), np.cos(q[:, 0]), np.cos(q.sum(1))
    zero, both = 0 * c1, qdd.sum(1)
    first = [
        qdd[:, 0],
        c2 * (2 * qdd[:, 0] + qdd[:, 1]) - s2 * (2 * qd[:, 0] * qd[:, 1] + qd[:, 1] ** 2),
        qdd[:, 1],
        gravity * c1,
        gravity * c12,
    ]
    second = [zero, c2 * qdd[:, 0] + s2 * qd[:, 0] ** 2, both, zero, gravity * c12]
    five = np.stack([np.stack(first, 1), np.stack(second, 1)], 1).reshape(-1, 5)
    theta = [
        m1 * lc1**2 + m2 * (l1**2 + lc2**2) + i1 + i2,
        m2 * l1 * lc2,
        m2 * lc2**2 + i2,
        m1 * lc1 + m2 * l1,
        m2 * lc2,
    ]
    known = 5 if gravity else 3
    assert rank(five) == known
    assert relative(five @ theta, tau) < 1e-12
    fitted = np.linalg.lstsq(five[:, :known], tau, rcond=None)[0]
    assert relative(fitted, theta[:known]) < 1e-12
    # with l1 known m2 l1 lc2 is l1 times m2 lc2; centres of mass off the links' lines add m cy of both links
    assert rank(y) == (6 if gravity else 4)
    assert rank(y[:, [0, 1, 9, 10, 11, 19]]) == (4 if gravity else 3)  # m, m cx, Izz of both links


def test_panda_has_43_base_parameters_and_64_with_friction():
    _, y = regressors(robots.panda(), 40, columns=("viscous", "coulomb", "offset"))
    assert rank(y[:, :70]) == 43
    assert rank(y) == 64


def test_armature_of_a_rotor_is_added_to_the_mass_matrix_alone(x, chain, state):
    bare = quantities(
        dataclasses.replace(chain, armature=jnp.zeros(N)), **{k: jnp.asarray(v) for k, v in state.items()}
    )
    armature = np.asarray(chain.armature)
    np.testing.assert_allclose(x["crba"] - bare["crba"], np.tile(np.diag(armature), (COUNT, 1, 1)), atol=1e-13)
    np.testing.assert_allclose(x["M"] - bare["M"], np.tile(np.diag(armature), (COUNT, 1, 1)), atol=1e-13)
    np.testing.assert_allclose(x["tau"] - bare["tau"], armature * state["qdd"], atol=1e-11)
    np.testing.assert_array_equal(x["c"], bare["c"])


def test_unknown_frames_references_and_terms_are_refused(chain):
    q = jnp.zeros(N)
    with pytest.raises(jaxdyn.ModelError, match="unknown link or frame 'hand'"):
        jaxdyn.frame_pose(chain, q, "hand")
    # without the annotations' own check, which the tests turn on
    with pytest.raises(jaxdyn.ModelError, match="'body', 'space' or 'mixed', not 'world'"):
        inspect.unwrap(jaxdyn.jacobian)(chain, q, reference="world")
    with pytest.raises(jaxdyn.ModelError, match="unknown drive term 'stiction'"):
        inspect.unwrap(jaxdyn.dynamics.drive_regressor)(chain, q, q, ("stiction",))
    with pytest.raises(jaxdyn.ModelError, match="requires \\(4, 10\\)"):
        jaxdyn.with_inertial_parameters(chain, jnp.zeros((3, 10)))


def test_inertial_parameters_can_be_replaced(chain):
    pi = 2 * jaxdyn.inertial_parameters(chain)
    heavier = jaxdyn.with_inertial_parameters(chain, pi.reshape(-1))
    np.testing.assert_array_equal(jaxdyn.inertial_parameters(heavier), pi)
    q = jnp.asarray([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(jaxdyn.gravity_force(heavier, q), 2 * jaxdyn.gravity_force(chain, q), rtol=1e-13)
    assert heavier.topology == chain.topology


@pytest.mark.ci
def test_the_base_does_not_move(chain):
    q = jnp.asarray([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(jaxdyn.frame_pose(chain, q, "base"), np.eye(4))
    np.testing.assert_array_equal(jaxdyn.jacobian(chain, q, "base"), np.zeros((6, N)))
