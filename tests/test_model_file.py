"""Models as files: every kind of chain back to the bit, in another process too, and what is said of files that are no good."""

import hashlib
import io
import json
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import random_chain, random_mechanism
from jaxdyn import ModelError, ModelWarning, load_model, save_model
from jaxdyn.io import model_about
from jaxdyn.io.model_file import checksum

TESTS = ROOT / "tests"
CHAINS = {
    "serial": lambda: random_chain(3),
    "tree with mimic joints, quaternions and a transmission": lambda: random_mechanism(1),
    "tree": lambda: random_mechanism(2, free=False, coupled=False),
    "of a file": lambda: jaxdyn.load(TESTS / "data" / "gripper_arm.urdf", floating_base=True),
    "base pose, float32": lambda: jax.tree.map(
        lambda x: x.astype(jnp.float32), eqx.tree_at(lambda c: c.base_pose, random_chain(2), jnp.eye(4), is_leaf=empty)
    ),
    "batch": lambda: jax.tree.map(lambda x: jnp.stack([x, 2 * x]), random_chain(2)),
    "infinite and not a number": lambda: eqx.tree_at(
        lambda c: c.limits.effort, random_chain(2), jnp.asarray([np.nan, -0.0])
    ),
}


def empty(x) -> bool:
    return x is None


def same(a: jaxdyn.Chain, b: jaxdyn.Chain) -> None:
    """Of one structure, names and types included, and of the same bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("build", CHAINS.values(), ids=CHAINS)
def test_a_saved_model_is_loaded_bit_by_bit(build, tmp_path):
    chain = build()
    save_model(chain, tmp_path / "model.eqx")
    same(load_model(tmp_path / "model.eqx"), chain)
    with open(tmp_path / "model.eqx", "rb") as file:  # Equinox's own way, for who knows the structure
        file.readline()
        same(eqx.tree_deserialise_leaves(file, chain), chain)
    before = (tmp_path / "model.eqx").read_bytes()
    save_model(chain, tmp_path / "model.eqx")
    assert (tmp_path / "model.eqx").read_bytes() == before


PROCESS = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import jaxdyn
from jaxdyn.io.model_file import load_model, save_model
save_model(load_model(sys.argv[1]), sys.argv[2], {"from": "another process"})
"""


@pytest.mark.ci
def test_a_model_is_loaded_in_another_process(tmp_path):
    chain = random_mechanism(3)
    save_model(chain, tmp_path / "a.eqx")
    subprocess.run([sys.executable, "-c", PROCESS, tmp_path / "a.eqx", tmp_path / "b.eqx"], check=True)
    same(load_model(tmp_path / "b.eqx"), chain)
    assert model_about(tmp_path / "b.eqx")["from"] == "another process"
    assert (tmp_path / "a.eqx").read_bytes().partition(b"\n")[2] == (tmp_path / "b.eqx").read_bytes().partition(b"\n")[
        2
    ]


def test_the_first_line_describes_the_model(tmp_path):
    save_model(random_chain(2), tmp_path / "model.eqx", about={"robot": "of the test"})
    header = json.loads((tmp_path / "model.eqx").read_bytes().partition(b"\n")[0])
    assert (header["format"], header["version"], header["about"]) == ("jaxdyn model", 3, {"robot": "of the test"})
    assert header["topology"]["joint_names"] == ["joint1", "joint2"]
    assert {"name": "inertia", "shape": [2, 10], "dtype": "float64"} in header["leaves"]
    assert model_about(tmp_path / "model.eqx").keys() == {"robot", "jaxdyn"}


def test_models_are_loaded_in_the_requested_type(tmp_path):
    path = tmp_path / "model.eqx"
    chain = random_chain(2)
    save_model(chain, path)
    assert load_model(path, dtype="float32").dtype == jnp.float32
    with jax.enable_x64(False):
        rounded = jax.tree.map(lambda x: x.astype(jnp.float32), chain)
        with pytest.warns(ModelWarning, match=r"in float64, which is disabled in this process: .*dtype=\"float32\""):
            same(load_model(path), rounded)
        same(load_model(path, dtype=jnp.float32), rounded)
        with pytest.raises(ModelError, match=r"float64 is requested, but disabled in this process"):
            load_model(path, dtype="float64")


OLD_NAMES = {
    "friction.viscous": "viscous_friction",
    "friction.coulomb": "coulomb_friction",
    "friction.coulomb_velocity": "coulomb_velocity",
    "friction.stribeck": "stribeck_friction",
    "friction.stribeck_velocity": "stribeck_velocity",
    "friction.offset": "torque_offset",
    "springs.stiffness": "stiffness",
    "springs.rest_position": "rest_position",
    "limits.position": "position_limits",
    "limits.velocity": "velocity_limit",
    "limits.effort": "effort_limit",
    "transmission.friction.viscous": "transmission.viscous_friction",
    "transmission.friction.coulomb": "transmission.coulomb_friction",
    "transmission.friction.coulomb_velocity": "transmission.coulomb_velocity",
}


