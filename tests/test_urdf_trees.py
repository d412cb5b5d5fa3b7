"""URDF files that branch, float, slide in a plane or mimic: read, against Pinocchio, and written again."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_inertia, relative
from jaxdyn.errors import ModelError
from jaxdyn.io.urdf import load, loads
from jaxdyn.io.urdf_update import update_urdf
from jaxdyn.io.urdf_write import save_urdf, to_urdf
from jaxdyn.model.build import make_chain
from jaxdyn.model.chain import Coupling, Transmission
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
TREES = {
    "tree": (ARM.read_text(), {"lock": {"left": 0.03}}),
    "tree and mimic": (ARM.read_text(), {}),
    "mimic ignored": (ARM.read_text(), {"ignore_mimic": True}),
    "on a floating base": (ARM.read_text(), {"floating_base": True}),
    "planar": (PLANAR, {}),
    "floating in the file": (FLOATING, {}),
    "springs": (SPRUNG, {}),
}


def changed(chain):
    """Other inertias and drives, as a URDF can hold them: nothing between the parts of a joint, one drive for all parts."""
    rng = np.random.default_rng(3)
    bodies = np.asarray(chain.inertia).any(1)
    inertia = np.where(bodies[:, None], [random_inertia(rng) for _ in range(chain.n)], 0.0)
    parts = {i for link, size in chain.topology.quaternion_joints for i in range(link, link + size)}
    parts |= {i for i, name in enumerate(chain.joint_names) if name in ("p_x", "p_y", "p")}
    leaves = ("armature", "viscous_friction", "coulomb_friction", "torque_offset", "coulomb_velocity", "stiffness")
    values = {name: rng.uniform(0.1, 1, chain.n) for name in (*leaves, "rest_position")}
    for x in values.values():
        x[list(parts)] = 0.5
    return dataclasses.replace(
        chain, inertia=jnp.asarray(inertia), **{name: jnp.asarray(x) for name, x in values.items()}
    )


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
    assert load(ARM, lock={"right": 0.03}).coupling is None


def test_mimics_of_mimics():
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
        r"<text>:4: joint 'j' mimics itself, by way of others",
    ),
    "fixed master": (
        tree(("j", "fixed", "a", "b"), ("k", "continuous", "b", "c", mimic("j"))),
        {},
        r"<text>:5: joint 'k' mimics 'j', which is no joint that moves",
    ),
    "planar master": (
        tree(("j", "planar", "a", "b"), ("k", "continuous", "b", "c", mimic("j"))),
        {},
        r"<text>:5: joint 'k' mimics 'j', which is no joint with one position",
    ),
    "master beside the tip": (
        tree(("j", "continuous", "a", "b"), ("k", "continuous", "a", "c", mimic("j"))),
        {"tip": "c"},
        r"<text>:5: joint 'k' mimics 'j', which does not move the tip; lock 'k'",
    ),
    "floating inside": (
        tree(("j", "continuous", "a", "b"), ("k", "floating", "b", "c")),
        {},
        r"<text>:5: joint 'k' floats, but not from the origin of the root 'a'",
    ),
    "floating on a floating base": (FLOATING, {"floating_base": True}, "joint 'free' floats, but not from the origin"),
    "lock of a part": (FLOATING, {"lock": {"free_vx": 1.0}}, "lock names 'free_vx', a part of the free joint 'free'"),
}


@pytest.mark.parametrize(("text", "options", "message"), BAD.values(), ids=BAD)
def test_refused(text, options, message):
    with pytest.raises(ModelError, match=message):
        loads(text, **options)


def test_floating_base_is_a_free_joint():
    chain, fixed = load(ARM, floating_base=True), load(ARM)
    assert chain.topology.quaternion_joints == ((0, 6),) and chain.joint_names[:6] == tuple(
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


@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
def test_mimic_dynamics_are_pinocchios(floating):
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


def test_planar_joint_is_pinocchios():
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


def test_names_of_parts_give_way():
    text = PLANAR.replace('name="j"', 'name="p_x"')
    assert loads(text).joint_names == ("turn", "p_x_", "p_y", "p", "p_x")


@pytest.mark.parametrize(("text", "options"), TREES.values(), ids=TREES)
@pytest.mark.parametrize("change", [lambda chain: chain, changed], ids=["as read", "changed"])
def test_round_trip_through_new_text(text, options, change):
    chain = change(loads(text, **options))
    assert_same(loads(to_urdf(chain), allow_nonphysical=True), chain)


@pytest.mark.parametrize(("text", "options"), TREES.values(), ids=TREES)
@pytest.mark.parametrize("change", [lambda chain: chain, changed], ids=["as read", "changed"])
def test_round_trip_through_the_source(text, options, change, tmp_path):
    source, new = tmp_path / "old.urdf", tmp_path / "new.urdf"
    source.write_text(text)
    read = load(source, **options)
    chain = change(read)
    if options.get("floating_base"):  # it has no element that could hold a drive
        drives = ("armature", "viscous_friction", "coulomb_friction", "torque_offset", "coulomb_velocity")
        for name in (*drives, "stiffness", "rest_position"):
            values = getattr(chain, name).at[:6].set(getattr(read, name)[:6])
            chain = dataclasses.replace(chain, **{name: values})
    update_urdf(source, chain, new, **options)
    assert_same(load(new, **{k: v for k, v in options.items() if k != "lock"}), chain)
    if not options.get("floating_base"):
        again = load(ARM, **options) if text == ARM.read_text() else loads(text, **options)
        assert again.joint_names == chain.joint_names


def test_update_unties_what_mimicked_a_locked_joint(tmp_path):
    options = {"lock": {"left": 0.03}, "ignore_mimic": True}
    chain = load(ARM, **options)
    update_urdf(ARM, chain, tmp_path / "new.urdf", **options)
    assert_same(load(tmp_path / "new.urdf"), chain)


def test_pinocchio_reads_the_trees_that_are_written(tmp_path):
    chain = load(ARM)
    save_urdf(chain, tmp_path / "new.urdf")
    assert_pinocchio_agrees(chain, pin.buildModelFromUrdf(str(tmp_path / "new.urdf")))
    model = pin.buildModelFromXML(to_urdf(loads(FLOATING)), True)
    assert tuple(model.names)[1:] == ("free", "left", "right") and (model.nq, model.nv) == (9, 7)
    assert model.joints[1].shortname() == "JointModelFreeFlyer"


def screws(n, **leaves):
    return make_chain(
        rotation=np.tile(np.eye(3), (n, 1, 1)),
        translation=np.zeros((n, 3)),
        screw=np.eye(6)[np.arange(n) % 6],
        inertia=[*np.zeros((n - 1, 10)), [1, 0, 0, 0, 1, 0, 1, 0, 0, 1]],
        **leaves,
    )


def coupled(matrix, offset=None):
    n = len(matrix)
    return screws(
        n, coupling=Coupling(jnp.asarray(matrix, float), jnp.asarray(np.zeros(n) if offset is None else offset))
    )


def free_body(**changes):
    return dataclasses.replace(screws(6, quaternion_joints=[(0, 6)]), **changes)


def geared(n):
    one = jnp.ones(1)
    return Transmission(jnp.eye(n)[1:2] * 50.0, one, one, one, one)


UNWRITABLE = {
    "spherical": (lambda: screws(3, quaternion_joints=[(0, 3)]), "joint 'joint1' is spherical"),
    "transmission": (lambda: screws(2, transmission=geared(2)), "has a transmission .it drives 'joint2'., which"),
    "base pose": (lambda: screws(2, base_pose=np.eye(4)), "has a base_pose, which a URDF cannot hold"),
    "two masters": (
        lambda: coupled([[1, 0], [0, 1], [1, 1]]),
        "joint 'joint3' follows 'joint1', 'joint2'; .* one joint only",
    ),
    "no master": (lambda: coupled([[1, 0], [0, 2]]), "coordinate 2 of the coupling is no joint's position"),
    "offset master": (
        lambda: coupled([[1.0], [1.0]], [0.1, 0.2]),
        "coordinate 1 of the coupling is no joint's position",
    ),
    "order": (lambda: coupled([[0, 1], [1, 0]]), "not in the order of the joints"),
    "limits": (lambda: free_body(effort_limit=jnp.ones(6)), "the free joint 'joint1' has limits"),
    "drives": (lambda: free_body(armature=jnp.arange(6.0)), "parts of the free joint 'joint1' differ in armature"),
    "inertia": (lambda: free_body(inertia=jnp.ones((6, 10))), "the links before 'link6' have inertia"),
    "frame of a part": (
        lambda: screws(6, quaternion_joints=[(0, 6)], frames={"tool": (2, np.eye(4))}),
        "frame 'tool' hangs on a part of the free joint",
    ),
}


@pytest.mark.parametrize(("build", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_unwritable(build, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        save_urdf(build(), tmp_path / "new.urdf")
    assert not list(tmp_path.iterdir())


def test_joints_that_follow_nothing_and_other_names():
    chain = coupled([[0.0], [1.0]], [0.3, 0.0])  # the first joint is held at 0.3
    back = loads(to_urdf(chain))
    assert_same(eqx.tree_at(lambda c: c.coupling, chain, back.coupling), chain)
    assert_close(back.coupling.matrix, chain.coupling.matrix) and assert_close(back.coupling.offset, [0.3, 0])
    assert back.topology.coordinate_names == ("joint2",)
    assert loads(to_urdf(free_body())).joint_names[0] == "joint1_wx"  # parts have no names in a URDF


def set_first(name, value):
    return lambda chain: dataclasses.replace(chain, **{name: getattr(chain, name).at[0].set(value)})


REFUSED_UPDATES = {
    "drive of the base": (
        ARM.read_text(),
        {"floating_base": True},
        set_first("armature", 1.0),
        {},
        "armature of 'float",
    ),
    "drive of a part": (FLOATING, {}, set_first("armature", 1.0), {}, "armature of 'free_wx' is not the file's"),
    "inertia of a part": (FLOATING, {}, set_first("inertia", 1.0), {}, "a part of a joint, has inertia"),
    "floating base forgotten": (
        ARM.read_text(),
        {"floating_base": True},
        None,
        {"floating_base": False},
        "floating_base=",
    ),
    "mimics forgotten": (
        ARM.read_text(),
        {},
        None,
        {"ignore_mimic": True},
        "in the chain only there are joints that mimic",
    ),
    "mimics not ignored": (
        ARM.read_text(),
        {"ignore_mimic": True},
        None,
        {"ignore_mimic": False},
        "in the file only there are",
    ),
    "planar lock": (
        PLANAR,
        {"lock": {"p_x": 0.1}},
        None,
        {},
        "'p_x' is a part of a planar joint, which cannot be locked",
    ),
    "other coupling": (
        FLOATING,
        {},
        lambda c: eqx.tree_at(lambda x: x.coupling.offset, c, c.coupling.offset.at[-1].set(0.2)),
        {},
        "coupling of 'right' is not the file's",
    ),
    "spring": (SPRUNG, {}, lambda c: dataclasses.replace(c, base_pose=jnp.eye(4)), {}, "has a base_pose"),
}


@pytest.mark.parametrize(
    ("text", "options", "change", "others", "message"), REFUSED_UPDATES.values(), ids=REFUSED_UPDATES
)
def test_update_refuses(text, options, change, others, message, tmp_path):
    source = tmp_path / "old.urdf"
    source.write_text(text)
    chain = load(source, **options)
    with pytest.raises(ModelError, match=message):
        update_urdf(source, chain if change is None else change(chain), tmp_path / "new.urdf", **{**options, **others})
    assert [p.name for p in tmp_path.iterdir()] == ["old.urdf"]


def test_springs_are_read():
    chain = loads(SPRUNG)
    assert_close(chain.stiffness, [3.5])
    assert_close(chain.rest_position, [-0.2])
    assert 'stiffness="3.5"' in to_urdf(chain) and "jaxdyn" not in to_urdf(jax.tree.map(lambda x: x, loads(PLANAR)))
