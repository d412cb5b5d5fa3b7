"""Quantities by two routes each, first on a mechanism with everything: quaternion joints, branches, couplings, motors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_inertia, random_rotation, relative
from jaxdyn import Coupling, Friction, Springs, Topology, Transmission, spring_force
from jaxdyn.model import configuration as configuration

pytestmark = pytest.mark.ci


def make_mechanism(seed=3):
    """A free body that carries a spherical joint with a hinge, and a hinge with a slide and a screw coupled to it."""
    rng = np.random.default_rng(seed)
    unit = lambda: (lambda x: x / np.linalg.norm(x))(rng.normal(size=3))
    axis, slide, helix = unit(), unit(), unit()
    hinge = [*axis, *np.cross(rng.normal(size=3), axis)]
    ordinary = [hinge, [*unit(), 0, 0, 0], [0, 0, 0, *slide], [*helix, *(0.1 * helix)]]
    screws = np.concatenate([np.eye(6), np.eye(6)[:3], ordinary])
    n, massless = 13, {0, 1, 2, 3, 4, 6, 7}
    placed = {6, 9, 10, 11, 12}
    ratios = np.zeros((2, n))
    ratios[0, 9], ratios[1, 10:12] = 30.0, [20.0, 5.0]
    matrix = np.eye(n, n - 1)
    matrix[12] = 0
    matrix[12, 10] = 0.7
    chain = dataclasses.replace(
        jaxdyn.make_chain(
            rotation=[random_rotation(rng) if i in placed else np.eye(3) for i in range(n)],
            translation=[rng.normal(size=3) * 0.3 if i in placed else np.zeros(3) for i in range(n)],
            screw=screws,
            inertia=[np.zeros(10) if i in massless else random_inertia(rng) for i in range(n)],
            armature=rng.uniform(0, 0.1, n),
            gravity=[1.0, -2.0, -9.0],
            frames={"tool": (9, [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])},
            topology=Topology(
                [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 10, 10],
                compound_joints=[(0, "free"), (6, "spherical")],
                tip_name="tool",
            ),
        ),
        base_pose=jnp.asarray(
            np.block([[random_rotation(rng), rng.normal(size=(3, 1))], [np.zeros((1, 3)), np.ones((1, 1))]])
        ),
        transmission=Transmission(jnp.asarray(ratios), jnp.asarray([1e-4, 2e-4]), Friction(coulomb_velocity=1.0)),
        coupling=Coupling(jnp.asarray(matrix), jnp.asarray([0.0] * 12 + [0.3])),
        springs=Springs(stiffness=[0.0] * 9 + [2.0, 3.0, 4.0, 1.0], rest_position=[0.1] * n),
    )
    return chain


def state(chain, seed=0):
    """q, v, v_ref, a_ref, tau."""
    q = configuration.random_configuration(chain, jax.random.key(seed))
    return q, *jnp.asarray(np.random.default_rng(seed).normal(size=(4, chain.nv)))


def bare(chain):
    """The rigid links alone: no armature, no rotors."""
    return dataclasses.replace(chain, armature=jnp.zeros_like(chain.armature), transmission=None)


def everything(chain, q, v, v_ref, a_ref, tau):
    """All quantities of a state."""
    p = jaxdyn.dynamics.generalised_momentum(chain, q, v)
    out = {
        "m": jaxdyn.total_mass(chain),
        "c": jaxdyn.centre_of_mass(chain, q),
        "J_c": jaxdyn.centre_of_mass_jacobian(chain, q),
        "A_G": jaxdyn.centroidal_momentum_matrix(chain, q),
        "h_G": jaxdyn.centroidal_momentum(chain, q, v),
        "h": jaxdyn.dynamics.total_momentum(chain, q, v),
        "dA_G v": jaxdyn.dynamics.centroidal_momentum_bias(chain, q, v),
        "p": p,
        "H": jaxdyn.dynamics.hamiltonian(chain, q, p),
        "flow": jaxdyn.dynamics.hamiltonian_flow(chain, q, p, tau),
        "Slotine-Li": jaxdyn.dynamics.passivity_inverse_dynamics(chain, q, v, v_ref, a_ref),
        "Y_r": jaxdyn.dynamics.passivity_regressor(chain, q, v, v_ref, a_ref),
        "Y_p": jaxdyn.dynamics.momentum_regressor(chain, q, v),
        "y_K": jaxdyn.dynamics.kinetic_energy_regressor(chain, q, v),
        "y_P": jaxdyn.dynamics.potential_energy_regressor(chain, q),
        "Lambda": jaxdyn.dynamics.operational_space_inertia(chain, q, reference="mixed"),
        "task": tuple(jaxdyn.dynamics.operational_space(chain, q, v, tolerance=1e-5))[:3],
    }
    return out


@once
def both_routes(chain, q, v, v_ref, a_ref, tau):
    """Quantities, and what they are compared with."""
    links, mass, c_matrix = bare(chain), jaxdyn.mass_matrix(chain, q), jaxdyn.coriolis_matrix(chain, q, v)
    zero, time = jnp.zeros_like(v), jnp.zeros((), v.dtype)
    poses = lambda t: jaxdyn.forward_kinematics(chain, configuration.integrate(chain, q, t * v))
    t, dt = jax.jvp(poses, (time,), (jnp.ones_like(time),))

    def momentum(t, dt, pi):
        """Of a link about the world's origin, from its pose and the pose's rate alone."""
        m = jnp.linalg.inv(t) @ dt
        twist = jnp.stack([m[2, 1], m[0, 2], m[1, 0], m[0, 3], m[1, 3], m[2, 3]])
        return jaxdyn.spatial.se3.adjoint(jnp.linalg.inv(t)).T @ jaxdyn.spatial.inertia.spatial_inertia(pi) @ twist

    points = t @ jnp.concatenate([chain.inertia[:, 1:4], chain.inertia[:, :1]], axis=1)[:, :, None]
    spin = jnp.diag(chain.armature)
    if (motors := chain.transmission) is not None:
        spin = spin + motors.matrix.T @ jnp.diag(motors.rotor_inertia) @ motors.matrix
    if chain.coupling is not None:
        spin = chain.coupling.matrix.T @ spin @ chain.coupling.matrix
    return everything(chain, q, v, v_ref, a_ref, tau), {
        "M": mass,
        "M of links": mass - spin,
        "C": c_matrix,
        "g": jaxdyn.gravity_force(chain, q),
        "k": spring_force(chain, q),
        "c": points[:, :3, 0].sum(0) / chain.inertia[:, 0].sum(),
        "h": jax.vmap(momentum)(t, dt, chain.inertia).sum(0),
        "E": jaxdyn.total_energy(chain, q, v),
        "P": jaxdyn.potential_energy(chain, q),
        "Y": jaxdyn.regressor(chain, q, v, a_ref),
        "Y_r at v": jaxdyn.dynamics.passivity_regressor(chain, q, v, v, a_ref),
        "falling": jaxdyn.forward_dynamics(links, q, v, tau.at[:6].set(zero[:6])),
        "a": jaxdyn.forward_dynamics(chain, q, v, tau),
        "J": jaxdyn.jacobian(chain, q),
        "dJ v": jaxdyn.jacobian_derivative(chain, q, v) @ v,
        "tool": jaxdyn.frame_pose(chain, q),
    }


@pytest.fixture(scope="module")
def mechanism():
    return make_mechanism()


@pytest.fixture(scope="module")
def routes(mechanism):
    got, expected = both_routes(mechanism, *state(mechanism))
    return jax.tree.map(np.asarray, got), jax.tree.map(np.asarray, expected)


def test_centroidal_quantities_are_sums_over_the_links(mechanism, routes):
    got, expected = routes
    _, v, *_ = state(mechanism)
    c, (l, p) = expected["c"], np.split(expected["h"], 2)
    assert relative(got["m"], mechanism.inertia[:, 0].sum()) < 1e-15
    assert relative(got["c"], c) < 1e-13
    assert relative(got["J_c"] @ v, p / got["m"]) < 1e-13
    assert relative(got["h"], expected["h"]) < 1e-13
    about = np.concatenate([l - np.cross(c, p), p])
    assert relative(got["h_G"], about) < 1e-13
    assert relative(got["A_G"] @ v, about) < 1e-13


def to_pinocchio(chain):
    """The mechanism for Pinocchio, without coupling and motors; and for each link with mass the index of its body."""
    pin = pytest.importorskip("pinocchio")
    from peer_models import axis_offset

    model = pin.Model()
    free = model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3(np.array(chain.base_pose)), "free")
    joints, frames = {5: free}, {5: pin.SE3.Identity()}  # of the link, and the link's frame in the joint's
    for i, parent in ((6, 5), (9, 8), (10, 5), (11, 10), (12, 10)):
        placed = frames[parent] * pin.SE3(np.array(chain.rotation[i]), np.array(chain.translation[i]))
        w, v = np.split(np.array(chain.screw[i]), 2)
        kinds = {
            6: lambda: pin.JointModelSpherical(),
            11: lambda v=v: pin.JointModelPrismaticUnaligned(v),
            12: lambda w=w, v=v: pin.JointModelHelicalUnaligned(w, w @ v),
        }
        joint = kinds.get(i, lambda w=w: pin.JointModelRevoluteUnaligned(w))()
        on_axis = pin.SE3(np.eye(3), axis_offset(np.array(chain.screw[i])) if i != 6 else np.zeros(3))
        k = model.addJoint(joints[parent], joint, placed * on_axis, f"joint{i}")
        link = 8 if i == 6 else i
        joints[link], frames[link] = k, on_axis.inverse()
    for link, k in joints.items():
        model.appendBodyToJoint(k, pin.Inertia.FromDynamicParameters(np.array(chain.inertia[link])), frames[link])
    return pin, model, joints, frames


def test_quantities_of_the_whole_robot_equal_those_of_pinocchio(mechanism, routes):
    pin, model, joints, frames = to_pinocchio(mechanism)
    got, _ = routes
    q, v, *_ = (np.asarray(x) for x in state(mechanism))
    xyzw = [1, 2, 3, 0]
    positions = mechanism.coupling.matrix[9:, 9:] @ q[11:] + mechanism.coupling.offset[9:]
    q_pin = np.concatenate([q[:3], q[3:7][xyzw], q[7:11][xyzw], positions])
    halves = np.eye(13)[[3, 4, 5, 0, 1, 2, *range(6, 13)]]  # linear part first
    motion = halves @ np.asarray(mechanism.coupling.matrix)
    data, swap = model.createData(), [3, 4, 5, 0, 1, 2]
    pin.ccrba(model, data, q_pin, motion @ v)
    assert relative(got["A_G"], data.Ag[swap] @ motion) < 1e-12
    assert relative(got["h_G"], data.hg.vector[swap]) < 1e-12
    assert relative(got["c"], pin.centerOfMass(model, data, q_pin)) < 1e-12
    assert relative(got["J_c"], pin.jacobianCenterOfMass(model, data, q_pin) @ motion) < 1e-12
    pin.dccrba(model, data, q_pin, motion @ v)
    assert relative(got["dA_G v"], (data.dAg @ motion @ v)[swap]) < 1e-12
    # Pinocchio's parameters are about the joints' frames
    of_links = lambda y: np.concatenate([y[10 * (k - 1) : 10 * k] @ moved(frames[i]) for i, k in joints.items()])
    moved = lambda t: np.stack(
        [
            np.asarray(jaxdyn.spatial.inertia.transform_inertial_parameters(jnp.asarray(t.homogeneous), e))
            for e in jnp.eye(10)
        ],
        1,
    )
    columns = np.concatenate([np.arange(10 * i, 10 * i + 10) for i in joints])
    kinetic = pin.computeKineticEnergyRegressor(model, data, q_pin, motion @ v)
    assert relative(got["y_K"][columns], of_links(kinetic)) < 1e-12
    model.gravity.linear = np.array(mechanism.gravity)
    potential = pin.computePotentialEnergyRegressor(model, data, q_pin)
    assert relative(got["y_P"][columns], of_links(potential)) < 1e-12


def test_inner_torques_do_not_change_the_momentum(mechanism, routes):
    """Newton and Euler for the whole: under joint torques alone the momentum's rate is (0, m gravity)."""
    got, expected = routes
    rate = got["A_G"] @ expected["falling"] + got["dA_G v"]
    assert relative(rate, np.concatenate([np.zeros(3), got["m"] * np.asarray(mechanism.gravity)])) < 1e-11


