"""Joints with several degrees of freedom: planar, universal and cylindrical joints against Pinocchio, and their checks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_inertia, relative
from jaxdyn import Topology, dynamics
from jaxdyn.io import loads
from jaxdyn.model import layouts

PLANAR = np.eye(6)[[3, 4, 2]]
UNIVERSAL = np.eye(6)[[0, 1]]
CYLINDRICAL = np.eye(6)[[2, 5]]
SCREWS = {"planar": PLANAR, "universal": UNIVERSAL, "cylindrical": CYLINDRICAL}
KINDS = sorted(SCREWS)
COMPILED = [pytest.param(kind, marks=() if kind == "planar" else pytest.mark.nightly) for kind in KINDS]


def arm(kind: str, dtype=None) -> jaxdyn.Chain:
    """A revolute joint, a joint of this type at a general placement, and another revolute joint."""
    rng = np.random.default_rng(3)
    size = len(SCREWS[kind])
    n = size + 2
    rotation, translation, inertia = np.tile(np.eye(3), (n, 1, 1)), np.zeros((n, 3)), np.zeros((n, 10))
    for i in (0, 1, n - 1):  # the links within the joint coincide, and have no mass
        rotation[i] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        rotation[i] *= np.sign(np.linalg.det(rotation[i]))
        translation[i] = rng.normal(size=3)
    for i in (0, n - 2, n - 1):
        inertia[i] = random_inertia(rng)
    name = [f"J{ending}" for ending in jaxdyn.model.joints.JOINT_TYPES[kind].parts]
    chain = jaxdyn.make_chain(
        rotation,
        translation,
        np.concatenate([np.eye(6)[[2]], SCREWS[kind], np.eye(6)[[1]]]),
        inertia,
        topology=Topology.serial(n, joint_names=["first", *name, "last"], compound_joints=[(1, kind)]),
        gravity=rng.normal(size=3) * 5,
    )
    return chain if dtype is None else jax.tree.map(lambda x: x.astype(dtype), chain)


def to_pinocchio(chain: jaxdyn.Chain, kind: str):
    pin = pytest.importorskip("pinocchio")
    if kind == "cylindrical":
        joint = pin.JointModelComposite(pin.JointModelRZ())
        joint.addJoint(pin.JointModelPZ())
    elif kind == "planar":
        joint = pin.JointModelPlanar()
    else:
        joint = pin.JointModelUniversal(np.eye(3)[0], np.eye(3)[1])
    model, parent = pin.Model(), 0
    model.gravity.linear = np.array(chain.gravity)
    for i, moves, body, name in (
        (0, pin.JointModelRZ(), 0, "first"),
        (1, joint, chain.n - 2, "J"),
        (chain.n - 1, pin.JointModelRY(), chain.n - 1, "last"),
    ):
        place = pin.SE3(np.array(chain.rotation[i]), np.array(chain.translation[i]))
        parent = model.addJoint(parent, moves, place, name)
        inertia = pin.Inertia.FromDynamicParameters(np.array(chain.inertia[body]))
        model.appendBodyToJoint(parent, inertia, pin.SE3.Identity())
    return pin, model


def state(chain: jaxdyn.Chain) -> tuple[jnp.ndarray, ...]:
    return tuple(jnp.asarray(x, chain.dtype) for x in np.random.default_rng(5).normal(size=(3, chain.nv)))


def body_axes(chain: jaxdyn.Chain, kind: str, q: jnp.ndarray) -> jnp.ndarray:
    """The matrix from velocities to Pinocchio's, which are in body axes for a planar joint."""
    if kind != "planar":
        return jnp.eye(chain.nv)
    velocities = lambda v: layouts.to_pinocchio_state(chain, q, v)[1]
    return jax.jacfwd(velocities)(jnp.zeros(chain.nv))


@pytest.mark.parametrize("kind", COMPILED)
def test_dynamics_agree_with_pinocchio(kind):
    chain = arm(kind)
    pin, model = to_pinocchio(chain, kind)
    q, qd, qdd = state(chain)
    data, (there, moving) = model.createData(), layouts.to_pinocchio_state(chain, q, qd)
    to_body = lambda q: body_axes(chain, kind, q)
    rate = jax.jvp(lambda t: to_body(q + t * qd) @ qd, (0.0,), (1.0,))[1]  # of the body axes
    acceleration = to_body(q) @ qdd + rate
    assert model.njoints == 4 and [joint.name for joint in chain.joints] == list(model.names[1:])
    torque = pin.rnea(model, data, *map(np.array, (there, moving, acceleration)))
    assert relative(jaxdyn.inverse_dynamics(chain, q, qd, qdd), to_body(q).T @ torque) < 1e-12
    mass = pin.crba(model, data, np.array(there))
    mass = np.triu(mass) + np.triu(mass, 1).T
    assert relative(jaxdyn.mass_matrix(chain, q), to_body(q).T @ mass @ to_body(q)) < 1e-12
    force = np.linalg.solve(to_body(q).T, qdd)
    expected = pin.aba(model, data, np.array(there), np.array(moving), force) - rate
    assert relative(jaxdyn.forward_dynamics(chain, q, qd, qdd), np.linalg.solve(to_body(q), expected)) < 1e-11
    pin.forwardKinematics(model, data, np.array(there))
    assert relative(jaxdyn.frame_pose(chain, q), data.oMi[3].homogeneous) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_states_convert_to_the_layouts_of_pinocchio_and_mujoco_and_back(kind):
    chain = arm(kind)
    q, qd, _ = state(chain)
    for names in (None, ["last", "J", "first"], chain.joint_names[::-1]):
        back = layouts.from_pinocchio_state(chain, *layouts.to_pinocchio_state(chain, q, qd, names), names)
        assert relative(jnp.stack(back), jnp.stack([q, qd])) < 1e-14
    there = layouts.to_mujoco_state(chain, q, qd, chain.joint_names[::-1])  # several hinges and slides
    assert np.array_equal(there, [q[::-1], qd[::-1]])
    with pytest.raises(jaxdyn.ModelError, match="missing, unknown or repeated"):
        layouts.to_mujoco_state(chain, q, qd, ["first", "other", "last"])
    if kind == "planar":
        with pytest.raises(jaxdyn.ModelError, match="in the axes of the body"):
            layouts.to_pinocchio_vector(chain, qd)


