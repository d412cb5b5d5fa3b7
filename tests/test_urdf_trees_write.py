"""Trees, floating bases, planar and mimic joints written as URDF and into the file they came from, and what is refused."""

import dataclasses
from operator import attrgetter

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import random_inertia
from jaxdyn import Coupling, Friction, JointLimits, ModelError, Topology, Transmission, make_chain, save_urdf
from jaxdyn.io import load, loads, to_urdf, update_urdf
from jaxdyn.model import with_leaves
from test_urdf import ARM, assert_close, assert_pinocchio_agrees, assert_same
from test_urdf_trees import FLOATING, PLANAR, SPRUNG

pin = pytest.importorskip("pinocchio")

TREES = {
    "tree": (ARM.read_text(), {"lock": {"left": 0.03}}),
    "tree and mimic": (ARM.read_text(), {}),
    "mimic ignored": (ARM.read_text(), {"ignore_mimic": True}),
    "on a floating base": (ARM.read_text(), {"floating_base": True}),
    "planar": (PLANAR, {}),
    "floating in the file": (FLOATING, {}),
    "springs": (SPRUNG, {}),
}
DRIVES = ("armature", "friction.viscous", "friction.coulomb", "friction.offset", "friction.coulomb_velocity")
DRIVES += ("springs.stiffness", "springs.rest_position")


def changed(chain):
    """Other inertias and drives, as a URDF can hold them: nothing between the parts of a joint, one drive for all parts."""
    rng = np.random.default_rng(3)
    bodies = np.asarray(chain.inertia).any(1)
    inertia = np.where(bodies[:, None], [random_inertia(rng) for _ in range(chain.n)], 0.0)
    parts = {i for joint in chain.joints if joint.size > 1 for i in range(chain.n)[joint.links]}
    parts |= {i for i, name in enumerate(chain.joint_names) if name in ("p_x", "p_y", "p")}
    values = {name: rng.uniform(0.1, 1, chain.n) for name in DRIVES}
    for x in values.values():
        x[list(parts)] = 0.5
    return with_leaves(chain, {name: jnp.asarray(x) for name, x in {"inertia": inertia, **values}.items()})


@pytest.mark.parametrize(("text", "options"), TREES.values(), ids=TREES)
@pytest.mark.parametrize("change", [lambda chain: chain, changed], ids=["as read", "changed"])
def test_trees_survive_new_text(text, options, change):
    chain = change(loads(text, **options))
    # new text has the parts of a planar joint, which is then no longer known as one joint
    free = tuple(joint for joint in chain.topology.compound_joints if joint[1] != "planar")
    expected = dataclasses.replace(chain, topology=dataclasses.replace(chain.topology, compound_joints=free))
    assert_same(loads(to_urdf(chain), allow_nonphysical=True), expected)


@pytest.mark.parametrize(("text", "options"), TREES.values(), ids=TREES)
@pytest.mark.parametrize("change", [lambda chain: chain, changed], ids=["as read", "changed"])
def test_trees_survive_an_update_of_their_file(text, options, change, tmp_path):
    source, new = tmp_path / "old.urdf", tmp_path / "new.urdf"
    source.write_text(text)
    read = load(source, **options)
    chain = change(read)
    if options.get("floating_base"):  # it has no element that could hold a drive
        for name in DRIVES:
            values = attrgetter(name)(chain).at[:6].set(attrgetter(name)(read)[:6])
            chain = with_leaves(chain, {name: values})
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


def screws(n, frames=None, compound_joints=(), **changes):
    chain = make_chain(
        rotation=np.tile(np.eye(3), (n, 1, 1)),
        translation=np.zeros((n, 3)),
        screw=np.eye(6)[np.arange(n) % 6],
        inertia=[*np.zeros((n - 1, 10)), [1, 0, 0, 0, 1, 0, 1, 0, 0, 1]],
        frames=frames,
        topology=Topology.serial(n, compound_joints=compound_joints),
    )
    return dataclasses.replace(chain, **changes)


