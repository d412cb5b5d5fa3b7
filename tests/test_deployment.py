"""Exported functions: the same numbers as the function's own, in a fresh process too, and errors that say what is wrong."""

import io
import json
import os
import subprocess
import sys
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import mechanism_state, random_chain, random_mechanism, random_state, relative
from jaxdyn.deployment import export as archive, export as load

pytest.importorskip("flatbuffers")
CHAIN = random_chain(3)
STATE = random_state(3)
HERE = {"cpu": "cpu", "gpu": "cuda"}.get(jax.default_backend(), "tpu")  # as `platforms` calls it
GAINS = np.array([3.0, 2.0, 1.0])


def policy(chain, q, qd, goal):
    """A user's own: two results of different form."""
    tau = jaxdyn.gravity_force(chain, q) + jnp.asarray(GAINS) * (goal["q"] - q) - qd
    return {"tau": tau, "power": (jnp.dot(tau, qd), None)}


FUNCTIONS = {
    "gravity_force": (jaxdyn.gravity_force, STATE[:1]),
    "inverse_dynamics": (jaxdyn.inverse_dynamics, STATE),
    "forward_dynamics": (jaxdyn.forward_dynamics, STATE),
    "mass_matrix": (jaxdyn.mass_matrix, STATE[:1]),
    "policy": (policy, (*STATE[:2], {"q": STATE[2]})),
    "lambda": (lambda c, q, qd: jaxdyn.crba(c, q) @ qd - 2.0, STATE[:2]),
    "operational_space": (jaxdyn.dynamics.operational_space, STATE[:2]),
}


