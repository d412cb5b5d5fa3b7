"""`kernel_vmap`: the kernel, run by Pallas' interpreter, gives what `jax.vmap` gives, and says what it cannot hold."""

import contextlib
import dataclasses
import importlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import jaxdyn
from helpers import mechanism_state, random_chain, random_mechanism, relative
from jaxdyn import FallbackWarning, ModelError, source
from jaxdyn.dynamics.engine.kernel import by_platform
from jaxdyn.parallel import kernel_vmap

_kernel_parts = importlib.import_module("jaxdyn.parallel.kernels")

ELBOW = jaxdyn.textbook.planar_elbow()
ARM = random_chain(3, 1)  # revolute, prismatic, helical; friction of every kind, springs
METHODS = "semi_implicit_euler", "explicit_euler", "rk4", "implicit_damping"
RNG = np.random.default_rng(0)
# compiled for the interpreter, such programs take up to a minute: the tier ci has one method in one precision
DTYPES = pytest.param(np.float64, marks=pytest.mark.ci), pytest.param(np.float32, marks=pytest.mark.nightly)


def states(n: int, count: int = 5):
    return tuple(RNG.normal(size=(2, count, n)))


def damped(t, q, qd):
    return jnp.sin(3 * t) - 2 * q - qd


def agrees(function, *arguments, in_axes=0, tolerance=1e-12):
    """The kernel against `jax.vmap`; no operation may have made it fall back."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = kernel_vmap(function, in_axes, interpret=True)(*arguments)
    wanted = jax.jit(jax.vmap(function, in_axes))(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == y.dtype
        assert relative(x, y) < tolerance


def test_rollouts_of_an_arm():
    """More states than a block has, in torque tables and rows kept now and then."""
    q, qd = states(2, 40)
    agrees(lambda q, qd: jaxdyn.rollout(ELBOW, q, qd, damped, 1e-2, 30), q, qd)
    torques = RNG.normal(size=(40, 30, 2))
    agrees(lambda q, qd, tau: jaxdyn.rollout(ELBOW, q, qd, tau, 1e-2, every=10), q, qd, torques)


def test_what_no_kernel_holds_is_named_and_computed_by_vmap():
    q, qd = states(2)

    def solved(q, qd):
        return jnp.linalg.solve(jnp.outer(q, q) + jnp.eye(2), qd)

    with pytest.warns(FallbackWarning, match=r"solved falls back to jax\.vmap.*'lu'"):
        found = kernel_vmap(solved, interpret=True)(q, qd)
    assert relative(found, jax.vmap(solved)(q, qd)) < 1e-14


@pytest.fixture
def made(monkeypatch):
    """The kernels made, each by the shapes of what it reads; on a machine with a GPU, each is made for two platforms."""
    kernels, call = set(), _kernel_parts.call_kernel

    def succeeded(function, mapped, variables, interpret):
        found = call(function, mapped, variables, interpret)
        kernels.add((mapped, *(x.shape for x in variables)))
        return found

    monkeypatch.setattr(_kernel_parts, "call_kernel", succeeded)
    return kernels


@pytest.mark.nightly
def test_in_a_rollout_that_falls_back_the_dynamics_are_kernels(made):
    q, qd = states(2)
    policy = lambda t, q, qd: -jnp.sort(q) - qd
    roll = lambda q, qd: jaxdyn.rollout(ELBOW, q, qd, policy, 1e-2, 4, every=2)
    with pytest.warns(FallbackWarning, match="'sort'"):
        found = kernel_vmap(roll, interpret=True)(q, qd)
    assert len(made) == 1  # forward dynamics, in the body of the loop over time
    for x, y in zip(found, jax.vmap(roll)(q, qd), strict=True):
        assert relative(x, y) < 1e-12


@pytest.mark.ci
def test_in_the_form_for_gpus_of_a_solver_the_dynamics_are_kernels(made):
    q, qd = states(2)
    dynamics = jax.vmap(lambda q, qd: jaxdyn.forward_dynamics(ELBOW, q, qd, -qd))
    solve = lambda q, qd: by_platform(lambda q, qd: jnp.zeros_like(q), dynamics, q, qd)
    found = _kernel_parts.with_kernels(lambda *x: [solve(*x)], True)(q, qd)
    assert len(made) == 1 and relative(found[0], dynamics(q, qd)) < 1e-12


def test_a_derivative_that_no_kernel_holds_is_named_as_such():
    @jax.custom_jvp
    def smooth(x):
        return jnp.sin(x)

    smooth.defjvp(lambda x, t: (smooth(*x), t[0] * jnp.sort(jnp.cos(x[0]))))
    x = jnp.linspace(0.1, 1, 6).reshape(2, 3)
    over = kernel_vmap(smooth, interpret=True)
    with pytest.warns(FallbackWarning, match=r"kernel_vmap of a derivative of smooth falls back to jax\.vmap.*'sort'"):
        found = jax.grad(lambda x: over(x).sum())(x)
    assert relative(found, jnp.sort(jnp.cos(x), -1)) < 1e-14


def test_sums_at_indices_in_single_precision_while_double_is_enabled():
    x = jnp.asarray(RNG.normal(size=(5, 3)), np.float32)
    agrees(lambda x: jnp.zeros(2, x.dtype).at[jnp.array([0, 1, 0])].add(x), x, tolerance=1e-6)


@pytest.fixture
def loops_over_links(monkeypatch):
    """The kernels of large robots: links in a loop."""
    monkeypatch.setattr(source, "STRAIGHT", 0)


@pytest.mark.usefixtures("loops_over_links")
@pytest.mark.nightly
def test_links_of_large_robots_stay_loops():
    q, qd = states(3)
    agrees(lambda q, qd: jaxdyn.forward_dynamics(ARM, q, qd, -qd), q, qd)


@pytest.mark.nightly
@pytest.mark.usefixtures("loops_over_links")
@pytest.mark.parametrize("free", [True, False])
def test_links_of_large_trees_stay_loops(free):
    chain = random_mechanism(0, free=free, coupled=False)
    pairs = [mechanism_state(chain, k)[:2] for k in range(3)]
    q, qd = (jnp.stack(x) for x in zip(*pairs, strict=True))
    agrees(lambda q, qd: (jaxdyn.inverse_dynamics(chain, q, qd, qd), jaxdyn.step(chain, q, qd, -qd, 1e-3)), q, qd)


@pytest.mark.nightly
@pytest.mark.usefixtures("loops_over_links")
def test_gradients_with_loops_over_links():
    q, qd = states(3)
    total = lambda over: lambda q, qd: jnp.sum(over(q, qd) ** 2)
    over = both(lambda q, qd: jaxdyn.forward_dynamics(ARM, q, qd, -qd))
    alike(lambda f: lambda: jax.grad(total(f), (0, 1))(q, qd), *over)


@pytest.mark.ci
def test_rows_of_booleans():
    """Known and computed ones, in loops that are not unrolled."""
    known = RNG.random(500) > 0.5

    def chosen(x):
        step = lambda s, rows: (jnp.where(rows[0] | rows[1], s + 1.0, s * x[0]), s > 0)
        end, signs = jax.lax.scan(step, x[0], (known, jnp.outer(jnp.ones(250), x).ravel() > 0))
        return end, jax.lax.scan(lambda s, up: (s + jnp.where(up, x[1], -1.0), None), 0.0, signs)[0]

    agrees(chosen, *states(2)[:1])


def turned(q, gain):
    """A loop, and results of which some have no derivative."""
    q, rows = jax.lax.scan(lambda q, _: (jnp.sin(q) * gain + q[::-1], q[0]), q, None, length=6)
    return {"q": q, "sum": jnp.sum(rows**2), "up": q[-1] > 0, "count": jnp.int32(3)}


def both(function, in_axes=0):
    """The batched function as kernels and by `jax.vmap`; nothing may make a kernel fall back."""
    return kernel_vmap(function, in_axes, interpret=True), jax.vmap(function, in_axes)


def alike(derivative, *functions, tolerance=1e-11):
    """A derivative of both is the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found, wanted = (jax.jit(derivative(f))() for f in functions)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == y.dtype and relative(x, y) < tolerance


