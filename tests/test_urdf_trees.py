"""URDF files that branch, float, slide in a plane or mimic, against Pinocchio."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, relative
from jaxdyn import ModelError
from jaxdyn.io import load, loads, to_urdf
from test_urdf import ARM, assert_close, assert_pinocchio_agrees, assert_same

pin = pytest.importorskip("pinocchio")

LIMIT = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
BODY = (
    '<link name="{}"><inertial><origin xyz="0.1 0.02 0.3" rpy="0.1 0.2 0.3"/><mass value="2"/>'
    '<inertia ixx="0.2" ixy="0.01" ixz="0" iyy="0.3" iyz="0.02" izz="0.25"/></inertial></link>'
)


def tree(*joints, links="abcdef", root="a"):
    """A robot of joints (name, type, parent, child, rest)."""
    used = [x for x in links if any(x in joint[2:4] for joint in joints)]
    text = f'<robot name="r">\n<link name="{root}"/>' + "\n".join(BODY.format(x) for x in used if x != root)
    for i, (name, kind, parent, child, *rest) in enumerate(joints):
        place = "" if kind == "floating" else f'<origin xyz="0.3 {i} 0.1" rpy="0.3 {i} -0.2"/>'
        text += f'\n<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{place}'
        text += "".join(rest) + "</joint>"
    return text + "\n</robot>"


def mimic(joint, multiplier=1.0, offset=0.0):
    return f'<mimic joint="{joint}" multiplier="{multiplier}" offset="{offset}"/>'


PLANAR = tree(
    ("turn", "continuous", "a", "b"), ("p", "planar", "b", "c", '<axis xyz="0 0 1"/>'), ("j", "continuous", "c", "d")
)
FLOATING = tree(
    ("free", "floating", "a", "b"),
    ("left", "continuous", "b", "c"),
    ("right", "continuous", "b", "d", mimic("left", -2.0, 0.1)),
)
SPRUNG = tree(("j", "continuous", "a", "b", '<jaxdyn stiffness="3.5" rest_position="-0.2"/>'))


def test_branches_hang_where_the_file_says():
    chain = load(ARM)
    assert chain.joint_names == ("rail", "shoulder", "elbow", "pan", "roll", "left", "right")
    assert chain.topology.parents == (-1, 0, 1, 2, 2, 4, 4)
    assert chain.topology.tip_name is None and chain.n == 7 and chain.nv == chain.nq == 6
    assert_pinocchio_agrees(chain, pin.buildModelFromUrdf(str(ARM)))
    at_the_base = loads(
        tree(("j", "continuous", "a", "b"), ("k", "continuous", "a", "c"), ("l", "continuous", "b", "d"))
    )
    assert at_the_base.joint_names == ("j", "l", "k") and at_the_base.topology.parents == (-1, 0, -1)


def test_mimic_joints_are_coupled():
    chain = load(ARM)
    assert chain.topology.coordinate_names == chain.joint_names[:6]
    assert_close(chain.coupling.matrix, np.vstack([np.eye(6), [0, 0, 0, 0, 0, 2]]))
    assert_close(chain.coupling.offset, [0, 0, 0, 0, 0, 0, 0.001])
    free = load(ARM, ignore_mimic=True)
    assert free.coupling is None and free.topology.coordinate_names is None and free.nv == 7
    assert_same(dataclasses.replace(free, coupling=chain.coupling, topology=chain.topology), chain)
    assert load(ARM, lock={"left": 0.03}).n == 5  # the one that mimics a locked joint is locked with it
    assert load(ARM, lock={"left": 0.03}, ignore_mimic=True).joint_names[-1] == "right"


def test_a_mimic_joint_locked_alone_is_named():
    with pytest.warns(jaxdyn.ModelWarning, match="joint 'right' is locked and no longer follows 'left', which moves"):
        alone = load(ARM, lock={"right": 0.03})
    assert alone.n == load(ARM).n - 1 and alone.coupling is None


def test_mimics_of_mimics_are_coupled_to_their_source():
    text = tree(
        ("j", "continuous", "a", "b", mimic("k", 3.0, 0.5)),
        ("k", "continuous", "b", "c", mimic("l", -2.0, 0.25)),
        ("l", "continuous", "c", "d"),
        ("m", "continuous", "d", "e"),
    )
    chain = loads(text)
    assert chain.topology.coordinate_names == ("l", "m")
    assert_close(chain.coupling.matrix, [[-6, 0], [-2, 0], [1, 0], [0, 1]])
    assert_close(chain.coupling.offset, [3 * 0.25 + 0.5, 0.25, 0, 0])
    assert_same(loads(to_urdf(chain)), chain)


def test_a_mimic_of_a_missing_joint_loads_when_mimics_are_ignored():
    text = tree(("j", "continuous", "a", "b", mimic("x")), ("k", "continuous", "b", "c", mimic("j")))
    assert loads(text, ignore_mimic=True).nv == 2
    with pytest.raises(ModelError, match=r"<text>:4: joint 'j' mimics 'x', .* ignore_mimic=True"):
        loads(text)


BAD = {
    "ring": (
        tree(("j", "continuous", "a", "b", mimic("k")), ("k", "continuous", "b", "c", mimic("j"))),
        {},
        r"<text>:4: joint 'j' mimics itself, via other joints",
    ),
    "fixed master": (
        tree(("j", "fixed", "a", "b"), ("k", "continuous", "b", "c", mimic("j"))),
        {},
        r"<text>:5: joint 'k' mimics 'j', which is not a moving joint",
    ),
    "planar master": (
        tree(("j", "planar", "a", "b"), ("k", "continuous", "b", "c", mimic("j"))),
        {},
        r"<text>:5: joint 'k' mimics 'j', which is not a joint with a single position",
    ),
    "master beside the tip": (
        tree(("j", "continuous", "a", "b"), ("k", "continuous", "a", "c", mimic("j"))),
        {"tip": "c"},
        r"<text>:5: joint 'k' mimics 'j', which does not move the tip; lock 'k'",
    ),
    "floating inside": (
        tree(("j", "continuous", "a", "b"), ("k", "floating", "b", "c")),
        {},
        r"<text>:5: joint 'k' is floating, but not relative to the origin of the root 'a'",
    ),
    "floating on a floating base": (FLOATING, {"floating_base": True}, "joint 'free' is floating, but not relative to"),
    "lock of a part": (
        FLOATING,
        {"lock": {"free_vx": 1.0}},
        "lock contains 'free_vx', a part of the free joint 'free'",
    ),
}


@pytest.mark.parametrize(("text", "options", "message"), BAD.values(), ids=BAD)
def test_trees_that_cannot_be_read_are_refused(text, options, message):
    with pytest.raises(ModelError, match=message):
        loads(text, **options)


@pytest.mark.filterwarnings("ignore:.*mass matrix is singular:jaxdyn.ModelWarning")  # of bases without mass
def test_floating_base_is_a_free_joint():
    chain, fixed = load(ARM, floating_base=True), load(ARM)
    assert chain.topology.compound_joints == ((0, "free"),) and chain.joint_names[:6] == tuple(
        f"floating_base_{x}" for x in ("wx", "wy", "wz", "vx", "vy", "vz")
    )
    assert (chain.n, chain.nv, chain.nq) == (13, 12, 13)
    assert chain.topology.base_name == "universe" and chain.link_names[5] == "world"  # the file's root has the name
    assert chain.topology.parents[6:] == tuple(p + 6 for p in (-1, *fixed.topology.parents[1:]))
    assert_close(chain.inertia[6:], fixed.inertia)
    assert_close(chain.inertia[5, 0], 20.0)  # what is bolted to a base that moves counts
    assert loads(SPRUNG, floating_base="hull").joint_names[0] == "hull_wx"
    assert loads(SPRUNG, floating_base=True).topology.base_name == "world"
    taken = loads(SPRUNG.replace('name="j"', 'name="floating_base"'), floating_base=True)
    assert taken.joint_names[:2] == ("root_joint_wx", "root_joint_wy") and taken.joint_names[6] == "floating_base"
    assert loads(SPRUNG.replace('name="j"', 'name="p_x"').replace("</robot>", "") + "</robot>").n == 1


def test_a_floating_joint_of_the_file_is_a_floating_base():
    without = FLOATING.replace('<link name="a"/>', "")
    start = without.index("\n<joint")
    without = without[:start] + without[without.index("\n<joint", start + 1) :]
    chain, other = loads(FLOATING), loads(without, floating_base="free")
    topology = dataclasses.replace(other.topology, base_name="a")
    assert_same(dataclasses.replace(other, topology=topology), chain)
    assert chain.topology.coordinate_names[-1] == "left" and chain.nv == 7


@once
def dynamics(chain, q, v, a):
    return jaxdyn.inverse_dynamics(chain, q, v, a), jaxdyn.crba(chain, q), jaxdyn.forward_kinematics(chain, q)


@pytest.mark.parametrize(
    "floating", [pytest.param(False, id="fixed"), pytest.param(True, id="floating", marks=pytest.mark.nightly)]
)
def test_mimic_joints_have_the_dynamics_of_pinocchio(floating):
    """Pinocchio's own mimic joints, and S^T M S of the robot whose joints are all free."""
    model = pin.buildModelFromUrdf(str(ARM), *([pin.JointModelFreeFlyer()] if floating else []), True)
    data = model.createData()
    q = pin.integrate(model, pin.neutral(model), np.random.default_rng(0).normal(size=model.nv))
    v, a = np.random.default_rng(1).normal(size=(2, model.nv))
    plain = lambda chain: dataclasses.replace(chain, armature=jnp.zeros(chain.n))  # which Pinocchio does not read
    chain = plain(load(ARM, floating_base=floating))
    start = model.joints[1].idx_q + 7 if floating else 0
    roll = model.joints[model.getJointId("roll")].idx_q
    joints = [*q[start:roll], np.arctan2(q[roll + 1], q[roll]), *q[roll + 2 :]]  # (cos, sin) of a joint without limits
    ours = np.array([*q[[0, 1, 2, 6, 3, 4, 5]], *joints] if floating else joints)
    swap = np.array([3, 4, 5, 0, 1, 2, *range(6, model.nv)] if floating else range(model.nv))
    tau, mass, poses = dynamics(chain, jnp.asarray(ours), jnp.asarray(v[swap]), jnp.asarray(a[swap]))
    assert relative(tau, pin.rnea(model, data, q, v, a)[swap]) < 1e-12
    upper = np.triu(pin.crba(model, data, q))
    assert relative(mass, (upper + np.triu(upper, 1).T)[np.ix_(swap, swap)]) < 1e-12
    pin.forwardKinematics(model, data, q)
    assert relative(poses[-7:], [data.oMi[model.getJointId(x)].homogeneous for x in chain.joint_names[-7:]]) < 1e-12
    if not floating:
        free, s = plain(load(ARM, ignore_mimic=True)), np.asarray(chain.coupling.matrix)
        both = s @ np.column_stack([ours, v, a]) + np.outer(chain.coupling.offset, [1, 0, 0])
        tau_free, mass_free, _ = dynamics(free, *(jnp.asarray(x) for x in both.T))
        assert relative(tau, s.T @ tau_free) < 1e-12 and relative(mass, s.T @ mass_free @ s) < 1e-12