def close(x, y, tolerance=1e-12):
    assert jax.tree.structure(x) == jax.tree.structure(y)
    assert all(relative(a, b) < tolerance for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


@pytest.fixture(scope="module")
def gravity(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "gravity.jaxdyn"
    jaxdyn.deployment.export_function(jaxdyn.gravity_force, CHAIN, STATE[0], path=path, platforms=(HERE,))
    return path


def one_often(often, marks=()):
    """All functions, of which one has these marks, and the others run at night."""
    return [pytest.param(name, marks=marks if name == often else pytest.mark.nightly) for name in FUNCTIONS]


@pytest.mark.parametrize("name", one_often("policy"))
def test_loaded_equals_the_function(name, tmp_path):
    function, arguments = FUNCTIONS[name]
    jaxdyn.deployment.export_function(
        function, CHAIN, *arguments, path=tmp_path / "f", platforms=("cpu", "cuda", "tpu")
    )
    loaded = jaxdyn.deployment.load_exported(tmp_path / "f")
    expected = jax.jit(function)(CHAIN, *arguments)
    if hasattr(expected, "_asdict"):
        expected = expected._asdict()
    close(loaded(*arguments), expected)
    assert loaded.joint_names == CHAIN.joint_names and loaded.nq == loaded.nv == 3
    assert loaded.platforms == ("cpu", "cuda", "tpu") and not loaded.batch
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]


@pytest.mark.parametrize("name", one_often("forward_dynamics", pytest.mark.ci))
def test_batches_of_any_size(name, tmp_path):
    function, arguments = FUNCTIONS[name]
    jaxdyn.deployment.export_function(function, CHAIN, *arguments, path=tmp_path / "f", batch=True, platforms=(HERE,))
    loaded = jaxdyn.deployment.load_exported(tmp_path / "f")
    expected = jax.jit(function)(CHAIN, *arguments)
    if hasattr(expected, "_asdict"):
        expected = expected._asdict()
    for size in (1, 5):
        out = loaded(*jax.tree.map(lambda x, size=size: jnp.stack([x] * size), arguments))
        close(jax.tree.map(lambda x: x[-1], out), expected)
        assert all(len(x) == size for x in jax.tree.leaves(out))


@pytest.mark.nightly
def test_floating_tree(tmp_path):
    chain = random_mechanism(coupled=False)
    state = mechanism_state(chain)
    jaxdyn.deployment.export_function(jaxdyn.inverse_dynamics, chain, *state, path=tmp_path / "f", platforms=(HERE,))
    loaded = jaxdyn.deployment.load_exported(tmp_path / "f")
    assert (loaded.nq, loaded.nv) == (chain.nq, chain.nv)
    assert [name for name, _, _ in loaded.arguments] == ["q", "qd", "qdd"]
    close(loaded(*state), jax.jit(jaxdyn.inverse_dynamics)(chain, *state))


@pytest.mark.ci
def test_in_float32(tmp_path):
    chain = jax.tree.map(lambda x: x.astype(jnp.float32), CHAIN)
    q = np.asarray(STATE[0], np.float32)
    jaxdyn.deployment.export_function(jaxdyn.gravity_force, chain, q, path=tmp_path / "f", platforms=(HERE,))
    loaded = jaxdyn.deployment.load_exported(tmp_path / "f")
    out = loaded(np.asarray(q, float))  # converted
    assert out.dtype == jnp.float32 and loaded.arguments[0][2] == "float32"
    close(out, jax.jit(jaxdyn.gravity_force)(chain, jnp.asarray(q)), 1e-5)


@pytest.mark.ci
def test_derivatives(gravity, tmp_path):
    jaxdyn.deployment.export_function(
        jaxdyn.gravity_force, CHAIN, STATE[0], path=tmp_path / "f", vjp_order=1, platforms=(HERE,)
    )
    loaded = jaxdyn.deployment.load_exported(tmp_path / "f")
    assert loaded.vjp_order == 1
    exact = jax.jit(jax.grad(lambda q: jaxdyn.gravity_force(CHAIN, q) @ GAINS))(STATE[0])
    close(jax.jit(jax.grad(lambda q: loaded(q) @ GAINS))(STATE[0]), exact)
    with pytest.raises(ValueError, match="VJP"):
        jax.grad(lambda q: jaxdyn.deployment.load_exported(gravity)(q) @ GAINS)(STATE[0])


def test_same_function_same_file(gravity, tmp_path):
    jaxdyn.deployment.export_function(jaxdyn.gravity_force, CHAIN, STATE[0], path=tmp_path / "f", platforms=(HERE,))
    assert zipfile.ZipFile(tmp_path / "f").read("description.json") == zipfile.ZipFile(gravity).read("description.json")


FRESH = """
import sys
import jaxdyn, numpy as np
def never(*_, **__): raise AssertionError("a robot was built")
jaxdyn.Chain.__init__ = never
loaded = jaxdyn.deployment.load_exported(sys.argv[1])
print(" ".join(repr(float(x)) for x in loaded(np.array(eval(sys.argv[2])))))
"""


def fresh(*arguments, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", ""), **environment}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.ci
def test_fresh_process(gravity):
    q = STATE[0].tolist()
    done = fresh("-c", FRESH, str(gravity), repr(q), JAX_ENABLE_X64="1")
    assert done.returncode == 0, done.stderr
    close(np.array(done.stdout.split(), float), np.asarray(jax.jit(jaxdyn.gravity_force)(CHAIN, STATE[0])))


def test_float32_process_is_told(gravity, monkeypatch):
    with jax.enable_x64(False), pytest.raises(jaxdyn.DeploymentError, match=r"float64.*jax_enable_x64"):
        jaxdyn.deployment.load_exported(gravity)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (STATE[0], STATE[0]),
        (STATE[0][:2],),
        (STATE[0][None],),
        ([1.0, 2.0, 3.0],),
        (np.asarray(STATE[0]) * 1j,),
        (1.0,),
    ],
    ids=["none", "two", "short", "batch", "list", "complex", "number"],
)
def test_wrong_arguments(gravity, arguments):
    loaded = jaxdyn.deployment.load_exported(gravity)
    with pytest.raises(jaxdyn.DeploymentError, match=r"gravity_force takes q float64\[3\]; it was called with"):
        loaded(*arguments)