def test_the_hamiltonian_flow_is_that_of_the_equations_of_motion(mechanism, routes):
    got, expected = routes
    _, v, _, _, tau = state(mechanism)
    qd, pd = got["flow"]
    assert relative(got["p"], expected["M"] @ v) < 1e-13
    assert relative(got["H"], expected["E"]) < 1e-13
    assert relative(qd, v) < 1e-11
    assert relative(pd, expected["C"].T @ v - expected["g"] - expected["k"] + tau) < 1e-11


def test_passivity_based_torques_use_the_given_coriolis_matrix(mechanism, routes):
    got, expected = routes
    _, _, v_ref, a_ref, _ = state(mechanism)
    assert relative(got["Slotine-Li"], expected["M"] @ a_ref + expected["C"] @ v_ref + expected["g"]) < 1e-12


def test_regressors_give_the_quantities_of_the_links(mechanism, routes):
    got, expected = routes
    _, v, v_ref, a_ref, _ = state(mechanism)
    pi, mass = np.asarray(mechanism.inertia).reshape(-1), expected["M of links"]
    assert relative(got["Y_r"] @ pi, mass @ a_ref + expected["C"] @ v_ref + expected["g"]) < 1e-12
    assert relative(expected["Y_r at v"], expected["Y"]) < 1e-13
    assert relative(got["Y_p"] @ pi, mass @ v) < 1e-12
    assert relative(got["y_K"] @ pi, 0.5 * v @ mass @ v) < 1e-13
    assert relative(got["y_P"] @ pi, expected["P"]) < 1e-13


