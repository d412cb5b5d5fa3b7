"""URDF files: fusing against Pinocchio, chains cut out of trees, round trips, and every way a file can be wrong."""

import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data_paths import SHARED_DATA
from jaxdyn import (
    Chain,
    ModelError,
    ModelWarning,
    Topology,
    load,
    make_chain,
    mass_matrix,
    neutral_configuration,
    save_urdf,
    with_inertial_parameters,
)
from jaxdyn.io import loads, to_urdf, update_urdf
from jaxdyn.model import with_leaves

pin = pytest.importorskip("pinocchio")

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore:.* the tip .* drops:jaxdyn.ModelWarning")
ARM = HERE / "data" / "gripper_arm.urdf"
KINEMATICS = HERE / "data" / "kinematics_only.urdf"
LOCK = {"pan": 0.4, "left": 0.03}
CASES = {
    "all locked": {"lock": LOCK, "tip": None},
    "tip": {"lock": None, "tip": "hand"},
    "tip before the wrist, camera locked": {"lock": {"pan": -1.0}, "tip": "camera"},
}


def assert_close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def assert_same(a: Chain, b: Chain):
    """Of the same structure, names and topology included, and of the same numbers."""
    assert a.topology == b.topology
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12), a, b)


def identified(chain: Chain) -> Chain:
    """The chain with other inertias, no body's, and other drives."""
    rng = np.random.default_rng(3)
    chain = with_inertial_parameters(chain, chain.inertia + jnp.asarray(rng.normal(0, 0.3, chain.inertia.shape)))
    names = ("armature", *(f"friction.{x}" for x in ("viscous", "coulomb", "offset", "coulomb_velocity")))
    names += ("springs.stiffness", "springs.rest_position")
    return with_leaves(chain, {name: jnp.asarray(rng.uniform(0.1, 1, chain.n)) for name in names})


def assert_pinocchio_agrees(chain: Chain, model):
    assert tuple(model.names)[1:] == chain.joint_names
    for i in range(chain.n):
        assert_close(chain.inertia[i], model.inertias[i + 1].toDynamicParameters())
        assert_close(chain.rotation[i], model.jointPlacements[i + 1].rotation)
        assert_close(chain.translation[i], model.jointPlacements[i + 1].translation)
    for name, link, pose in zip(chain.frame_names, chain.topology.frame_links, chain.frame_poses, strict=True):
        frame = model.frames[model.getFrameId(name, pin.BODY)]
        assert frame.parentJoint == link + 1
        assert_close(pose, frame.placement.homogeneous)


def test_fusing_agrees_with_pinocchio():
    model = pin.buildModelFromUrdf(str(ARM))
    q = pin.neutral(model)
    ids = [model.getJointId(name) for name in ("pan", "left", "right")]
    for joint, value in zip(ids, (0.4, 0.03, 0.061), strict=True):
        q[model.idx_qs[joint]] = value
    chain = load(ARM, lock=LOCK)
    assert_pinocchio_agrees(chain, pin.buildReducedModel(model, ids, q))
    assert chain.topology.base_name == "world"
    assert chain.topology.tip_name == "wrist"  # two fingers: no single end


def test_joints_are_read_as_declared():
    chain = load(ARM, lock=LOCK)
    assert chain.joint_names == ("rail", "shoulder", "elbow", "roll")
    assert_close(chain.screw[0], [0, 0, 0, 0, 0.6, 0.8])
    assert_close(chain.screw[2], [1 / 3, 2 / 3, -2 / 3, 0, 0, 0])
    assert_close(chain.limits.position, [[-0.5, 0.7], [-2.5, 2.5], [0, 2.2], [-np.inf, np.inf]])
    assert_close(chain.limits.velocity, [0.8, 3, 3, np.inf])
    assert_close(chain.limits.effort, [300, 80, 50, np.inf])
    assert_close(chain.friction.viscous, [12, 0.7, 0, 0])
    assert_close(chain.friction.coulomb, [5, 0, 0, 0])
    assert_close(chain.armature, [0, 0.11, 0, 0])
    assert_close(chain.friction.offset, [0, -0.3, 0, 0])
    assert_close(chain.friction.coulomb_velocity, [0.02, 0.05, 0.02, 0.02])
    assert_close(load(ARM, lock=LOCK, gravity=(0.0, 1.0, 2.0)).gravity, [0, 1, 2])


def test_tip_leaves_moving_branches_out():
    with pytest.warns(ModelWarning, match=r"tip 'hand' drops 'camera', 'left_finger', 'right_finger' \(0.5 kg\)"):
        cut = load(ARM, tip="hand")
    whole = load(ARM, lock=LOCK)
    assert cut.joint_names == whole.joint_names and cut.topology.tip_name == "hand"
    lost = np.asarray(whole.inertia[:, 0] - cut.inertia[:, 0])
    assert_close(lost, [0, 0, 0.4, 0.1])  # camera; both fingers
    assert set(whole.frame_names) - set(cut.frame_names) == {"camera", "left_finger", "right_finger"}
    assert "camera_mount" in cut.frame_names
    assert load(ARM, tip="counterweight").joint_names == ("rail", "shoulder")
    assert load(ARM, tip="left_finger").joint_names[-1] == "left"


def test_the_lock_of_a_joint_that_the_file_fixes_is_ignored(tmp_path):
    """As a file that `update_urdf` wrote has it, read with the arguments of the chain's own file."""
    path = tmp_path / "locked.urdf"
    chain = load(ARM, lock=LOCK)
    update_urdf(ARM, chain, path, lock=LOCK)
    with pytest.warns(ModelWarning, match="the lock of joint 'pan' is ignored, since the joint is fixed in the file"):
        again = load(path, lock=LOCK)
    assert_same(again, load(path))


