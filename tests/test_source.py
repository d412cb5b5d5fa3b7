"""Functions as C and Python: the same numbers as JAX's, without JAX, and errors that say what cannot be written."""

import ctypes
import dataclasses
import importlib.util
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, random_mechanism, relative
from jaxdyn import DeploymentError, cli
from jaxdyn.deployment import SourceFunction, write_source
from jaxdyn.identification import (
    Asymmetry,
    Coulomb,
    Dahl,
    FrictionModel,
    GearRipple,
    LoadDependent,
    LoadedSlip,
    LuGre,
    MaxwellSlip,
    Offset,
    PowerViscous,
    Stribeck,
    TemperatureDependent,
    TorqueModel,
    Viscous,
    coupled_drive,
    load_torque_model,
    save_torque_model,
    write_predictor,
)

CC = shutil.which("cc")
TERMS = (
    Viscous(),
    Coulomb(0.03, joints=(2,)),
    Offset(),
    PowerViscous(),
    Asymmetry(0.05),
    Stribeck(),
    LoadDependent(0.02, (1, 2)),
    GearRipple(),
    MaxwellSlip(2e-3),
    LoadedSlip(3e-3),
    Dahl(1e-3),
    LuGre(),
    TemperatureDependent(30.0, 0.05),
)


def python(path):
    """The functions of a written file."""
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(path):
    """The written C, compiled with all warnings; skips where there is no compiler."""
    if CC is None:
        pytest.skip("there is no C compiler, cc, to compile the written source with")
    library = path.with_name(f"lib{path.stem}.so")
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1"]
    subprocess.run([CC, *strict, "-shared", "-fPIC", path, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def call(function, *arrays):
    """A function of C on arrays of doubles, arguments and results."""
    function(*(x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for x in arrays))


def model_of(chain, terms):
    with jax.enable_x64(True):
        friction = FrictionModel(terms).for_joints(chain.n)
        chosen = friction.chosen(chain.n)
        values = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.0, chosen.shape) * chosen)
        return TorqueModel(chain, friction, values, (coupled_drive(1, 2),), jnp.array([0.1, 0.2, 0.3]))


def run_of(model, count=150):
    """A motion with rests and reversals, and the model's torques and memories along it by JAX."""
    n, rng = model.chain.n, np.random.default_rng(1)
    q = np.cumsum(2e-3 * rng.normal(size=(count, n)) * (np.arange(count) % 50 > 9)[:, None], axis=0)
    qd = np.gradient(q, 1e-3, axis=0) * (np.arange(count) % 50 > 9)[:, None]
    qdd = rng.normal(size=(count, n))

    def body(memory, now):
        tau, after = model.torque(memory, *now)
        return after, (tau, after)

    with jax.enable_x64(True):
        motion = [jnp.asarray(x) for x in (q, qd, qdd)]
        tau, memory = jax.jit(lambda *x: jax.lax.scan(body, model.start(x[0][0]), x)[1])(*motion)
    return (q, qd, qdd), np.asarray(tau), np.asarray(memory)


def check_predictor(model, path):
    """C and Python along a run, against JAX: to 1e-12 of the largest torque."""
    motion, tau, memory = run_of(model)
    written, library = python(path / "arm.py"), compiled(path / "arm.c")
    by_python, by_c = written.start(motion[0][0]), np.zeros(memory[0].shape)
    call(library.arm_start, motion[0][0], by_c)
    np.testing.assert_array_equal(by_c, by_python)
    in_c, most = np.zeros(tau.shape[1]), np.abs(tau).max()
    for k, now in enumerate(zip(*motion, strict=True)):
        in_python, by_python = written.torque(by_python, *now)
        call(library.arm_torque, by_c, *now, in_c, by_c)  # the memory in its own place
        for torques, held in ((in_python, by_python), (in_c, by_c)):
            np.testing.assert_allclose(torques, tau[k], atol=1e-12 * most)
            np.testing.assert_allclose(held, memory[k], atol=1e-12)
    weight = written.gravity(motion[0][-1])
    with jax.enable_x64(True):
        still = model.load(*(jnp.asarray(x) for x in (motion[0][-1], 0 * weight, 0 * weight)))
    np.testing.assert_allclose(weight, still, atol=1e-12 * np.abs(still).max())
    call(library.arm_gravity, motion[0][-1], in_c)
    np.testing.assert_allclose(in_c, still, atol=1e-12 * np.abs(still).max())


def test_c_and_python_predict_what_the_model_does(tmp_path):
    elbow = jaxdyn.with_transmission(  # the second motor also turns when the first joint moves, and rubs
        jaxdyn.textbook.planar_elbow(),
        matrix=[[20.0, 0.0], [20.0, 20.0]],
        viscous_friction=1e-3,
        coulomb_friction=5e-3,
    )
    model = model_of(elbow, (Viscous(), Stribeck(), MaxwellSlip(2e-3), LoadedSlip(3e-3)))
    write_predictor(model, tmp_path / "arm")
    check_predictor(model, tmp_path)
    header = (tmp_path / "arm.h").read_text()
    assert "0: joint1, rad and N m" in header and "double memory[6], const double q[2]" in header
    assert (
        "malloc" not in (tmp_path / "arm.c").read_text()
        and "jax" not in (tmp_path / "arm.py").read_text().split("import", 1)[1]
    )


