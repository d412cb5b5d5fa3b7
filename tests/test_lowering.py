"""One state, batches of any size, batches of batches and robots that differ: the same numbers, whatever XLA compiles."""

import functools
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, random_mechanism, random_state, relative
from jaxdyn.dynamics.engine import lanes as lowering
from jaxdyn.dynamics.engine.kernel import traced_in
from jaxdyn.dynamics.engine.matrices import product
from jaxdyn.model.chain import with_leaves

CHAIN = random_chain(3)
FUNCTIONS = {
    "inverse_dynamics": (jaxdyn.inverse_dynamics, 3),
    "forward_dynamics": (jaxdyn.forward_dynamics, 3),
    "mass_matrix": (jaxdyn.mass_matrix, 1),
    "crba": (jaxdyn.crba, 1),
    "coriolis_matrix": (jaxdyn.coriolis_matrix, 2),
    "regressor": (jaxdyn.regressor, 3),
    "forward_kinematics": (jaxdyn.forward_kinematics, 1),
    "mass_matrix_inverse": (jaxdyn.mass_matrix_inverse, 1),
    "inverse_dynamics_derivatives": (jaxdyn.inverse_dynamics_derivatives, 3),
}
ALWAYS = "inverse_dynamics", "regressor"  # in the default run
MARKS = {"inverse_dynamics": (), "inverse_dynamics_derivatives": pytest.mark.ci}


def states(count: int, n: int = 3):
    return jnp.asarray(np.random.default_rng(0).normal(size=(3, count, n)))


def error(x, y) -> float:
    return max(relative(a, b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


def each(function, *arguments):
    """The function state by state."""
    return jax.tree.map(lambda *x: jnp.stack(x), *(function(*x) for x in zip(*arguments, strict=True)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.nightly) for name in FUNCTIONS]
)
def test_a_batch_of_any_size_holds_the_results_of_its_states_in_order(name):
    function, used = FUNCTIONS[name]
    x = states(150)[:used]  # two chunks and a rest
    one = jax.jit(functools.partial(function, CHAIN))
    some = [0, 1, 63, 64, 65, 127, 128, 149]
    got = jax.jit(jax.vmap(functools.partial(function, CHAIN)))(*x)
    assert error(jax.tree.map(lambda y: y[np.array(some)], got), each(one, *x[:, np.array(some)])) < 1e-13


def test_in_the_form_for_gpus_products_have_no_loop_over_rows():
    a, b = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 5, 3)))
    loop, straight = jax.jit(product), jax.jit(traced_in(lambda a, b: product(a, b), unroll=3000))
    wanted = np.einsum("ikl,kjl->ijl", a, b)
    for function, loops in ((loop, 1), (straight, 0)):
        assert relative(function(a, b), wanted) < 1e-14
        assert str(jax.make_jaxpr(function)(a, b)).count("scan[") == loops


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, pytest.mark.nightly)) for name in FUNCTIONS])
def test_kernels_give_what_plain_programs_give(name, monkeypatch):
    """`JAXDYN_KERNELS=0` is the one switch for all of them."""
    function, used = FUNCTIONS[name]
    x = states(70)[:used]

    def run():
        one = jax.jit(lambda *x: function(CHAIN, *x)).lower(*x[:, 0])
        many = jax.jit(jax.vmap(lambda *x: function(CHAIN, *x))).lower(*x)
        marked = ['small_call = "true"' in lowered.as_text() for lowered in (one, many)]
        return marked, (one.compile()(*x[:, 0]), many.compile()(*x))

    marked, found = run()
    monkeypatch.setenv("JAXDYN_KERNELS", "0")
    unmarked, plain = run()
    assert all(marked) and not any(unmarked)
    assert error(found, plain) < 1e-13


@pytest.mark.ci
def test_batches_of_batches_equal_flat_batches():
    x = states(12).reshape(3, 3, 4, 3)
    f = lambda q, qd, qdd: jaxdyn.inverse_dynamics(CHAIN, q, qd, qdd)
    nested = jax.jit(jax.vmap(jax.vmap(f)))(*x)
    assert relative(nested.reshape(12, 3), jax.vmap(f)(*x.reshape(3, 12, 3))) < 1e-14
    mixed = jax.jit(jax.vmap(jax.vmap(f, (None, 0, None)), (0, None, 0)))(x[0, :, 0], x[1, 0], x[2, :, 0])
    assert relative(mixed[2, 3], f(x[0, 2, 0], x[1, 0, 3], x[2, 2, 0])) < 1e-13


@pytest.mark.ci
@pytest.mark.parametrize(
    "leaves",
    [
        ("inertia", "translation", "screw", "armature"),
        *(pytest.param(x, marks=pytest.mark.nightly) for x in (("inertia",), ("rotation",), ("friction.viscous",))),
    ],
)
def test_robots_that_differ_in_a_batch(leaves):
    rng = np.random.default_rng(1)
    scales = {name: jnp.asarray(1 + 0.1 * rng.uniform(size=(5, *attrgetter(name)(CHAIN).shape))) for name in leaves}
    scaled = lambda s: with_leaves(CHAIN, {name: attrgetter(name)(CHAIN) * s[name] for name in leaves})
    x = states(5)
    for function in (jaxdyn.inverse_dynamics, jaxdyn.forward_dynamics):
        got = jax.jit(jax.vmap(lambda s, *x, f=function: f(scaled(s), *x)))(scales, *x)
        for i in range(5):
            own = scaled({name: s[i] for name, s in scales.items()})
            assert relative(got[i], function(own, *x[:, i])) < 1e-12
    fourth = scaled({name: s[3] for name, s in scales.items()})
    for function, used in FUNCTIONS.values() if leaves == ("inertia",) else ():  # in one state
        got = jax.vmap(lambda s, f=function, k=used: f(scaled(s), *x[:k, 0]))(scales)
        assert error(jax.tree.map(lambda y: y[3], got), function(fourth, *x[:used, 0])) < 1e-12