def edited(path, change) -> None:
    line, _, rest = path.read_bytes().partition(b"\n")
    header = json.loads(line)
    change(header)
    path.write_bytes(json.dumps(header).encode() + b"\n" + rest)


def signed(path, change) -> None:
    """A changed first line of the first version, which has a checksum of the numbers alone and other names of leaves."""

    def both(header):
        for leaf in header["leaves"]:
            leaf["name"] = OLD_NAMES.get(leaf["name"], leaf["name"])
        change(header)
        numbers = path.read_bytes().partition(b"\n")[2]
        header.update(version=1, sha256=hashlib.sha256(numbers).hexdigest())

    edited(path, both)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-1]), r"truncated: it contains \d+ of \d+ bytes"),
        (lambda p: p.write_bytes(p.read_bytes().partition(b"\n")[0] + b"\n"), r"truncated: it contains 0 of \d+ bytes"),
        (
            lambda p: p.write_bytes(p.read_bytes()[:300]),
            "not a model written by save_model, or its first line was truncated",
        ),
        (lambda p: p.write_bytes(b""), "not a model written by save_model"),
        (lambda p: p.write_bytes(b"<robot/>"), "URDF and MJCF files are read by load"),
        (lambda p: p.write_bytes(p.read_bytes() + b"x"), "checksum"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9] + b"\0" * 9), "checksum differs"),
        (
            lambda p: edited(p, lambda h: h.update(version=5, jaxdyn="9.9")),
            r"version 5, .*by jaxdyn 9.9, .*reads versions up to 4",
        ),
        (lambda p: edited(p, lambda h: h["topology"]["parents"].__setitem__(1, -1)), "checksum differs"),
        (lambda p: edited(p, lambda h: h["leaves"][0].update(name="torque_offset")), "checksum differs"),
        (lambda p: edited(p, lambda h: h.update(version=1)), "checksum differs"),
        (lambda p: edited(p, lambda h: h.update(about={"robot": "another"})), "checksum differs"),
        (lambda p: edited(p, lambda h: h.pop("sha256")), "checksum differs"),
        (lambda p: p.write_bytes(b"[" * 50_000 + b"]" * 50_000 + b"\n"), "not a model written by save_model"),
        (lambda p: edited(p, lambda h: h.pop("bytes")), "first line was truncated or changed"),
        (lambda p: signed(p, lambda h: h.pop("topology")), "first line does not describe a model"),
        (lambda p: signed(p, lambda h: h["leaves"].pop(0)), "first line does not describe a model"),
        (lambda p: signed(p, lambda h: h["topology"].pop("parents")), "first line does not describe a model"),
        (lambda p: signed(p, lambda h: h.update(leaves=3)), "first line does not describe a model"),
        (lambda p: p.unlink(), "there is no such file"),
        (lambda p: (p.unlink(), p.mkdir()), "specify the model file inside it"),
    ],
)
def test_damaged_and_foreign_files_are_refused(spoil, message, tmp_path):
    path = tmp_path / "model.eqx"
    save_model(random_chain(2), path)
    spoil(path)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def written_before(chain, path, version):
    """A file written before the leaves were renamed: motors without Stribeck friction and offset."""
    save_model(chain, path)
    line, _, rest = path.read_bytes().partition(b"\n")
    header, old = json.loads(line), io.BytesIO()
    body, kept = io.BytesIO(rest), []
    for leaf in header["leaves"]:
        array = np.load(body)
        if not leaf["name"].startswith("transmission.friction") or leaf["name"] in OLD_NAMES:
            np.save(old, array)
            kept.append({**leaf, "name": OLD_NAMES.get(leaf["name"], leaf["name"])})
    header.update(leaves=kept, version=version, bytes=len(old.getvalue()))
    header["sha256"] = checksum({k: x for k, x in header.items() if k != "sha256"}, old.getvalue())
    path.write_bytes(json.dumps(header).encode() + b"\n" + old.getvalue())


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_earlier_versions_are_read(version, tmp_path):
    path, chain = tmp_path / "model.eqx", random_mechanism(1)
    written_before(chain, path, version)
    same(load_model(path), chain)


def test_paths_with_a_null_character_are_refused(tmp_path):
    for call in (load_model, lambda path: save_model(random_chain(2), path), jaxdyn.load):
        with pytest.raises(ModelError, match="null"):
            call(f"{tmp_path}/a\0b")


def test_models_that_cannot_be_saved_are_refused(tmp_path):
    chain = random_chain(2)
    with pytest.raises(ModelError, match="inertia is being traced by JAX"):
        jax.grad(lambda m: save_model(eqx.tree_at(lambda c: c.inertia, chain, chain.inertia * m), tmp_path / "a"))(1.0)
    with pytest.raises(ModelError, match="gravity has type int"):
        save_model(eqx.tree_at(lambda c: c.gravity, chain, jnp.asarray([0, 0, -10])), tmp_path / "a")
    with pytest.raises(ModelError, match="cannot be written"):
        save_model(chain, tmp_path / "none" / "model.eqx")
    assert list(tmp_path.iterdir()) == []