def test_the_operational_wrench_moves_the_frame_as_the_torques_do(mechanism, routes):
    """The wrench F = Lambda dV/dt + eta, in place of the torques, moves the frame as they do."""
    got, expected = routes
    inertia, bias, inverse = got["task"]
    _, _, _, _, tau = state(mechanism)
    j, mass = expected["J"], expected["M"]
    acceleration = j @ expected["a"] + expected["dJ v"]
    wrench = inertia @ acceleration + bias
    assert relative(wrench, inverse.T @ tau) < 1e-10
    assert relative(inertia, np.linalg.inv(j @ np.linalg.solve(mass, j.T))) < 1e-10
    assert relative(j @ inverse, np.eye(6)) < 1e-11
    turned = np.eye(4)
    turned[:3, :3] = expected["tool"][:3, :3].T
    back = np.asarray(jaxdyn.spatial.se3.adjoint(jnp.asarray(turned)))
    assert relative(got["Lambda"], back.T @ inertia @ back) < 1e-10


@pytest.mark.nightly
def test_quantities_stay_in_single_precision(mechanism, routes):
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (mechanism, *state(mechanism)))
    for name, value in once(everything)(*single).items():
        for x, y in zip(jax.tree.leaves(value), jax.tree.leaves(routes[0][name]), strict=True):
            assert x.dtype == jnp.float32, name
            assert relative(x, y) < (1e-2 if name in ("task", "Lambda", "flow") else 2e-5), name


def test_unknown_frames_and_free_bases_are_refused(mechanism):
    q, v, *_ = state(mechanism)
    with pytest.raises(jaxdyn.ModelError, match="nowhere"):
        jax.eval_shape(lambda q, v: jaxdyn.dynamics.operational_space(mechanism, q, v, frame="nowhere"), q, v)
    with pytest.raises(jaxdyn.ModelError, match="free joint"):
        jaxdyn.mechanisms.with_moving_base_point(mechanism)


def test_work_on_quaternion_joints_is_torque_times_motion(mechanism):
    q, v, _, _, tau = state(mechanism)
    dq = 0.3 * v

    @once
    def work(q, dq):
        path = jnp.stack([q, configuration.integrate(mechanism, q, dq)])
        return jaxdyn.dynamics.passivity_integral(mechanism, path, tau[None])

    assert relative(work(q, dq), [0.0, tau @ dq]) < 1e-13