def test_gradients():
    """With respect to states and to what all states share; parts of the result do not enter."""
    q, _ = states(2)
    cost = lambda over: lambda q, gain: jnp.sum(over(q, gain)["q"][:, -1] ** 2)
    alike(lambda f: lambda: jax.grad(cost(f), (0, 1))(q, 2.0), *both(turned, (0, None)))


@pytest.mark.ci
@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.nightly), np.float64])
def test_derivatives_of_all_kinds(dtype):
    q, direction = (x.astype(dtype) for x in states(2, 3))
    gain = np.ones(2, dtype)
    functions = both(turned, (0, None))
    smooth = lambda f: lambda *x: {k: v for k, v in f(*x).items() if k in ("q", "sum")}
    total = lambda f: lambda *x: jnp.sum(smooth(f)(*x)["sum"] ** 2)
    kinds = {
        "jvp": lambda f: lambda: jax.jvp(smooth(f), (q, gain), (direction, gain)),
        "jvp of one argument": lambda f: lambda: jax.jvp(lambda q: smooth(f)(q, gain), (q,), (direction,))[1],
        "jacfwd": lambda f: lambda: jax.jacfwd(smooth(f), 1)(q, gain),
        "jacrev": lambda f: lambda: jax.jacrev(lambda g: smooth(f)(q, g)["sum"])(gain),
        "hessian": lambda f: lambda: jax.hessian(total(f), 1)(q, gain),
        "reverse over forward": lambda f: lambda: jax.jacrev(jax.jacfwd(total(f), 1), 1)(q, gain),
        "reverse over reverse": lambda f: lambda: jax.grad(lambda g: jnp.sum(jax.grad(total(f))(q, g) ** 2))(gain),
        "vmap of grad": lambda f: lambda: jax.vmap(jax.grad(total(f), 1), (None, 0))(q, np.stack([gain, 2 * gain])),
        "linear transpose": lambda f: (
            lambda: jax.linear_transpose(lambda d: jax.jvp(lambda g: smooth(f)(q, g)["q"], (gain,), (d,))[1], gain)(
                jnp.ones((3, 2), dtype)
            )
        ),
    }
    for kind in kinds.values():
        alike(kind, *functions, tolerance=1e-11 if dtype is np.float64 else 1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_of_rollouts(dtype):
    """With respect to the start, gains, one robot for all states, and robots per state, with steps between stored rows."""
    q, _ = (x.astype(dtype) for x in states(2))
    elbow = jax.tree.map(lambda x: jnp.asarray(x, dtype), ELBOW)
    gain = np.asarray([2.0, 1.0], dtype)

    def roll(q, gain, inertia):
        robot = dataclasses.replace(elbow, inertia=inertia)
        return jaxdyn.rollout(robot, q, 0 * q, lambda t, q, qd: -gain * q, jnp.asarray(1e-2, dtype), 4, every=2)[0]

    square = lambda f: lambda *x: jnp.sum(f(*x)[:, -1] ** 2)
    tolerance = 1e-11 if dtype is np.float64 else 1e-5
    over = both(roll, (0, None, None))
    alike(lambda f: lambda: jax.grad(square(f), (0, 1, 2))(q, gain, elbow.inertia), *over, tolerance=tolerance)
    inertias = elbow.inertia[None] * RNG.uniform(0.9, 1.1, (5, 2, 1)).astype(dtype)
    alike(lambda f: lambda: jax.grad(square(f), 2)(q, gain, inertias), *both(roll, (0, None, 0)), tolerance=tolerance)


def test_derivatives_of_complex_results():
    x = jnp.linspace(0.1, 1, 5)
    turned = lambda y: jax.lax.complex(y * jnp.cos(2 * y), y * jnp.sin(2 * y))
    for over in (kernel_vmap, jax.vmap):
        falls_back = over is kernel_vmap and jax.default_backend() == "gpu"  # on a CPU, no kernel is tried
        with pytest.warns(FallbackWarning, match="complex128") if falls_back else contextlib.nullcontext():
            found = jax.grad(lambda x, over=over: jnp.real(over(turned)(x)).sum())(x)
        assert relative(found, jnp.cos(2 * x) - 2 * x * jnp.sin(2 * x)) < 1e-12


@pytest.mark.ci
def test_gradients_with_respect_to_what_a_function_closes_over():
    q, _ = states(2)
    total = lambda over: lambda x: jnp.sum(over(lambda q: turned(q, x)["q"])(q) ** 2)
    found, wanted = (jax.grad(total(over))(2.0) for over in (lambda f: kernel_vmap(f, interpret=True), jax.vmap))
    assert relative(found, wanted) < 1e-12


@pytest.mark.nightly
def test_gradients_of_shards_are_kernels():
    """Also for gains that all devices share, whose cotangents are summed over the devices."""
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(AxisType.Auto,))
    rows, everywhere = PartitionSpec("batch"), PartitionSpec()
    q, _ = states(2)

    def roll(q, gain):
        return jaxdyn.rollout(ELBOW, q, 0 * q, lambda t, q, qd: -gain * q, 1e-2, 2, every=2)[0][-1]

    def total(over):
        shards = jax.shard_map(over, mesh=mesh, in_specs=(rows, everywhere), out_specs=rows, check_vma=False)
        return lambda q, gain: jnp.sum(shards(q, gain) ** 2)

    alike(lambda f: lambda: jax.grad(total(f), (0, 1))(q, np.array([2.0, 1.0])), *both(roll, (0, None)))


