"""Valid files, small ones, of every kind that is read: what the damage is done to."""

import json
from pathlib import Path

import numpy as np

NAMES = ("turn", "lift")
ROWS = 120
_LIMIT = '<limit lower="-2.9" upper="2.9" velocity="3" effort="90"/>'
ARM = f"""<?xml version="1.0"?>
<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0.02 0.1" rpy="0 0 0"/><mass value="3"/>
    <inertia ixx="0.04" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.02"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.2 0.01 0"/><mass value="1.5"/>
    <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.02"/></inertial></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/>{_LIMIT}</joint>
  <joint name="lift" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.3" rpy="0.1 0 0"/>
    <axis xyz="0 1 0"/>{_LIMIT}<dynamics damping="0.3" friction="0.5"/></joint>
</robot>
"""
TREE = """<robot name="tree">
  <link name="base"><inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="a"><inertial><origin xyz="0.1 0 0"/><mass value="1"/>
    <inertia ixx="0.1" ixy="0.01" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
    <visual><origin xyz="0 0 1"/><geometry><box size="1 2 3"/></geometry><material name="m"/></visual>
    <collision><geometry><cylinder radius="0.1" length="1"/></geometry></collision></link>
  <link name="b"><inertial><mass value="0.5"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
    <visual><geometry><mesh filename="package://p/b.stl" scale="1 1 1"/></geometry></visual></link>
  <link name="c"><inertial><mass value="0.4"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <link name="frame"/>
  <joint name="ja" type="continuous"><origin xyz="0 0 1" rpy="0.3 0.2 0.1"/><parent link="base"/><child link="a"/>
    <axis xyz="1 2 2"/></joint>
  <joint name="jb" type="prismatic"><parent link="a"/><child link="b"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="0.4" velocity="1" effort="9"/></joint>
  <joint name="jc" type="revolute"><parent link="a"/><child link="c"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="0.4" velocity="1" effort="9"/><mimic joint="jb" multiplier="2" offset="0.1"/>
    <jaxdyn armature="0.1" offset="0.2" stiffness="3" rest_position="0.1"/></joint>
  <joint name="jf" type="fixed"><origin xyz="0.1 0 0"/><parent link="c"/><child link="frame"/></joint>
</robot>
"""
LEG = """<mujoco model="leg"><compiler angle="radian" autolimits="true"/><option gravity="0 0 -9.81" timestep="0.002">
<flag contact="disable"/></option>
<default><joint damping="0.1"/><default class="light"><geom density="500"/></default></default>
<asset><material name="grey" rgba=".5 .5 .5 1"/></asset>
<worldbody><light pos="0 0 3"/><body name="thigh" pos="0 0 1" quat="1 0 0 0">
 <joint name="hip" type="hinge" axis="0 1 0" range="-1 1" armature="0.01" frictionloss="0.2"/>
 <geom name="g1" type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05"/>
 <body name="shank" pos="0 0 -0.4" euler="0 0.1 0"><joint name="knee" type="slide" axis="0 0 1" stiffness="2" springref="0.1"/>
  <inertial pos="0 0 -0.1" mass="1.5" diaginertia="0.01 0.02 0.02"/><geom class="light" type="box" size="0.1 0.1 0.2"/>
  <site name="toe" pos="0 0 -0.2"/></body></body></worldbody>
<actuator><motor name="m" joint="hip" gear="10" ctrlrange="-2 2"/></actuator></mujoco>
"""
TRUNK = """<mujoco><worldbody><body name="trunk" pos="1 2 3" euler="10 20 30"><freejoint name="root"/>
 <geom size="0.1 0.2 0.3" type="box"/><body name="arm" pos="-0.1 0.2 0.3"><joint type="ball" name="shoulder"/>
 <geom size="0.1 0.2 0.03" type="box" mass="2"/><body name="hand" pos="0 0 0.3"><joint name="wrist" axis="1 0 0"/>
 <geom size="0.05 0.1" type="capsule"/></body></body></body></worldbody></mujoco>
"""
SETUP = {
    "separator": ",",
    "header": True,
    "t": {"column": "t", "unit": "s"},
    "q": {"columns": ["q1", "q2"], "unit": "rad", "sign": [1, -1], "offset": [0.0, 0.5]},
    "tau": {"columns": "tau*", "unit": "Nm", "scale": 2.0},
}
OF_CURRENTS = {
    "skip_lines": 0,
    "decimal": ".",
    "t": {"column": 1},
    "q": {"columns": [2, 3], "unit": ["deg", "rad"]},
    "i": {"columns": ["tau1", "tau2"], "unit": "mA", "gains": [14.8, -3.0]},
}
OF_BAG = {"topic": "/joint_states", "joints": ["turn", "lift"], "q": {"sign": [1, -1]}, "i": {"gains": [2.0, 3.0]}}
SETTINGS = {
    "model": "arm.urdf",
    "log": ["log0.csv"],
    "consistent": False,
    "cutoff": 9.0,
    "terms": ["viscous"],
    "choose": [],
}
SETTINGS |= {"rows": [":"], "holdout": 0.4, "lock": {}, "term": [{"kind": "Cable", "joints": [1], "powers": [1, 2]}]}


