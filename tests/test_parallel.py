"""Batches over devices: the numbers of one device, in order, on any number of them, and no compilation too many."""

import importlib.util
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import random_chain, relative
from jaxdyn import textbook

CHAIN = random_chain(3)
AXES = (None, 0, 0, 0)


def states(count, n=3, seed=0):
    return tuple(np.random.default_rng(seed).normal(size=(3, count, n)))


def squares(chain, q, qd, qdd):
    rows = jaxdyn.regressor(chain, q, qd, qdd)
    return rows.T @ rows


def momentum(chain, q, qd, scale):
    return jaxdyn.crba(chain, q) @ qd * scale


def equal_on_these_devices(counts=(2, 5)):
    """Everything that `sharded_vmap` and its kin do, on whatever devices this process has; the largest relative error."""
    errors = {}
    over, plain = jaxdyn.sharded_vmap(jaxdyn.forward_dynamics, AXES), jax.jit(jax.vmap(jaxdyn.forward_dynamics, AXES))
    total = jaxdyn.parallel.sharded_sum(squares, AXES, chunk=2)
    for count in counts:
        batch = states(count)
        errors[f"values {count}"] = relative(over(CHAIN, *batch), plain(CHAIN, *batch))
        rows = np.asarray(jax.jit(jax.vmap(jaxdyn.regressor, AXES))(CHAIN, *batch)).reshape(-1, 30)
        errors[f"sum {count}"] = relative(total(CHAIN, *batch), rows.T @ rows)
    many = 2 * jax.device_count()
    batch = jaxdyn.parallel.shard_batch(states(many))
    out = over(CHAIN, *batch)
    assert [len(shard.data) for shard in out.addressable_shards] == [2] * jax.device_count()
    errors["sharded"] = relative(jaxdyn.parallel.local_rows(out), plain(CHAIN, *states(many)))
    assert all(np.array_equal(x, y) for x, y in zip(jaxdyn.parallel.local_rows(batch), states(many), strict=True))

    batch = states(5)
    loss = lambda f: lambda chain, q: jnp.sum(f(chain, q, *batch[1:]) ** 2)
    mapped = jax.jit(jax.grad(loss(jaxdyn.sharded_vmap(momentum, AXES)), (0, 1)))(CHAIN, batch[0])
    exact = jax.jit(jax.grad(loss(jax.vmap(momentum, AXES)), (0, 1)))(CHAIN, batch[0])
    summed = jaxdyn.parallel.sharded_sum(lambda *x: jnp.sum(momentum(*x) ** 2), AXES, chunk=2)
    added = jax.jit(jax.grad(lambda chain, q: summed(chain, q, *batch[1:]), (0, 1)))(CHAIN, batch[0])
    for name, found in (("gradient", mapped), ("gradient of sum", added)):
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True)
        errors[name] = max(relative(x, y) if np.any(y) else float(np.abs(x).max()) for x, y in pairs)
    return errors


@pytest.mark.nightly
def test_one_device():
    errors = equal_on_these_devices()
    assert max(errors.values()) < 1e-11, errors


SCRIPT = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
jax.config.update("jax_enable_x64", True)
from test_parallel import equal_on_these_devices
assert jax.device_count() == int(sys.argv[1])
print(json.dumps(equal_on_these_devices()))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("devices", [2, 3])
def test_virtual_devices(devices):
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    order = [sys.executable, "-c", SCRIPT, str(devices)]
    done = subprocess.run(order, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert max(errors.values()) < 1e-11, errors


def test_one_state_on_one_device():
    """The default run's share: a small function, all arguments, trees among them."""
    over = jaxdyn.sharded_vmap(
        lambda a, x: {"sum": a["k"] * x["p"] + x["q"], "k": a["k"]}, ({"k": None}, {"p": 0, "q": None})
    )
    out = over({"k": 2.0}, {"p": np.arange(3.0), "q": np.ones(2)[0]})
    np.testing.assert_allclose(out["sum"], [1, 3, 5])
    np.testing.assert_allclose(out["k"], [2, 2, 2])
    twice = jax.vmap(over, ({"k": 0}, None))({"k": np.array([1.0, 2.0])}, {"p": np.arange(3.0), "q": 1.0})
    np.testing.assert_allclose(twice["sum"], [[1, 2, 3], [1, 3, 5]])
    scale = jnp.array(3.0)  # closed over by a compiled function, and then used outside: nothing traced is left behind
    inner = jax.jit(lambda p: over({"k": scale}, {"p": p, "q": 1.0})["sum"])
    for function in (inner, lambda p: over({"k": scale}, {"p": p, "q": 1.0})["sum"], inner):
        np.testing.assert_allclose(function(np.arange(2.0)), [1, 4])
    total = jaxdyn.parallel.sharded_sum(lambda x, n: (x**2, n), chunk=2)
    square, number = total(np.arange(5.0), np.arange(5))
    assert float(square) == 30 and int(number) == 10 and jnp.issubdtype(number.dtype, jnp.integer)


def test_a_row_that_is_not_real_does_not_count():
    """Rows that fill up are left out of sums, also where the function is not finite at them."""
    total = jaxdyn.parallel.sharded_sum(lambda x: jnp.where(x > 0, x, jnp.inf), chunk=4)
    assert float(total(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))) == 15