@pytest.mark.nightly
def test_states_that_differ_in_one_argument_alone():
    q, qd, qdd = random_state(3)
    for function, used in FUNCTIONS.values():
        for k in range(used):
            arguments = [jnp.stack([x, 2 * x]) if i == k else x for i, x in enumerate((q, qd, qdd)[:used])]
            got = jax.vmap(functools.partial(function, CHAIN), tuple(0 if i == k else None for i in range(used)))(
                *arguments
            )
            assert error(jax.tree.map(lambda y: y[0], got), function(CHAIN, *(q, qd, qdd)[:used])) < 1e-12


@pytest.mark.nightly
def test_robots_of_all_kinds_work_in_a_batch():
    for chain in (random_mechanism(3), random_mechanism(4, free=False)):
        keys = jax.random.split(jax.random.key(0), 70)
        q = jax.vmap(lambda key, chain=chain: jaxdyn.random_configuration(chain, key))(keys)
        v, a = jax.random.normal(jax.random.key(1), (2, 70, chain.nv))
        for function in (jaxdyn.inverse_dynamics, jaxdyn.inverse_dynamics_derivatives):
            got = jax.jit(jax.vmap(function, (None, 0, 0, 0)))(chain, q, v, a)
            for i in (0, 65):
                one = function(chain, q[i], v[i], a[i])
                assert error(jax.tree.map(lambda y, i=i: y[i], got), one) < 1e-12


@pytest.mark.nightly
def test_second_derivatives_of_a_batch_pass_through_a_loop():
    """Values that are one for all directions, with tangents that are not: forward over reverse."""
    q, qd, _ = random_state(3)

    def cost(taus):
        end, _ = jax.lax.scan(lambda v, tau: (v + 0.1 * jaxdyn.forward_dynamics(CHAIN, q, v, tau), None), qd, taus)
        return end @ end

    taus = jnp.ones((2, 3))
    hessian = jax.jit(jax.jacfwd(jax.grad(cost)))(taus)
    step = 1e-5 * jnp.zeros((2, 3)).at[0, 1].set(1.0)
    gradient = jax.jit(jax.grad(cost))
    assert relative((gradient(taus + step) - gradient(taus - step)) / 2e-5, hessian[:, :, 0, 1]) < 1e-7


def test_arguments_may_be_named():
    q, qd, qdd = random_state(3)
    assert (
        relative(jaxdyn.inverse_dynamics(chain=CHAIN, qdd=qdd, q=q, qd=qd), jaxdyn.inverse_dynamics(CHAIN, q, qd, qdd))
        == 0
    )


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="kernels are the CPU's")
def test_one_state_is_one_kernel():
    program = jax.jit(functools.partial(jaxdyn.inverse_dynamics, CHAIN)).lower(*random_state(3)).as_text()
    assert program.count('inlineable = "false"') > 0
    compiled = jax.jit(functools.partial(jaxdyn.forward_dynamics, CHAIN)).lower(*random_state(3)).compile().as_text()
    entry = compiled[compiled.index("ENTRY") :]
    assert entry.count(" call(") == 1
    assert " while(" not in entry


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("n", "dtype"),
    [
        (1, jnp.float64),
        (12, jnp.float32),
        (35, jnp.float32),
        (35, jnp.float64),
        (70, jnp.float32),
    ],
)
def test_whatever_the_size_it_compiles(n, dtype):
    """XLA refuses kernels with large operations, so that the sizes of chunks must be right for every function and robot."""
    chain = jax.tree.map(lambda x: x.astype(dtype), random_chain(n))
    every = {**FUNCTIONS, "forward_dynamics_derivatives": (jaxdyn.forward_dynamics_derivatives, 3)}
    for function, used in every.values():
        for count, over in ((5, None), (300, None), (70, 0)):
            robots = (
                chain if over is None else jax.tree.map(lambda x, c=count: jnp.broadcast_to(x, (c, *x.shape)), chain)
            )
            x = [jnp.ones((count, n), dtype)] * used
            call = jax.jit(
                jax.vmap(function, (over, *(0,) * used)), compiler_options={"xla_backend_optimization_level": 0}
            )
            out = call(robots, *x)
            assert all(y.shape[0] == count and y.dtype == dtype for y in jax.tree.leaves(out))


@pytest.mark.parametrize(("count", "size"), [(1000, 100), (100, 100), (17, 4)])
def test_groups_of_a_batch_are_of_about_one_size(monkeypatch, count, size):
    """No larger than asked for, but to whole fours, and few more of them than there have to be."""
    seen = []
    monkeypatch.setattr(lowering, "_in_turn", lambda *x: seen.append(x[-1]))
    whole = lambda *x: x
    run = lowering._grouped(whole, lambda x: x, [True], count, size)
    parts = min(jax.local_device_count("cpu"), 8)
    if count <= parts * size:
        assert run is whole
        return
    run(None)
    ((parts_of, blocks, lanes),) = seen
    assert parts_of == parts and lanes % 4 == 0 and lanes < size + 4
    assert parts * blocks * lanes >= count > parts * (blocks - 1) * size
    assert lanes - 4 < count / (parts * blocks)