def motion() -> dict[str, np.ndarray]:
    """Time, positions, velocities and torques of two joints."""
    t = np.arange(ROWS) / 50
    w = np.array([3.0, 5.0])
    x = t[:, None] * w
    return {"t": t, "q": np.sin(x), "qd": w * np.cos(x), "tau": 4 * np.sin(x + 1) + 2}


def columns() -> dict[str, np.ndarray]:
    """The same, a column each."""
    found = {}
    for kind, block in motion().items():
        found |= {kind: block} if block.ndim == 1 else {f"{kind}{k + 1}": block[:, k] for k in range(block.shape[1])}
    return found


def make(folder: Path, programs: bool = True) -> None:
    """Write all of them, the exported function only where it is wanted: it takes a second."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("arm.urdf", ARM), ("tree.urdf", TREE), ("leg.xml", LEG), ("trunk.xml", TRUNK)):
        (folder / name).write_text(text)
    _logs(folder)
    _models(folder, programs)
    from .trees import as_toml

    for name, tree in (("setup", SETUP), ("currents", OF_CURRENTS), ("bag", OF_BAG), ("settings", SETTINGS)):
        (folder / f"{name}.toml").write_text(as_toml(tree))
    (folder / "made").touch()


def _logs(folder: Path) -> None:
    from .tables import SEPARATORS, archive_of

    table = columns()
    for k, separator in enumerate(SEPARATORS):
        rows = [
            separator.join(table),
            *(separator.join(f"{x:.9g}" for x in row) for row in zip(*table.values(), strict=True)),
        ]
        (folder / f"log{k}.csv").write_text("\n".join(rows) + "\n")
    (folder / "log.npz").write_bytes(archive_of(table))
    (folder / "blocks.npz").write_bytes(archive_of(motion(), compressed=True))
    try:
        import pyarrow as arrow
        from pyarrow import parquet

        parquet.write_table(arrow.table(table), folder / "log.parquet")
        block = {k: x if x.ndim == 1 else arrow.array(x.tolist()) for k, x in motion().items()}
        parquet.write_table(arrow.table(block), folder / "blocks.parquet")
    except ImportError:
        pass
    try:
        import rosbags  # noqa: F401
    except ImportError:
        return
    from ..bag_files import write_bag

    move = motion()
    messages = [
        ("/joint_states", 10**18 + round(1e9 * t), NAMES, q, qd, tau)
        for t, q, qd, tau in zip(move["t"], move["q"], move["qd"], move["tau"], strict=True)
    ]
    for kind, name in (("ros1", "run.bag"), ("ros2", "run"), ("mcap", "run.mcap")):
        if not (folder / name).exists():
            write_bag(folder / name, messages, kind)


def _models(folder: Path, programs: bool) -> None:
    import jax.numpy as jnp

    import jaxdyn
    from jaxdyn.trajectory.policy import write_progress

    arm, tree = jaxdyn.io.loads(ARM), jaxdyn.io.loads(TREE)
    jaxdyn.save_model(arm, folder / "arm.eqx", {"from": "arm.urdf"})
    jaxdyn.save_model(tree, folder / "tree.eqx")
    carry = {"gain": jnp.linspace(0.0, 1.0, 6).reshape(2, 3), "count": jnp.asarray(3)}
    write_progress(folder / "policy.bin", carry, {"cost": [2.0, 1.0], "gradient": [0.1, 0.2]}, 0)
    r = np.triu(np.random.default_rng(0).normal(size=(2, 5, 5)))
    factors = jaxdyn.identification.BlockFactors(r[None], np.array([[60, 60]]), np.zeros(1, int))
    jaxdyn.identification.save_factors(folder / "factors.npz", factors)
    numbers = {
        "factors": [1.0, 1.1],
        "covariance": [[0.1, 0.0], [0.0, 0.1]],
        "gains": [2.0, 2.2],
        "determined": [True, False],
    }
    rest = {"payload": [1.0] + [0.0] * 9, "payload_torque": [1.0, 2.0], "noise": [0.1, 0.1], "common": 1.05}
    (folder / "gains.json").write_text(json.dumps({**numbers, **rest, "common_deviation": 0.1, "notes": ["a note"]}))
    try:
        import flatbuffers  # noqa: F401
    except ImportError:
        return
    if not programs:
        return
    jaxdyn.deployment.export_function(
        lambda chain, q: chain.inertia[:, 0] * q, arm, np.zeros(2), path=folder / "function.jaxdyn"
    )
