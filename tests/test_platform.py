"""Two forms of a function, of which a program holds the one for its platform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxdyn
from helpers import random_chain, random_mechanism
from jaxdyn.dynamics.engine import lanes as batch
from jaxdyn.dynamics.engine.lanes import by_platform


def tempered(x, y):
    """Forms so different that it shows which one a program holds."""
    cpu, other = (lambda a, f=f: {"z": a["x"] * f(a["y"])} for f in (jnp.sin, jnp.cosh))
    return by_platform(cpu, other, {"x": x, "y": y})["z"]


VALUE, SLOPE = (np.sin, np.cos) if jax.default_backend() == "cpu" else (np.cosh, np.sinh)
X, Y = jnp.linspace(0.1, 0.9, 6).reshape(2, 3), jnp.linspace(-1, 2, 6).reshape(2, 3)


def test_batches_and_forward_derivatives():
    for function in (tempered, jax.jit(tempered), jax.vmap(tempered, (1, 1), 1), jax.vmap(jax.jit(tempered))):
        np.testing.assert_allclose(function(X, Y), X * VALUE(Y), rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(tempered, (0, None))(X[:, 0], Y[0, 0]), X[:, 0] * VALUE(Y[0, 0]), rtol=1e-14)
    with jax.disable_jit():
        np.testing.assert_allclose(tempered(X, Y), X * VALUE(Y), rtol=1e-14)
    _, slope = jax.jvp(lambda y: tempered(X, y), (Y,), (jnp.ones_like(Y),))
    np.testing.assert_allclose(slope, X * SLOPE(Y), rtol=1e-14)
    slopes = jax.vmap(jax.jacfwd(tempered, 1))(X[:, 0], Y[:, 0])
    np.testing.assert_allclose(slopes, X[:, 0] * SLOPE(Y[:, 0]), rtol=1e-14)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_program_holds_the_form_of_its_platform(platform):
    text = export.export(jax.jit(tempered), platforms=[platform])(X, Y).mlir_module()
    assert ("stablehlo.sine" in text) == (platform == "cpu")
    assert ("exponential" in text) == (platform == "cuda")


def test_a_program_for_a_gpu_made_without_one_has_no_part_of_the_cpus(annotations_unchecked):
    arm, (b,) = random_chain(2), export.symbolic_shape("b")
    dynamics = jax.jit(jax.vmap(lambda q, v, a: jaxdyn.inverse_dynamics(arm, q, v, a)))
    for count in (100, b):
        states = [jax.ShapeDtypeStruct((count, 2), float)] * 3
        texts = {p: export.export(dynamics, platforms=[p])(*states).mlir_module() for p in ("cpu", "cuda")}
        assert "xla_cpu_small_call" in texts["cpu"] and "xla_cpu_small_call" not in texts["cuda"]
        assert "optimization_barrier" not in texts["cuda"]
    both = export.export(dynamics, platforms=["cpu", "cuda"])(*[jax.ShapeDtypeStruct((100, 2), float)] * 3)
    q, v, a = np.random.default_rng(0).normal(size=(3, 100, 2))
    np.testing.assert_allclose(both.call(q, v, a), dynamics(q, v, a), rtol=1e-12, atol=1e-12)


def test_a_gpu_gets_short_sweeps_written_out_and_long_ones_as_loops(annotations_unchecked):
    for n, loops in ((3, 0), (22, 2)):
        arm = random_chain(n)
        dynamics = jax.jit(jax.vmap(lambda *x, arm=arm: jaxdyn.inverse_dynamics(arm, *x)))
        text = export.export(dynamics, platforms=["cuda"])(*[jax.ShapeDtypeStruct((100, n), float)] * 3).mlir_module()
        assert text.count("stablehlo.while") == loops


@pytest.mark.nightly
@pytest.mark.parametrize(
    "robot",
    [
        pytest.param(random_chain(3), id="serial"),
        pytest.param(random_mechanism(1, free=False), id="tree"),
    ],
)
def test_sweeps_written_out_give_what_loops_give(monkeypatch, robot):
    q, qd, tau = np.random.default_rng(0).normal(size=(3, 4, robot.nv))
    q = jax.vmap(lambda dq: jaxdyn.model.integrate(robot, jaxdyn.model.neutral_configuration(robot), dq))(q)
    functions = jaxdyn.inverse_dynamics, jaxdyn.forward_dynamics, lambda robot, q, qd, tau: jaxdyn.crba(robot, q)
    every = lambda *x: [f(robot, *x) for f in functions]
    wanted = [jax.jit(f)(*x) for f, x in ((jax.vmap(every), (q, qd, tau)), (every, (q[0], qd[0], tau[0])))]
    monkeypatch.setattr(batch, "by_platform", lambda cpu, default, *x, **named: default(*x))
    every = lambda *x: [f(robot, *x) for f in functions]
    found = [jax.jit(f)(*x) for f, x in ((jax.vmap(every), (q, qd, tau)), (every, (q[0], qd[0], tau[0])))]
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