@pytest.mark.parametrize(
    ("in_axes", "arguments", "message"),
    [
        (1, (np.ones((2, 2)),), "may contain only 0 and None"),
        ((0, 0), (np.ones(2),), "has entries for 2 arguments, but the call passes 1"),
        (None, (np.ones(2),), "no argument has a batch"),
        (0, (np.ones(2), np.ones(3)), "these have 2, 3"),
        (0, (np.ones(0),), "at least one"),
        (0, (1.0,), "a number"),
        (({"a": 0},), ({"b": np.ones(2)},), "does not match the structure"),
    ],
)
def test_batches_that_make_no_sense(in_axes, arguments, message):
    for over in (jaxdyn.sharded_vmap, jaxdyn.parallel.sharded_sum):
        with pytest.raises(jaxdyn.ModelError, match=message):
            over(lambda *x: x[0], in_axes)(*arguments)


def test_chunk_must_be_positive():
    with pytest.raises(jaxdyn.ModelError, match="at least 1"):
        jaxdyn.parallel.sharded_sum(jnp.sin, chunk=0)


def test_shard_batch_of_a_number():
    with pytest.raises(jaxdyn.ModelError, match="a number cannot be divided"):
        jaxdyn.parallel.shard_batch(1.0)


def test_another_robot_is_not_compiled_again():
    """The robot is an argument: other numbers in the same topology use the same program, by jit, spread and export alike."""
    compiled = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration)

    q = np.random.default_rng(0).normal(size=(4, 3))
    robots = [textbook.pendulum(3), textbook.pendulum(3, mass=2.0, length=0.5)]
    over, plain = jaxdyn.sharded_vmap(jaxdyn.gravity_force, (None, 0)), jax.jit(jaxdyn.gravity_force)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        first = over(robots[0], q), plain(robots[0], q[0])
        before = len(compiled)
        second = over(robots[1], q), plain(robots[1], q[0])
        again = len(compiled)
        plain(textbook.pendulum(4), np.zeros(4))  # another topology is another program
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert before >= 2 and again == before and len(compiled) > again
    for x, y in zip(first, second, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)  # twice the mass at half the length


def hosts():
    spec = importlib.util.spec_from_file_location("hosts", ROOT / "examples" / "hosts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_processes_that_fail_or_hang_are_ended(tmp_path, monkeypatch):
    """A failing process ends the others, a hanging one is ended in time, and their output is reported."""
    module = hosts()
    script = tmp_path / "child.py"
    monkeypatch.setattr(module, "__file__", str(script))
    script.write_text(
        "import sys, time\nif sys.argv[4] == '1': raise SystemExit('address already in use')\ntime.sleep(100)\n"
    )
    begun = []
    once = module.launch
    monkeypatch.setattr(module, "launch", lambda *x: begun.append(x) or once(*x))
    with pytest.raises(RuntimeError, match="address already in use"):
        module.launch_again(2, tmp_path, tries=2)
    assert len(begun) == 2  # and tried again
    script.write_text("import time\nprint('waiting', flush=True)\ntime.sleep(100)\n")
    monkeypatch.setattr(module, "LIMIT", 1)
    with pytest.raises(RuntimeError, match="waiting"):
        module.launch_again(2, tmp_path, tries=2)
    assert len(begun) == 3