@pytest.mark.nightly
def test_derivatives_of_the_equations_of_motion():
    q, qd = states(3)
    for function in (jaxdyn.inverse_dynamics, jaxdyn.forward_dynamics):
        over = both(lambda q, qd, a, f=function: f(ARM, q, qd, a))
        alike(lambda f: lambda: jax.grad(lambda *x: jnp.sum(f(*x) ** 2), (0, 1, 2))(q, qd, qd), *over)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_programs_for_the_cpu_have_no_kernel_and_those_for_a_gpu_one():
    function = kernel_vmap(lambda q: jaxdyn.rollout(ELBOW, q, 0 * q, damped, 1e-2, 100, every=100))
    traced = jax.jit(function).trace(jax.ShapeDtypeStruct((64, 2), float))
    text = lambda platform: traced.lower(lowering_platforms=(platform,)).as_text()
    assert "triton" not in text("cpu") and "stablehlo.while" in text("cpu")
    q = states(2)[0]
    assert relative(function(q)[0], jax.vmap(lambda q: function(q[None])[0][0])(q)) < 1e-13
    if jax.__version_info__ >= (0, 11):
        pytest.skip("jax 0.11 lowers kernels for a GPU only where it sees one")
    assert text("cuda").count("stablehlo.custom_call") == 1 and "stablehlo.while" not in text("cuda")