def rewritten(source, path, description=None, program=None):
    """A copy of an exported file with parts changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        text = json.loads(old.read("description.json")) | (description or {})
        new.writestr("description.json", json.dumps(text))
        if text["version"] != 1:  # which had no checksum
            new.writestr("sha256", old.read("sha256"))
        new.writestr("program.jax_export", old.read("program.jax_export") if program is None else program)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "format version 99.*reads versions up to 2"),
        ({"format": "something else"}, "not a function exported by jaxdyn"),
        ({"calling_convention": 99, "version": 1}, "calling convention.*export the function again"),
        ({"platforms": ["tpu"], "version": 1}, "exported for tpu.*runs on .*JAX_PLATFORMS=tpu"),
        ({"platforms": ["cpu", "cuda"]}, "damaged"),
        ({"joint_names": ["a", "b", "c"]}, "damaged"),
        ({"version": 1, "arguments": 3}, "damaged"),
        ({"version": 1, "vjp_order": [], "joint_names": None}, "damaged"),
        ({"version": 3, "versions": []}, "damaged"),
    ],
    ids=str,
)
def test_files_that_do_not_belong_here(gravity, tmp_path, change, message):
    with pytest.raises(jaxdyn.DeploymentError, match=message):
        jaxdyn.deployment.load_exported(rewritten(gravity, tmp_path / "f", change))


def compressed_otherwise(data):
    """The archive with a method of compression that there is not, and with bytes that cannot be decompressed."""
    place = data.index(b"PK\1\2") + 10
    yield data[:8] + b"\x63" + data[9:place] + b"\x63" + data[place + 1 :]
    start = data.index(b"program.jax_export") + len(b"program.jax_export")
    yield data[:start] + b"\xff" * 40 + data[start + 40 :]


def test_wrong_files(gravity, tmp_path):
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive_:
        archive_.writestr("readme", "hello")
    whole = gravity.read_bytes()
    middle = whole[:300] + bytes(byte ^ 255 for byte in whole[300:900]) + whole[900:]
    deep = io.BytesIO()
    with zipfile.ZipFile(deep, "w") as archive_:
        archive_.writestr("description.json", "[" * 50_000 + "]" * 50_000)
        archive_.writestr("program.jax_export", "")
    long = io.BytesIO()
    with zipfile.ZipFile(long, "w", zipfile.ZIP_DEFLATED) as archive_:
        archive_.writestr("description.json", bytes((1 << 24) + 1))
        archive_.writestr("program.jax_export", "")
    contents = (b"", b"<robot/>", other.getvalue(), deep.getvalue(), long.getvalue(), whole[: len(whole) // 2], middle)
    for content in (*contents, *compressed_otherwise(whole)):
        (tmp_path / "f").write_bytes(content)
        with pytest.raises(jaxdyn.DeploymentError, match="damaged, or not a function exported by jaxdyn"):
            jaxdyn.deployment.load_exported(tmp_path / "f")
    with pytest.raises(jaxdyn.DeploymentError, match="no such file"):
        jaxdyn.deployment.load_exported(tmp_path / "absent")
    with pytest.raises(jaxdyn.DeploymentError, match="folder"):
        jaxdyn.deployment.load_exported(tmp_path)
    with pytest.raises(jaxdyn.DeploymentError, match="damaged"):  # and not only once it is called
        jaxdyn.deployment.load_exported(rewritten(gravity, tmp_path / "f", program=b"\0" * 64))
    with pytest.raises(jaxdyn.DeploymentError, match="cannot read the file"):
        jaxdyn.deployment.load_exported(rewritten(gravity, tmp_path / "f", {"version": 1}, b"\0" * 64))
    assert (
        jaxdyn.deployment.load_exported(rewritten(gravity, tmp_path / "f", {"version": 1})).joint_names
        == CHAIN.joint_names
    )


def called_back(chain, q):
    jax.debug.callback(print, q)
    return q


@pytest.mark.parametrize(
    ("function", "arguments", "options", "message"),
    [
        (jaxdyn.gravity_force, (STATE[0][:2],), {}, "gravity_force cannot be exported.*shape"),
        (called_back, STATE[:1], {"platforms": (HERE,)}, "called_back cannot be exported.*callback"),
        (jaxdyn.gravity_force, STATE[:1], {"platforms": ("abacus",)}, "platforms must be among cpu.*not abacus"),
        (jaxdyn.gravity_force, STATE[:1], {"platforms": ()}, "not empty"),
        (lambda c, d: d.inertia, (CHAIN,), {}, "for any other object, pass the arrays that it contains"),
    ],
    ids=["shape", "callback", "platform", "no platform", "class"],
)
def test_functions_that_cannot_be_exported(function, arguments, options, message, tmp_path):
    (tmp_path / "f").write_text("before")
    with pytest.raises(jaxdyn.DeploymentError, match=message):
        jaxdyn.deployment.export_function(function, CHAIN, *arguments, path=tmp_path / "f", **options)
    assert (tmp_path / "f").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_cannot_write(tmp_path):
    with pytest.raises(jaxdyn.OutputError, match="cannot be written"):
        archive.write_archive(tmp_path / "no" / "folder", {}, b"")


def test_missing_flatbuffers(gravity, monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(jaxdyn.DeploymentError, match=r"jaxdyn\[deploy\]"):
        load.load_exported(gravity)