@pytest.mark.ci
def test_every_term_and_the_command(tmp_path, capsys, monkeypatch):
    """All kinds of friction on a Panda, from its file; the Python runs in a process without JAX."""
    monkeypatch.chdir(tmp_path)
    model = model_of(jaxdyn.robots.panda(), TERMS)
    save_torque_model(model, "model.eqx")
    assert cli.main(["export", "model.eqx", "--out", "arm"]) == 0
    assert capsys.readouterr().out.split() == ["arm.h", "arm.c", "arm.py"]
    check_predictor(load_torque_model("model.eqx"), tmp_path)
    program = "import arm, sys; arm.torque(arm.start([0.0] * 7), *[[0.1] * 7] * 3); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
    # a chain alone
    alone = tmp_path / "alone"  # a library of the same path would be the one that is loaded already
    alone.mkdir()
    write_predictor(TorqueModel(model.chain), alone / "arm")
    check_predictor(TorqueModel(model.chain), alone)
    assert cli.main(["export", "model.eqx", "--out", "nowhere/arm"]) == 1


@pytest.mark.ci
@pytest.mark.parametrize(
    "name",
    ["mass_matrix", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("inverse_dynamics", "forward_dynamics"))],
)
def test_functions_of_any_robot(name, tmp_path):
    """A tree with a free base, a spherical joint and coupled joints: loops, choices and places in arrays are written out."""
    chain = random_mechanism(0)
    count = 1 if name == "mass_matrix" else 3
    state = [np.asarray(x, float) for x in mechanism_state(chain, 0)[:count]]
    function = lambda *x: getattr(jaxdyn, name)(chain, *x)
    arguments = {key: x.shape for key, x in zip(("q", "qd", "rest"), state, strict=False)}
    write_source(tmp_path / "tree", [SourceFunction(name, function, arguments, ("out",))])
    wanted = np.asarray(jax.jit(function)(*state))
    assert relative(getattr(python(tmp_path / "tree.py"), name)(*state), wanted) < 1e-12
    found = np.zeros(wanted.shape)
    call(getattr(compiled(tmp_path / "tree.c"), f"tree_{name}"), *state, found)
    assert relative(found, wanted) < 1e-12


def test_what_numbers_decide_is_not_written(tmp_path):
    """Constants are folded, choices made, and equal operations written once; what is left rounds as JAX does."""

    def f(x):
        y = jnp.where(jnp.array(2.0) > 1.0, x[0] * 1.0 + 0.0, jnp.inf)
        return jnp.stack([y**2 - x[1] / -3.0, jnp.sign(x[1]) * jnp.sin(x[0]), jnp.minimum(x[0], -x[1])]), jnp.sin(
            x[0]
        ) > 0

    write_source(tmp_path / "f", [SourceFunction("f", f, {"x": (2,)}, ("y", "up"))])
    assert (tmp_path / "f.c").read_text().count("sin(") == 1 and "INFINITY" not in (tmp_path / "f.c").read_text()
    for x in ([0.3, -2.0], [-1.0, 0.0], [2.0, 5.0]):
        y, up = python(tmp_path / "f.py").f(x)
        wanted = f(jnp.asarray(x))
        np.testing.assert_allclose(y, wanted[0], rtol=1e-15)
        assert bool(up) == bool(wanted[1])


def test_operations_without_effect_are_left_out(tmp_path):
    """The rows of an empty array are an operation without results (from jax 0.11)."""

    def f(x):
        empty = jax.jit(lambda x: sum(tuple(x), x.sum()))(x[:0])
        return x * x + jax.lax.scan(lambda y, row: (y + sum(tuple(row)), None), empty, jnp.zeros((2, 0)))[0]

    write_source(tmp_path / "f", [SourceFunction("f", f, {"x": (3,)}, ("y",))])
    np.testing.assert_allclose(python(tmp_path / "f.py").f([1.0, 2.0, 3.0]), [1.0, 4.0, 9.0])


def test_what_cannot_be_written_is_said(tmp_path):
    def refuse(match, function, shape=(2, 2), **changes):
        given = dataclasses.replace(SourceFunction("f", function, {"x": shape}, ("y",)), **changes)
        with pytest.raises(DeploymentError, match=match):
            write_source(tmp_path / "f", [given])

    refuse("'lu' of the traced function", lambda x: jnp.linalg.solve(x, x[0]))
    refuse("'debug_callback' of the traced", lambda x: (jax.debug.callback(lambda _: None, x), x)[1])
    refuse("number of iterations", lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x))
    refuse("index that depends on the arguments", lambda x: x[x[0, 0].astype(int)])
    refuse("cannot be used as a name", lambda x: x, results=("the result",))
    refuse("returns 1 arrays, but 2 names are given", lambda x: x, results=("y", "z"))
    refuse("the same name", lambda x: x, results=("x",))
    refuse("cannot be traced", lambda x: float(x[0, 0]))
    assert not list(tmp_path.iterdir())