def test_batches_that_are_none():
    over = kernel_vmap(lambda x, y: x + y, interpret=True)
    with pytest.raises(ModelError, match="same number of rows"):
        over(np.ones(3), np.ones(2))
    with pytest.raises(ModelError, match="0 and None"):
        kernel_vmap(lambda x: x, 1)(np.ones((3, 3)))


def test_whole_numbers_conditions_and_places():
    """A scan of the user's own: counters, tables by number, choices, rows that are kept, and what is the same in all turns."""
    x = RNG.normal(size=(33, 3))
    table = jnp.asarray(RNG.normal(size=(20, 3)))

    def function(x):
        def turn(carry, row):
            k, y, up = carry
            y = jax.lax.cond(y[0] > 0, lambda y: y * 0.9 + table[k], lambda y: jnp.tanh(y) - row, y)
            y = jnp.where(k % 2 == 0, y, -y) + jnp.where(up, 0.1, 0.0)
            kept = {"k": k, "y": y[:2], "up": up, "none": x[1], "whole": jnp.int32(3 * y[1]) // 2}
            return (k + 1, y, y[1] > 0), kept

        (k, y, up), rows = jax.lax.scan(turn, (0, x, x[0] > 0), jnp.flip(table, 0))
        return k, y, up, rows

    agrees(function, x)


@pytest.mark.parametrize(
    "method", [pytest.param(x, marks=() if x == "implicit_damping" else pytest.mark.nightly) for x in METHODS]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_integrators(method, dtype):
    arm = jax.tree.map(lambda x: jnp.asarray(x, dtype), ARM)
    roll = lambda q, qd: jaxdyn.rollout(arm, q, qd, damped, jnp.asarray(1e-3, dtype), 20, method)
    q, qd = (x.astype(dtype) for x in states(3))
    agrees(roll, q, qd, tolerance=1e-11 if dtype is np.float64 else 1e-5)


@pytest.mark.nightly
def test_checkpoints_and_rows():
    q, qd = states(2)
    for every, checkpoint in ((1, 2), (4, 2), (5, 1), (20, None)):
        torques = RNG.normal(size=(20, 2))
        roll = lambda q, qd, u, e=every, c=checkpoint: jaxdyn.rollout(ELBOW, q, qd, u, 1e-2, every=e, checkpoint=c)
        agrees(roll, q, qd, torques, in_axes=(0, 0, None))


@pytest.mark.nightly
def test_policies():
    q, qd = states(2)
    weights = [RNG.normal(size=s) for s in ((8, 4), (8,), (2, 8))]
    gains = RNG.normal(size=(5, 2, 4))

    def network(weights, q, qd):
        first, bias, second = weights
        policy = lambda t, q, qd: second @ jnp.tanh(first @ jnp.concatenate([q, qd]) + bias)
        return jaxdyn.rollout(ELBOW, q, qd, policy, 1e-2, 20)

    agrees(network, weights, q, qd, in_axes=(None, 0, 0))
    linear = lambda gain, q, qd: jaxdyn.rollout(
        ELBOW, q, qd, lambda t, q, qd: gain @ jnp.concatenate([q, qd]), 1e-2, 20, every=20
    )
    agrees(linear, gains, q, qd)
    light = lambda q, qd: jaxdyn.rollout(
        ARM, q, qd, lambda t, q, qd: jaxdyn.gravity_force(ARM, q) - qd, 1e-3, 20, every=20
    )
    agrees(light, *states(3))


@pytest.mark.nightly
def test_robots_that_are_arguments():
    q, qd = states(3)
    roll = lambda robot, q, qd: jaxdyn.rollout(robot, q, qd, damped, 1e-3, 10)
    agrees(roll, ARM, q, qd, in_axes=(None, 0, 0))
    inertias = ARM.inertia[None] * RNG.uniform(0.9, 1.1, (5, 3, 1))
    agrees(lambda x, q, qd: roll(dataclasses.replace(ARM, inertia=x), q, qd), inertias, q, qd)
    heavy = lambda s: lambda q: roll(dataclasses.replace(ARM, gravity=s * ARM.gravity), q, q)[0]
    scaled = jax.jit(lambda s: kernel_vmap(heavy(s), interpret=True)(q))  # closes over what is traced outside
    assert relative(scaled(0.5), jax.vmap(heavy(0.5))(q)) < 1e-12


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["tree", "floating"])
def test_trees_and_floating_bases(kind):
    chain = random_mechanism(0, free=kind == "floating", coupled=False)
    pairs = [mechanism_state(chain, k)[:2] for k in range(3)]
    q, qd = (jnp.stack(x) for x in zip(*pairs, strict=True))
    agrees(lambda q, qd: jaxdyn.rollout(chain, q, 0.1 * qd, lambda t, q, qd: -qd, 1e-3, 4), q, qd)


@pytest.mark.nightly
@pytest.mark.parametrize("checkpoint", [None, 1, 2])
def test_gradients_inside_a_kernel(checkpoint):
    """Forward and back in one kernel: what the way back needs is written to memory and read from there."""
    q, qd = states(2)

    def cost(q, qd, gain):
        policy = lambda t, q, qd: -gain * q - qd
        return jnp.sum(jaxdyn.rollout(ELBOW, q, qd, policy, 1e-2, 20, checkpoint=checkpoint)[0][-1] ** 2)

    agrees(jax.value_and_grad(cost, (0, 1, 2)), q, qd, np.array([1.0, 2.0]), in_axes=(0, 0, None))


@pytest.mark.nightly
def test_equations_of_motion():
    q, qd = states(3)
    for function in (jaxdyn.inverse_dynamics, jaxdyn.forward_dynamics, jaxdyn.regressor):
        agrees(lambda q, qd, a, f=function: f(ARM, q, qd, a), q, qd, qd)
    agrees(lambda q: (jaxdyn.crba(ARM, q), jaxdyn.mass_matrix(ARM, q)), q)


@pytest.mark.ci
def test_batches_of_batches_and_of_kernels():
    q = RNG.normal(size=(3, 4, 2))
    over = kernel_vmap(lambda q: jaxdyn.rollout(ELBOW, q, 0 * q, damped, 1e-2, 10)[0], interpret=True)
    assert relative(jax.vmap(over)(q).reshape(12, 11, 2), over(q.reshape(12, 2))) < 1e-13