def test_tip_is_the_single_end():
    assert load(KINEMATICS).topology.tip_name == "tool"
    assert load(ARM, lock={"pan": 0.0, "left": 0.0}, tip="flange").topology.tip_name == "flange"


def test_mimic_joint_follows_the_locked_one():
    follow = load(ARM, lock=LOCK)
    alone = load(ARM, lock={"pan": 0.4, "left": 0.03, "right": 0.061})
    assert_same(follow, alone)
    other = load(ARM, lock={"pan": 0.4, "left": 0.03, "right": 0.0})
    assert np.abs(np.asarray(other.inertia - alone.inertia)).max() > 1e-4


def test_files_without_inertias_are_read():
    chain = load(KINEMATICS)
    assert not np.any(chain.inertia)
    assert_close(chain.screw[0], [1, 0, 0, 0, 0, 0])  # the default axis
    assert "<inertial>" not in to_urdf(chain)
    assert_same(loads(to_urdf(chain)), chain)


def test_text_bytes_and_paths_are_read_alike():
    text = ARM.read_text()
    for chain in (loads(text, tip="hand"), loads(text.encode("utf-16"), tip="hand"), load(str(ARM), tip="hand")):
        assert_same(chain, load(ARM, tip="hand"))
    strange = '<?xml version="1.0" encoding="utf-16"?>' + text.split("?>", 1)[1]
    assert_same(loads(strange, tip="hand"), load(ARM, tip="hand"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("change", [lambda chain: chain, identified], ids=["as read", "identified"])
def test_a_robot_survives_new_text(case, change):
    chain = change(load(ARM, **case))
    back = loads(to_urdf(chain, allow_nonphysical=True), tip=chain.topology.tip_name, allow_nonphysical=True)
    assert_same(back, chain)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("change", [lambda chain: chain, identified], ids=["as read", "identified"])
def test_a_robot_survives_an_update_of_its_file(case, change, tmp_path):
    chain = change(load(ARM, **case))
    update_urdf(ARM, chain, tmp_path / "new.urdf", **case, allow_nonphysical=True)
    assert_same(load(tmp_path / "new.urdf", tip=case["tip"], allow_nonphysical=True), chain)
    assert [p.name for p in tmp_path.iterdir()] == ["new.urdf"]


def test_an_update_keeps_the_rest_of_the_file(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_bytes(ARM.read_bytes())
    update_urdf(path, load(path, tip="hand"), path, tip="hand")
    text = path.read_text()
    for kept in (
        "A made-up arm",
        "<!-- weighed -->",
        "<!-- the end -->",
        '<box size="0.1 0.2 0.3"',
        "<gazebo reference",
    ):
        assert kept in text
    robot, source = (pin.buildModelFromUrdf(str(p)) for p in (path, ARM))
    # whole robot, camera and fingers included: the lumped bodies are neither lost nor counted twice
    for a, b in zip(robot.inertias, source.inertias, strict=True):
        assert_close(a.toDynamicParameters(), b.toDynamicParameters())
    assert text.count("<inertial>") == ARM.read_text().count("<inertial>") - 2  # counterweight and hand
    assert 'mass value="20"' in text  # what is bolted to the base is no business of the chain
    lines = text.count("\n")
    update_urdf(path, load(path, tip="hand"), path, tip="hand")
    assert_same(load(path, tip="hand"), load(ARM, tip="hand"))
    assert path.read_text().count("\n") == lines  # the layout does not grow with every update


def test_an_update_adds_inertias_to_a_kinematic_file(tmp_path):
    chain = load(KINEMATICS)
    pi = jnp.asarray([1.0, 0.1, 0, 0.02, 0.1, 0, 0.1, 0, 0, 0.1])
    chain = with_inertial_parameters(chain, jnp.stack([pi, 2 * pi]))
    chain = eqx.tree_at(lambda c: c.friction.viscous, chain, jnp.asarray([0.0, 0.5]))
    update_urdf(KINEMATICS, chain, tmp_path / "new.urdf")
    assert_same(load(tmp_path / "new.urdf"), chain)
    text = (tmp_path / "new.urdf").read_text()
    assert text.count("<inertial>") == 2 and text.count("<dynamics") == 1


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pinocchio_reads_what_is_written(case, tmp_path):
    chain = load(ARM, **case)
    save_urdf(chain, tmp_path / "new.urdf", name="new")
    assert_pinocchio_agrees(chain, pin.buildModelFromUrdf(str(tmp_path / "new.urdf")))


def test_an_axis_beside_the_origin_keeps_frames_and_dynamics(tmp_path):
    """A screw off the link's origin: names keep their poses, and Pinocchio's dynamics are those of the screw."""
    point, w = np.array([0.2, -0.1, 0.3]), np.array([0.0, 0.6, 0.8])
    screw = np.concatenate([w, -np.cross(w, point)])
    pi = np.array([2.0, 0.2, 0.1, -0.1, 0.2, 0.01, 0.3, 0.0, 0.02, 0.25])
    identity = np.eye(3)
    chain = make_chain(
        rotation=[identity, identity],
        translation=[[0, 0, 0.5], [0.4, 0, 0]],
        screw=[screw, [0, 0, 0, 1, 0, 0]],
        inertia=[pi, pi],
        frames={"tool": (0, np.eye(4))},
    )
    save_urdf(chain, tmp_path / "new.urdf")
    model = pin.buildModelFromUrdf(str(tmp_path / "new.urdf"))
    data = model.createData()
    angle, travel = 0.7, 0.2
    pin.forwardKinematics(model, data, np.array([np.cos(angle), np.sin(angle), travel]))
    pin.updateFramePlacements(model, data)
    turned = pin.exp3(angle * w)
    start = np.array([0, 0, 0.5])
    found = data.oMf[model.getFrameId("link1")]
    assert_close(found.rotation, turned)
    assert_close(found.translation, start + point - turned @ point)
    found = data.oMf[model.getFrameId("link2")]
    assert_close(found.translation, start + point - turned @ point + turned @ [0.4 + travel, 0, 0])
    arm = np.eye(4)
    arm[:3, 3] = point - (w @ point) * w  # the axis point nearest the origin
    moved = pin.SE3(arm).inverse().act(pin.Inertia.FromDynamicParameters(pi)).toDynamicParameters()
    assert_close(loads(to_urdf(chain)).inertia[0], moved)
    assert loads(to_urdf(chain)).link_names == ("link1_axis", "link2")


@pytest.mark.parametrize("pitch", [np.pi / 2, -np.pi / 2, np.pi / 2 - 3e-9, np.pi / 2 - 1e-5])
def test_rotations_near_gimbal_lock_are_written_exactly(pitch):
    rng = np.random.default_rng(0)
    for roll, yaw in rng.uniform(-3, 3, (5, 2)):
        rotation = pin.rpy.rpyToMatrix(roll, pitch, yaw)
        chain = make_chain(
            rotation=rotation[None], translation=np.zeros((1, 3)), screw=np.eye(6)[:1], inertia=np.zeros((1, 10))
        )
        assert_close(loads(to_urdf(chain)).rotation[0], rotation, 1e-14)


def test_robots_in_single_precision_are_written(tmp_path):
    half = jax.tree.map(lambda x: x.astype(jnp.float32), identified(load(ARM, lock=LOCK)))
    update_urdf(ARM, half, tmp_path / "new.urdf", lock=LOCK, allow_nonphysical=True)
    text = to_urdf(half, allow_nonphysical=True)
    for back in (loads(text, allow_nonphysical=True), load(tmp_path / "new.urdf", allow_nonphysical=True)):
        np.testing.assert_array_equal(np.asarray(back.inertia, np.float32), half.inertia)
        np.testing.assert_array_equal(np.asarray(back.translation, np.float32), half.translation)
        assert_close(back.rotation, np.asarray(half.rotation, float), 1e-6)
    plain = jax.tree.map(lambda x: x.astype(jnp.float32), load(KINEMATICS))
    assert "jaxdyn" not in to_urdf(plain)  # 0.02 in single precision is still the default


def test_infinite_limits_are_written():
    chain = eqx.tree_at(
        lambda c: (c.limits.position, c.limits.velocity),
        load(ARM, lock=LOCK),
        (jnp.asarray([[-jnp.inf, 1.0], [-1.0, 1.0], [-jnp.inf, jnp.inf], [0.0, 1.0]]), jnp.full(4, jnp.inf)),
    )
    text = to_urdf(chain)
    assert "inf" not in text
    assert_same(loads(text), chain)


def test_massless_inertia_is_written_massless_moment_is_not():
    chain = load(KINEMATICS)
    chain = with_inertial_parameters(chain, chain.inertia.at[0, 4:].set(jnp.asarray([1.0, 0, 1, 0, 0, 1])))
    assert_same(loads(to_urdf(chain), allow_nonphysical=True), chain)
    with pytest.raises(ModelError, match="link 'first': mass 0 kg with first moment 1 kg m"):
        to_urdf(with_inertial_parameters(chain, chain.inertia.at[0, 1].set(1.0)))


def test_three_thousand_links_need_no_recursion():
    parts = [f'<link name="l{i}"/>' for i in range(3000)]
    joint = '<joint name="j{0}" type="fixed"><parent link="l{0}"/><child link="l{1}"/></joint>'
    parts += [joint.format(i, i + 1) for i in range(2998)]
    parts.append('<joint name="j" type="continuous"><parent link="l2998"/><child link="l2999"/></joint>')
    assert loads("<robot>" + "".join(parts) + "</robot>").n == 1


# Every way a file can be wrong.

LIMIT = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
ENDS = '<parent link="a"/><child link="b"/>'
INERTIA = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'


def robot(joint="", links='<link name="a"/><link name="b"/>', kind="revolute", head='name="j"', limit=LIMIT, ends=ENDS):
    return f'<robot name="r">\n{links}\n<joint {head} type="{kind}">{ends}{limit}{joint}</joint>\n</robot>'


def body(inertial):
    return robot(links=f'<link name="a"/>\n<link name="b"><inertial>{inertial}</inertial></link>')


def joints(*pairs):
    names = sorted({name for pair in pairs for name in pair})
    links = "".join(f'<link name="{name}"/>' for name in names)
    joint = '<joint name="{0}{1}" type="continuous"><parent link="{0}"/><child link="{1}"/></joint>'
    return "<robot>" + links + "\n".join(joint.format(*pair) for pair in pairs) + "</robot>"


BAD = {
    "empty": ("  \n", "the document is empty"),
    "malformed": ("<robot>\n  <link name='a'>\n</robot>", r"<text>:3: not well-formed XML at column 3: mismatched tag"),
    "cut off": ("<robot><link", "not well-formed"),
    "doctype": ('<!DOCTYPE r [<!ENTITY a "b">]><robot/>', r"<text>:1: a document type declaration .* is not allowed"),
    "encoding": (b'<?xml version="1.0" encoding="nonsense"?><robot/>', "encoding"),
    "not utf-8": (b"<robot name='\xff'/>", "not well-formed"),
    "too deep": ("<a>" * 200, "nested more than 100 levels"),
    "root": ("<sdf/>", "root element is <sdf>, not <robot>"),
    "xacro": ('<robot xmlns:xacro="x">\n<xacro:arm/></robot>', r"<text>:2: <xacro:arm> .* run xacro"),
    "xacro number": (robot('<origin xyz="${x} 0 0"/>'), "run xacro"),
    "no link": ("<robot/>", "has no <link>"),
    "no name": (robot(head=""), "a joint: <joint> needs the attribute name"),
    "no type": (robot().replace('type="revolute"', ""), "joint 'j': <joint> needs the attribute type"),
    "unknown type": (
        robot(kind="hinge"),
        r"<text>:3: joint 'j': joint type 'hinge' is not supported; use one of rev",
    ),
    "floating beside the root": (
        robot('<origin xyz="0 0 1"/>', kind="floating"),
        r"<text>:3: joint 'j' is floating, but not relative to the origin of the root 'a'",
    ),
    "planar, mimicking": (
        robot('\n<mimic joint="j"/>', kind="planar"),
        r"<text>:4: joint 'j': a planar joint cannot mimic",
    ),
    "no parent": (robot(ends='<child link="b"/>'), "joint 'j' needs <parent"),
    "no child": (robot(ends='<parent link="a"/>'), "joint 'j' needs <child"),
    "unknown link": (
        robot(ends='<parent link="a"/><child link="c"/>'),
        "joint 'j': its child link 'c' is not declared",
    ),
    "two parents elements": (robot('<parent link="a"/>'), "joint 'j': a second <parent>"),
    "link twice": (robot(links='<link name="a"/>\n<link name="a"/>'), r"<text>:3: the link name 'a' is used twice"),
    "joint twice": (joints("ab", "bc").replace('"bc"', '"ab"'), r"<text>:2: the joint name 'ab' is used twice"),
    "two parents": (joints("ac", "bc", "ab"), "link 'c' has two parents, through the joints 'ac' and 'bc'"),
    "loop": (joints("ab", "ba"), "no link is the root, since the joints form a loop: a <- b <- a"),
    "itself": (joints("aa"), "loop: a <- a"),
    "loop apart": (joints("ab", "cd", "dc"), "loop: c <- d <- c"),
    "apart": (joints("ab", "cd"), "the links 'a', 'c' have no parent"),
    "nothing moves": (robot(kind="fixed"), "no joint moves; .* moves freely, pass floating_base=True"),
    "xacro argument": (
        robot('<origin xyz="$(optenv X) 0 0"/>'),
        "run xacro on the file first: xacro FILE > robot.urdf",
    ),
    "endless text": (robot('<origin xyz="' + 100_000 * "x" + ' 0 0"/>'), r"^.{0,700}$"),
    "endless name": (robot(kind=100_000 * "x"), r"^.{0,700}$"),
    "no limit": (robot(limit=""), "joint 'j': a revolute joint requires <limit"),
    "no limit, sliding": (robot(kind="prismatic", limit=""), "joint 'j': a prismatic joint requires <limit"),
    "no effort": (robot(limit='<limit velocity="1"/>'), "joint 'j': <limit> needs the attribute effort"),
    "no velocity": (robot(limit='<limit effort="1"/>'), "joint 'j': <limit> needs the attribute velocity"),
    "negative effort": (robot(limit=LIMIT.replace('effort="1', 'effort="-1')), "-1 is negative"),
    "zero axis": (robot('\n<axis xyz="0 0 0"/>'), r"<text>:4: joint 'j': its axis is zero"),
    "empty axis": (robot("<axis/>"), "joint 'j': <axis> needs the attribute xyz"),
    "two numbers": (robot('<origin xyz="0 0"/>'), r"joint 'j': <origin> xyz='0 0' has 2 numbers, but needs 3"),
    "nan": (robot('<origin xyz="0 nan 0"/>'), "'nan' is not a finite number"),
    "infinite": (robot('<origin rpy="0 inf 0"/>'), "'inf' is not a finite number"),
    "other digits": (robot('<origin rpy="&#65297;&#65298; 0 0"/>'), "'１２' is not a finite number"),  # noqa: RUF001
    "overflow": (robot('<dynamics damping="1e999"/>'), "'1e999' is not a finite number"),
    "text": (robot('<dynamics damping="low"/>'), "<dynamics> damping='low': 'low' is not a finite number"),
    "comma": (robot('<dynamics friction="0,5"/>'), "'0,5' is not a finite number"),
    "underscore": (robot('<dynamics friction="1_0"/>'), "'1_0' is not a finite number"),
    "empty number": (robot('<dynamics friction=""/>'), "has 0 numbers"),
    "quaternion": (robot('<origin quat_xyzw="0 0 0 1"/>'), "quat_xyzw needs URDF 1.1"),
    "width": (robot('<jaxdyn coulomb_velocity="0"/>'), "coulomb_velocity 0 is not positive"),
    "mimic": (robot('<mimic joint="x"/>'), r"<text>:3: joint 'j' mimics 'x', which is not a moving joint"),
    "mimics itself": (robot('<mimic joint="j"/>'), r"<text>:3: joint 'j' mimics itself"),
    "no mass": (body(INERTIA), r"<text>:3: link 'b': <inertial> needs <mass>"),
    "no inertia": (body('<mass value="1"/>'), "link 'b': <inertial> needs <inertia>"),
    "no ixx": (
        body('<mass value="1"/>' + INERTIA.replace("ixx", "jxx")),
        "link 'b': <inertia> needs the attribute ixx",
    ),
    "zero mass": (body('<mass value="0"/>' + INERTIA), "link 'b': mass 0 kg is not positive"),
    "negative mass": (body('<mass value="-2"/>' + INERTIA), "link 'b': mass -2 kg is not positive"),
    "more than any body": (
        body('<mass value="1e300"/>' + INERTIA),
        "link 'b': 1e\\+300 is implausible for a rigid body",
    ),
    "triangle": (
        body('<mass value="1"/>' + INERTIA.replace('izz="1"', 'izz="3"')),
        r":3: link 'b': .* triangle inequality",
    ),
    "indefinite": (
        body('<mass value="1"/>' + INERTIA.replace('ixy="0"', 'ixy="2"')),
        r"link 'b': .* negative principal",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_refused_with_their_place(text, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        loads(text)
    path = tmp_path / "bad.urdf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelError, match=r"bad\.urdf"):
        load(path)


BODY = '<link name="{0}"><inertial><mass value="{1}"/>' + INERTIA + "</inertial></link>"
SLENDER = INERTIA.replace('izz="1"', 'izz="2.08"')  # 1 + 1 < 2.08, by 3.8 %
ODD = {  # the text, the options, what the warning says and what it does not
    "a rounded inertia": (
        body('<mass value="1"/>' + SLENDER),
        {},
        "used unchanged: link 'b': its principal moments",
        "a'",
    ),
    "impossible at the base": (
        robot(links=BODY.format("a", -1) + '<link name="b"/>'),
        {},
        "inconsistent inertias of 'a' have no effect$",
        "taken",
    ),
    "no mass at the base": (
        robot(links=BODY.format("a", 0) + '<link name="b"/>'),
        {},
        "inconsistent inertias of 'a' have no effect$",
        "taken",
    ),
    "no mass on a fixed joint": (
        robot(links='<link name="a"/>' + BODY.format("b", 1) + BODY.format("c", 0)).replace(
            "</robot>", '<joint name="f" type="fixed"><parent link="b"/><child link="c"/></joint></robot>'
        ),
        {},
        "used unchanged: link 'c' has an inertia, but no mass$",
        "'b'",
    ),
    "impossible, but fused to more": (
        robot(links='<link name="a"/>' + BODY.format("b", 3) + BODY.format("c", -1)).replace(
            "</robot>", '<joint name="f" type="fixed"><parent link="b"/><child link="c"/></joint></robot>'
        ),
        {},
        "used unchanged: link 'c': mass -1 kg is not positive$",
        "'b'",
    ),
    "impossible beside the tip": (
        joints("ab", "ac").replace('<link name="c"/>', BODY.format("c", -1)),
        {"tip": "b"},
        "inconsistent inertias of 'c' have no effect$",
        "taken",
    ),
    "limits swapped": (
        robot(limit=LIMIT.replace("-1", "2")),
        {},
        "joint 'j': its lower limit 2 exceeds its upper limit 1; both are ignored$",
        "inertia",
    ),
    "two axes": (
        robot('<axis xyz="0 0 1"/><axis xyz="0 1 0"/>'),
        {},
        "joint 'j' has 2 <axis> elements; the first one is used$",
        "inertia",
    ),
}


@pytest.mark.parametrize(("text", "options", "said", "unsaid"), ODD.values(), ids=ODD)
def test_odd_files_are_read_with_one_warning(text, options, said, unsaid, tmp_path):
    (tmp_path / "odd.urdf").write_text(text)
    with pytest.warns(ModelWarning, match=said) as caught:
        chain = load(tmp_path / "odd.urdf", **options)
    assert len(caught) == 1 and str(caught[0].message).startswith(f"{tmp_path / 'odd.urdf'}: ")
    assert unsaid not in str(caught[0].message).partition("odd.urdf")[2] and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(loads(to_urdf(chain, allow_nonphysical=True), allow_nonphysical=True), chain)


def test_odd_numbers_are_what_they_are_said_to_be():
    with pytest.warns(ModelWarning):
        swapped, twice = loads(ODD["limits swapped"][0]), loads(ODD["two axes"][0])
    np.testing.assert_array_equal(swapped.limits.position, [[-np.inf, np.inf]])
    np.testing.assert_array_equal(twice.screw, [[0, 0, 1, 0, 0, 0]])
    with pytest.warns(ModelWarning):
        fused = loads(ODD["no mass on a fixed joint"][0])
    np.testing.assert_array_equal(fused.inertia[0], [1, 0, 0, 0, 2, 0, 2, 0, 0, 2])


def test_more_than_slightly_wrong_is_refused():
    text = body('<mass value="1"/>' + INERTIA.replace('izz="1"', 'izz="2.36"'))  # by 15.3 %
    with pytest.raises(ModelError, match=r":3: link 'b': .* triangle inequality .* or pass allow_nonphysical=True"):
        loads(text)


def test_blank_lines_above_the_declaration_are_accepted():
    head = '\n\n <?xml version="1.0"?>\n'
    for text in (head + robot(), (head + robot()).encode()):
        assert loads(text).joint_names == ("j",)
    with pytest.raises(ModelError, match="<text>:6: joint 'j': joint type"):
        loads(head + robot(kind="hinge"))


def test_the_robot_that_the_bad_files_spoil_is_read():
    assert loads(robot()).joint_names == ("j",)


@pytest.mark.parametrize("name", ["zero mass", "negative mass", "triangle", "indefinite"])
def test_nonphysical_inertias_are_read_on_request(name):
    chain = loads(BAD[name][0], allow_nonphysical=True)
    assert np.any(chain.inertia[0])
    assert_same(loads(to_urdf(chain, allow_nonphysical=True), allow_nonphysical=True), chain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tip": "right_finger"},
            r"gripper_arm.urdf:\d+: joint 'right' mimics 'left', which does not move the tip; lock",
        ),
        ({"floating_base": "elbow"}, "a joint is already called 'elbow'; choose another name"),
        (
            {"floating_base": "hull", "lock": {"hull_wx": 0.0}},
            "'hull_wx', a part of the free joint 'hull', which cannot be locked",
        ),
        ({"lock": {"elbo": 0.0}}, "unknown joint 'elbo' in lock; the joints are bolt, rail"),
        ({"lock": {"elbow": 2.3}}, "joint 'elbow' is locked at 2.3, outside its limits 0 to 2.2"),
        ({"lock": {"left": 0.04, "right": 0.2}}, "joint 'right' is locked at 0.2, outside"),
        ({"lock": {"roll": float("nan")}}, "lock contains nan for joint 'roll'"),
        ({"tip": "finger"}, "unknown link 'finger' in tip; the links are world, pedestal"),
        ({"tip": "pedestal"}, "no joint moves between the root 'world' and the tip 'pedestal'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ModelError, match=message):
        load(ARM, **options)


def test_a_locked_mimic_outside_its_limits_is_refused():
    text = ARM.read_text().replace('multiplier="2"', 'multiplier="9"')
    with pytest.raises(ModelError, match=r"'right' is locked at 0.271 \(it mimics a locked joint\), outside"):
        loads(text, lock=LOCK)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        load(tmp_path / "none.urdf")
    with pytest.raises(ModelError, match="this is a folder"):
        load(tmp_path)
    with pytest.raises(ModelError, match="there is no such file"):
        update_urdf(tmp_path / "none.urdf", load(KINEMATICS), tmp_path / "new.urdf")


def test_entities_are_never_expanded(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for declaration in (f'<!ENTITY x SYSTEM "{secret}">', '<!ENTITY x "y"><!ENTITY z "&x;&x;&x;">'):
        with pytest.raises(ModelError, match="DOCTYPE") as caught:
            loads(f"<!DOCTYPE robot [{declaration}]>\n<robot name='&x;'/>")
        assert "secret'" not in str(caught.value)
    with pytest.raises(ModelError, match="DOCTYPE"):
        loads('<!DOCTYPE robot SYSTEM "robot.dtd"><robot/>')
    with pytest.raises(ModelError, match="undefined entity"):
        loads("<robot name='&x;'/>")


def helical(chain):
    return eqx.tree_at(lambda c: c.screw, chain, chain.screw.at[0].set(jnp.asarray([0, 0, 1, 0, 0, 0.1])))


def unfinished(chain):
    return with_inertial_parameters(chain, chain.inertia.at[0, 0].set(jnp.nan))


UNWRITABLE = {
    "helical": (helical, "joint 'a' is helical"),
    "nan": (unfinished, "the inertia of link 'first' is .* not finite"),
    "batch": (lambda chain: eqx.tree_at(lambda c: c.inertia, chain, chain.inertia[None]), "the chain is a batch"),
}


@pytest.mark.parametrize(("change", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_nothing_is_left_when_writing_fails(change, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        save_urdf(change(load(KINEMATICS)), tmp_path / "new.urdf")
    assert not list(tmp_path.iterdir())


def test_names_that_xml_cannot_hold_are_refused():
    chain = make_chain(
        rotation=np.eye(3)[None],
        translation=np.zeros((1, 3)),
        screw=np.eye(6)[:1],
        inertia=np.zeros((1, 10)),
        topology=Topology.serial(1, link_names=["a\x01"]),
    )
    with pytest.raises(ModelError, match="not well-formed"):
        to_urdf(chain)
    chain = eqx.tree_at(lambda c: c.armature, load(KINEMATICS), jnp.ones(2))
    assert_same(loads(to_urdf(chain, name="<&\"'>")), chain)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match="cannot be written"):
        save_urdf(load(KINEMATICS), tmp_path / "none" / "new.urdf")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="cannot be written"):
        save_urdf(load(KINEMATICS), tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: eqx.tree_at(lambda x: x.translation, c, c.translation + 1e-6),
            "translation of 'rail' differs",
        ),
        (lambda c: eqx.tree_at(lambda x: x.frame_poses, c, c.frame_poses * 2), "frame_poses of 'pedestal' differs"),
        (lambda c: eqx.tree_at(lambda x: x.limits.effort, c, c.limits.effort + 1), r"limits\.effort of 'rail' differs"),
        (lambda c: load(KINEMATICS), "the file has the moving joints rail, .* but the chain has a, b"),
        (
            lambda c: load(ARM, lock={"pan": 0.1, "left": 0.03}),
            "frame_poses of 'camera' differs between the chain and the file",
        ),
        (unfinished, "not finite"),
    ],
)
def test_update_refuses_what_it_would_lose(change, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        update_urdf(ARM, change(load(ARM, lock=LOCK)), tmp_path / "new.urdf", lock=LOCK)
    assert not list(tmp_path.iterdir())


def test_update_refuses_a_frame_it_does_not_know(tmp_path):
    chain = load(ARM, lock=LOCK)
    with pytest.raises(ModelError, match="does not contain the chain's frame 'camera'"):
        update_urdf(ARM, chain, tmp_path / "new.urdf", tip="hand")


@pytest.mark.parametrize("name", ["panda", "tx40", "ur10", "ur10e"])
def test_published_robots_are_read(name):
    path = SHARED_DATA / name / f"{name}_kinematics.urdf"
    if not path.exists():
        pytest.skip(f"{path.name} is not here; set JAXDYN_DATA to the folder of the logs")
    chain = load(path)
    assert chain.n == (7 if name == "panda" else 6) and not np.any(chain.inertia)
    assert_pinocchio_agrees(chain, pin.buildModelFromUrdf(str(path)))
    assert_same(loads(to_urdf(chain)), chain)


def test_inertias_that_no_body_has_are_refused(tmp_path):
    chain = load(ARM, lock=LOCK)
    broken = chain.inertia.at[0, 4].set(9.0).at[2, 0].set(-1.0)
    impossible = with_inertial_parameters(chain, broken)
    first, third = chain.link_names[0], chain.link_names[2]
    message = rf"link '{first}': its principal moments .* violate the triangle .*\(also for {third}\).*allow_non"
    for write in (
        lambda: update_urdf(ARM, impossible, tmp_path / "new.urdf", lock=LOCK),
        lambda: save_urdf(impossible, tmp_path / "new.urdf"),
        lambda: to_urdf(impossible),
    ):
        with pytest.raises(ModelError, match=message):
            write()
    assert list(tmp_path.iterdir()) == []
    update_urdf(ARM, impossible, tmp_path / "new.urdf", lock=LOCK, allow_nonphysical=True)
    assert_close(load(tmp_path / "new.urdf", allow_nonphysical=True).inertia, broken)


def test_the_published_inertias_of_the_panda_are_read(tmp_path):
    path = SHARED_DATA / "panda" / "panda_phat.urdf"
    if not path.exists():
        pytest.skip(f"{path.name} is not here; set JAXDYN_DATA to the folder of the logs")
    chain = load(path)
    assert_pinocchio_agrees(chain, pin.buildModelFromUrdf(str(path)))
    update_urdf(path, identified(chain), tmp_path / "new.urdf", allow_nonphysical=True)
    assert_same(load(tmp_path / "new.urdf", allow_nonphysical=True), identified(chain))


SHORT = """<robot name="r">
  <link name="base"/>
  <link name="arm"><inertial><origin xyz="0.0123 -0.4 0.07"/><mass value="2.275"/>
    <inertia ixx="0.0123" ixy="0.0002" iyy="0.0217" ixz="0" iyz="-0.0003" izz="0.0114"/></inertial></link>
  <joint name="j" type="revolute"><parent link="base"/><child link="arm"/><origin xyz="0.3415 0 -0.1807" rpy="0.3 -1.2 2.7"/>
    <axis xyz="0 0 1"/><limit lower="-2.967" upper="2.967" velocity="1.71" effort="320.5"/><dynamics damping="0.15"/></joint>
</robot>"""


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_numbers_are_written_by_as_few_digits_as_they_have(dtype):
    chain = jax.tree.map(lambda x: x.astype(dtype), loads(SHORT))
    text = to_urdf(chain)
    for numbers in (
        *('xyz="0.3415 0.0 -0.1807"', 'rpy="0.3 -1.2 2.7"', 'lower="-2.967"', 'effort="320.5"', 'damping="0.15"'),
        *('xyz="0.0123 -0.4 0.07"', 'mass value="2.275"'),
    ):
        assert numbers in text
    back = jax.tree.map(lambda x: x.astype(dtype), loads(text))
    for ours, theirs in zip(jax.tree.leaves(chain), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(ours, theirs)


BROKEN = """<robot name="r">
  <link name="base"><inertial><mass value="1"/></inertial></link>
  <link name="arm"><inertial><mass value="1"/><inertia ixx="0.1" ixy="0" iyy="0.1" ixz="0" iyz="0" izz="0.9"/></inertial></link>
  <link name="tool"><inertial><mass value="1"/></inertial></link>
  <joint name="a" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
  <joint name="b" type="continuous"><parent link="arm"/><child link="tool"/><axis xyz="0 1 0"/></joint>
</robot>"""


def test_only_inertials_that_count_are_checked_and_all_can_be_ignored(tmp_path):
    with pytest.raises(ModelError, match=r":3: link 'arm': .* load only the kinematics with ignore_inertials=True"):
        loads(BROKEN)
    with pytest.raises(ModelError, match="link 'tool': <inertial> needs <inertia>"):
        loads(BROKEN, allow_nonphysical=True)
    with pytest.warns(ModelWarning, match="inconsistent inertias of 'base', 'tool' have no effect"):
        loads(BROKEN.replace('izz="0.9"', 'izz="0.1"'), tip="arm")
    chain = loads(BROKEN, ignore_inertials=True)
    assert chain.n == 2 and not np.any(chain.inertia)
    (tmp_path / "broken.urdf").write_text(BROKEN)
    known = with_inertial_parameters(chain, jnp.tile(jnp.asarray([1.0, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.1]), (2, 1)))
    update_urdf(tmp_path / "broken.urdf", known, tmp_path / "new.urdf")
    with pytest.warns(ModelWarning, match="inertias of 'base' have no effect"):
        assert_same(load(tmp_path / "new.urdf"), known)
    with pytest.raises(ModelError, match="ignore_inertials= is for URDF files"):
        loads("<mujoco/>", ignore_inertials=True)


def test_a_limit_beyond_any_robots_is_none():
    text = MASSLESS.replace(
        '"b" type="continuous">', '"b" type="revolute"><limit lower="-1e16" upper="3" velocity="1e13" effort="9"/>'
    )
    limits = loads(text, ignore_inertials=True).limits
    np.testing.assert_array_equal(limits.position[1], [-np.inf, 3.0])
    assert limits.velocity[1] == np.inf and limits.effort[1] == 9.0


def test_versions_1_1_and_1_2_are_read():
    recent = lambda version, text: text.replace('<robot name="r">', f'<robot name="r" version="{version}">')
    turn = robot('<origin xyz="1 2 3" {}/>')
    turned = loads(recent("1.1", turn.format('quat_xyzw="0.6 0 0 1.6"')))  # not of unit length
    angle = float(2 * np.arctan2(0.6, 1.6))
    assert_close(turned.rotation[0], loads(turn.format(f'rpy="{angle!r} 0 0"')).rotation[0])
    np.testing.assert_array_equal(turned.translation[0], [1, 2, 3])
    for wrong in ('quat_xyzw="0 0 0 1" rpy="0 0 0"', 'quat_xyzw="0 0 0 0"', 'quat_xyzw="0 0 1"'):
        with pytest.raises(ModelError, match="quat_xyzw"):
            loads(recent("1.1", turn.format(wrong)))
    limits = loads(recent("1.2", robot(limit='<limit lower="-1" upper="2" acceleration="3" jerk="4"/>'))).limits
    np.testing.assert_array_equal(limits.position[0], [-1, 2])
    assert limits.velocity[0] == limits.effort[0] == np.inf
    with pytest.raises(ModelError, match="needs the attribute lower"):
        loads(recent("1.2", robot(limit='<limit effort="1" velocity="1"/>')))
    with pytest.raises(ModelError, match="needs the attribute effort"):
        loads(recent("1.1", robot(limit='<limit lower="-1" upper="2" velocity="1"/>')))


def test_xacro_elements_are_ignored_where_nothing_is_read():
    visual = '<visual><xacro:paint/><geometry><xacro:scale/><box size="1 1 1"/></geometry></visual>'
    links = f'<link name="a">{visual}</link><link name="b"/><gazebo><xacro:plugin/></gazebo>'
    text = robot(links=links).replace("<robot ", '<robot xmlns:xacro="x" ')
    assert_same(loads(text), loads(robot()))
    for inside in ("<inertial><xacro:cylinder/></inertial>", "<xacro:inertial/>"):
        with pytest.raises(ModelError, match="run xacro"):
            loads(text.replace('<link name="b"/>', f'<link name="b">{inside}</link>'))


MASSLESS = """<robot name="massless"><link name="base"/>
  <link name="body">
    <inertial><mass value="2"/><inertia ixx="0.1" iyy="0.2" izz="0.2" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="tool"/>
  <joint name="a" type="continuous"><parent link="base"/><child link="body"/><axis xyz="0 0 1"/></joint>
  <joint name="b" type="continuous"><parent link="body"/><child link="tool"/><axis xyz="0 1 0"/></joint>
</robot>"""


def test_motions_that_move_no_mass_are_warned_of_by_the_names_of_their_joints():
    whole = "mass matrix is singular and forward dynamics is not finite, since a motion of {} moves no mass"
    with pytest.warns(ModelWarning, match=whole.format("'b'")):
        chain = loads(MASSLESS)
    m = np.asarray(mass_matrix(chain, jnp.zeros(2)))
    assert m[0, 0] == pytest.approx(0.2) and np.all(m[1] == 0)
    with pytest.warns(ModelWarning, match=whole.format("'root', 'a'")):
        chain = loads(MASSLESS, floating_base="root", lock={"b": 0.0})
    np.testing.assert_array_equal(np.linalg.matrix_rank(mass_matrix(chain, neutral_configuration(chain))), 6)
    with pytest.warns(ModelWarning, match=whole.format("'root'")):  # a free body of no mass, as scenery often is
        loads('<robot name="tray"><link name="tray"/></robot>', floating_base="root")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loads(MASSLESS, lock={"b": 0.0})
        loads(MASSLESS.replace('"0 1 0"/>', '"0 1 0"/><jaxdyn armature="0.1"/>'))
        loads(MASSLESS, ignore_inertials=True)


def test_gravity_survives_in_files(tmp_path):
    source = tmp_path / "arm.urdf"
    source.write_text(robot())
    pulls = (0.0, 9.81, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, -9.81)
    for pull in pulls:
        chain = load(source, gravity=pull)
        text = to_urdf(chain)
        assert ("gravity" in text) == (pull[2] == 0)
        np.testing.assert_array_equal(loads(text).gravity, pull)
        np.testing.assert_array_equal(loads(text, gravity=(1.0, 2.0, 3.0)).gravity, [1, 2, 3])
        update_urdf(source, chain, source)
        np.testing.assert_array_equal(load(source).gravity, pull)
    with pytest.raises(ModelError, match="gravity='1 2' has 2 numbers"):
        loads(robot().replace("<link", '<jaxdyn gravity="1 2"/><link', 1))


def limits(text: str) -> str:
    return f"<limit {text}/>"


TAIL = (
    '<link name="c"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>'
    '<joint name="tail" type="continuous"><parent link="b"/><child link="c"/></joint>'
)
ZEROS = 'lower="0" upper="0" effort="0" velocity="0"'


@pytest.mark.parametrize(
    ("kind", "limit", "position", "velocity", "effort", "named"),
    [
        ("revolute", ZEROS, (-np.inf, np.inf), np.inf, np.inf, "position, velocity, effort"),
        ("prismatic", ZEROS, (-np.inf, np.inf), np.inf, np.inf, "position, velocity, effort"),
        ("revolute", 'effort="0" velocity="0"', (-np.inf, np.inf), np.inf, np.inf, "position, velocity, effort"),
        ("revolute", 'effort="9" velocity="2"', (-np.inf, np.inf), 2, 9, "position"),
        ("revolute", 'lower="-1" upper="1" effort="9" velocity="0"', (-1, 1), np.inf, 9, "velocity"),
        ("revolute", 'lower="-1" upper="1" effort="0" velocity="0"', (-1, 1), np.inf, 0, "velocity"),
        ("continuous", 'effort="0" velocity="0"', (-np.inf, np.inf), np.inf, 0, "velocity"),
        ("revolute", 'lower="-1" upper="1" effort="0" velocity="2"', (-1, 1), 2, 0, None),  # without a motor
        ("revolute", 'lower="0.5" upper="0.5" effort="9" velocity="2"', (0.5, 0.5), 2, 9, None),
        ("fixed", ZEROS, None, None, None, None),
    ],
)
def test_limits_that_allow_no_motion_are_read_as_none(kind, limit, position, velocity, effort, named):
    text = robot(kind=kind, limit=limits(limit)).replace("</robot>", f"{TAIL}</robot>")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chain = loads(text)
    said = [str(w.message) for w in caught if "limits of zero" in str(w.message)]
    assert len(said) == (named is not None)
    assert named is None or f"are read as no limits ({named} of 'j')" in said[0]
    if kind != "fixed":
        np.testing.assert_array_equal(chain.limits.position[0], position)
        assert chain.limits.velocity[0] == velocity and chain.limits.effort[0] == effort


def test_a_lock_needs_no_limits():
    text = robot(limit=limits(ZEROS)).replace("</robot>", f"{TAIL}</robot>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loads(text, lock={"j": 0.4}).joint_names == ("tail",)