@pytest.mark.ci
@pytest.mark.parametrize("kind", COMPILED)
def test_derivatives_are_those_of_automatic_differentiation(kind):
    chain = arm(kind)
    q, qd, qdd = state(chain)
    found = dynamics.inverse_dynamics_derivatives(chain, q, qd, qdd)
    for k, x in enumerate((q, qd, qdd)):
        at = lambda y, k=k: jaxdyn.inverse_dynamics(chain, *[y if i == k else z for i, z in enumerate((q, qd, qdd))])
        assert relative(found[k], jax.jacfwd(at)(x)) < 1e-11


@pytest.mark.parametrize("kind", COMPILED)
def test_joints_of_all_kinds_work_in_batches_and_single_precision(kind):
    chain = arm(kind)
    q, qd, qdd = (jnp.stack([x, 2 * x, -x]) for x in state(chain))
    single = jnp.stack([jaxdyn.inverse_dynamics(chain, *x) for x in zip(q, qd, qdd, strict=True)])
    batch = jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0))
    assert relative(batch(chain, q, qd, qdd), single) < 1e-13
    rounded = batch(arm(kind, jnp.float32), *(x.astype(jnp.float32) for x in (q, qd, qdd)))
    assert rounded.dtype == jnp.float32 and relative(rounded, single) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_links_that_do_not_form_the_joint_are_refused(kind):
    chain = arm(kind)
    leaves = {name: np.asarray(getattr(chain, name)) for name in ("rotation", "translation", "screw", "inertia")}
    moved, turned = leaves["translation"].copy(), leaves["screw"].copy()
    moved[2, 0] = 0.1
    turned[[1, 2]] = turned[[2, 1]]
    if kind == "universal":  # its axes may be exchanged, but must be perpendicular
        turned[1] = turned[2]
    for changed, message in (({"translation": moved}, "wrong offsets"), ({"screw": turned}, "wrong screws")):
        with pytest.raises(jaxdyn.ModelError, match=f"do not form a {kind} joint: {message}"):
            jaxdyn.make_chain(**{**leaves, **changed}, topology=chain.topology)
    with pytest.raises(jaxdyn.ModelError, match="pass its first link and its type"):
        dataclasses.replace(chain.topology, compound_joints=[(chain.n - 1, kind)])
    with pytest.raises(jaxdyn.ModelError, match="not a serial chain"):
        Topology((-1, 0, 0, 0, 0), compound_joints=[(1, kind)])


def test_planar_joint_of_a_urdf_is_one_joint(tmp_path):
    chain = loads(
        """<robot name="cart"><link name="world"/><link name="cart"><inertial><mass value="2"/>
        <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
        <joint name="drive" type="planar"><parent link="world"/><child link="cart"/><axis xyz="0 1 0"/></joint></robot>"""
    )
    (joint,) = chain.joints
    assert (joint.name, joint.kind, joint.size) == ("drive", "planar", 3)
    assert [label for label, _ in joint.positions] == ["x", "y", "angle"]
    assert chain.joint_names == ("drive_x", "drive_y", "drive")
    jaxdyn.save_model(chain, tmp_path / "cart.eqx")
    assert jaxdyn.load_model(tmp_path / "cart.eqx").topology == chain.topology


def test_joints_of_a_robot_cover_its_coordinates_in_order():
    chain = jaxdyn.make_chain(
        np.tile(np.eye(3), (12, 1, 1)),
        np.zeros((12, 3)),
        np.concatenate([np.eye(6), np.eye(6)[:3], CYLINDRICAL, np.eye(6)[[0]]]),
        np.tile(random_inertia(np.random.default_rng(0)), (12, 1)),
        topology=Topology.serial(12, compound_joints=[(0, "free"), (6, "spherical"), (9, "cylindrical")]),
    )
    assert [joint.kind for joint in chain.joints] == ["free", "spherical", "cylindrical", "single"]
    assert (
        [i for joint in chain.joints for i in range(chain.nq)[joint.entries]]
        == list(range(chain.nq))
        == list(range(14))
    )
    assert (
        [i for joint in chain.joints for i in range(chain.nv)[joint.columns]]
        == list(range(chain.nv))
        == list(range(12))
    )
    q = jaxdyn.model.random_configuration(chain, jax.random.key(0))
    v = jnp.asarray(np.random.default_rng(1).normal(size=12))
    for joint in chain.joints:  # each joint's own chart is that of the whole robot
        moved = joint.integrate(q[joint.entries], v[joint.columns])
        assert relative(moved, jaxdyn.model.integrate(chain, q, v)[joint.entries]) < 1e-14
        step = joint.difference(q[joint.entries], moved)
        assert relative(joint.integrate(q[joint.entries], step), moved) < 1e-13
    assert chain.topology == dataclasses.replace(chain.topology, compound_joints=[(0, 6), (6, 3), (9, "cylindrical")])