@pytest.mark.ci
def test_a_planar_joint_has_the_dynamics_of_pinocchio():
    """Pinocchio's planar velocity is in the moved frame, ours in that of the plane: v_pin = J v with J = diag(R(t)^T, 1)."""
    model = pin.buildModelFromXML(PLANAR)
    data = model.createData()
    chain = loads(PLANAR)
    assert chain.joint_names == ("turn", "p_x", "p_y", "p", "j") and chain.link_names[3:] == ("c", "d")
    q, v, a = np.random.default_rng(2).normal(size=(3, 5))
    c, s = np.cos(q), np.sin(q)
    theirs = np.array([c[0], s[0], q[1], q[2], c[3], s[3], c[4], s[4]])
    j = np.eye(5)
    j[1:3, 1:3] = [[c[3], s[3]], [-s[3], c[3]]]
    rate = np.zeros((5, 5))
    rate[1:3, 1:3] = np.array([[-s[3], c[3]], [-c[3], -s[3]]]) * v[3]
    tau, mass, poses = dynamics(chain, *(jnp.asarray(x) for x in (q, v, a)))
    assert relative(tau, j.T @ pin.rnea(model, data, theirs, j @ v, j @ a + rate @ v)) < 1e-12
    upper = np.triu(pin.crba(model, data, theirs))
    assert relative(mass, j.T @ (upper + np.triu(upper, 1).T) @ j) < 1e-12
    pin.forwardKinematics(model, data, theirs)
    for link, joint in ((0, 1), (3, 2), (4, 3)):
        assert relative(poses[link], data.oMi[joint].homogeneous) < 1e-12


def test_planar_axis_is_the_normal_of_its_plane():
    for axis in ("1 0 0", "0 -1 2", "0 1 0"):
        chain = loads(PLANAR.replace('<axis xyz="0 0 1"/>', f'<axis xyz="{axis}"/>'))
        x, y, normal = chain.screw[1, 3:], chain.screw[2, 3:], chain.screw[3, :3]
        wanted = np.array(axis.split(), float)
        assert_close(normal, wanted / np.linalg.norm(wanted))
        assert_close(np.cross(x, y), normal)


def test_names_of_parts_of_joints_give_way_to_names_of_the_file():
    text = PLANAR.replace('name="j"', 'name="p_x"')
    assert loads(text).joint_names == ("turn", "p_x_", "p_y", "p", "p_x")


def test_springs_are_read_and_written():
    chain = loads(SPRUNG)
    assert_close(chain.springs.stiffness, [3.5])
    assert_close(chain.springs.rest_position, [-0.2])
    assert 'stiffness="3.5"' in to_urdf(chain) and "jaxdyn" not in to_urdf(jax.tree.map(lambda x: x, loads(PLANAR)))