def coupled(matrix, offset=None):
    n = len(matrix)
    return screws(
        n, coupling=Coupling(jnp.asarray(matrix, float), jnp.asarray(np.zeros(n) if offset is None else offset))
    )


def free_body(**changes):
    return dataclasses.replace(screws(6, compound_joints=[(0, "free")]), **changes)


def geared(n):
    one = jnp.ones(1)
    return Transmission(jnp.eye(n)[1:2] * 50.0, one, Friction(one, one, one))


UNWRITABLE = {
    "spherical": (lambda: screws(3, compound_joints=[(0, "spherical")]), "joint 'joint1' is spherical"),
    "transmission": (lambda: screws(2, transmission=geared(2)), "has a transmission .it drives 'joint2'., which"),
    "base pose": (lambda: screws(2, base_pose=jnp.eye(4)), "has a base_pose, which URDF cannot represent"),
    "two masters": (
        lambda: coupled([[1, 0], [0, 1], [1, 1]]),
        "joint 'joint3' follows 'joint1', 'joint2'; .* only one joint",
    ),
    "no master": (lambda: coupled([[1, 0], [0, 2]]), "coordinate 2 of the coupling is not the position of a joint"),
    "offset master": (
        lambda: coupled([[1.0], [1.0]], [0.1, 0.2]),
        "coordinate 1 of the coupling is not the position of a joint",
    ),
    "order": (lambda: coupled([[0, 1], [1, 0]]), "not in the order of their joints"),
    "limits": (
        lambda: free_body(limits=JointLimits([(-1.0, 1.0)] * 6, jnp.ones(6), jnp.ones(6))),
        "the free joint 'joint1' has limits",
    ),
    "drives": (lambda: free_body(armature=jnp.arange(6.0)), "parts of the free joint 'joint1' differ in armature"),
    "inertia": (lambda: free_body(inertia=jnp.ones((6, 10))), "the links before 'link6' have inertia"),
    "frame of a part": (
        lambda: screws(6, compound_joints=[(0, "free")], frames={"tool": (2, np.eye(4))}),
        "frame 'tool' is attached to an intermediate link of the free joint",
    ),
}


@pytest.mark.parametrize(("build", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_trees_that_cannot_be_written_are_refused(build, message, tmp_path):
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
    return lambda chain: with_leaves(chain, {name: attrgetter(name)(chain).at[0].set(value)})


REFUSED_UPDATES = {
    "drive of the base": (
        ARM.read_text(),
        {"floating_base": True},
        set_first("armature", 1.0),
        {},
        "armature of 'float",
    ),
    "drive of a part": (
        FLOATING,
        {},
        set_first("armature", 1.0),
        {},
        "armature of 'free_wx' differs between the chain and the file",
    ),
    "inertia of a part": (
        FLOATING,
        {},
        set_first("inertia", 1.0),
        {},
        "internal to a joint with several degrees of freedom but has inertia",
    ),
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
        "only the chain has joints that mimic",
    ),
    "mimics not ignored": (
        ARM.read_text(),
        {"ignore_mimic": True},
        None,
        {"ignore_mimic": False},
        "only the file has",
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
        "coupling of 'right' differs between the chain and the file",
    ),
    "spring": (SPRUNG, {}, lambda c: dataclasses.replace(c, base_pose=jnp.eye(4)), {}, "has a base_pose"),
}


@pytest.mark.parametrize(
    ("text", "options", "change", "others", "message"), REFUSED_UPDATES.values(), ids=REFUSED_UPDATES
)
def test_updates_that_the_file_cannot_hold_are_refused(text, options, change, others, message, tmp_path):
    source = tmp_path / "old.urdf"
    source.write_text(text)
    chain = load(source, **options)
    with pytest.raises(ModelError, match=message):
        update_urdf(source, chain if change is None else change(chain), tmp_path / "new.urdf", **{**options, **others})
    assert [p.name for p in tmp_path.iterdir()] == ["old.urdf"]
