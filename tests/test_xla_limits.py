"""Programs on which XLA:CPU aborts, hangs or fails, each with a reproduction, and that the public API avoids them.

A kernel is a call that is marked `xla_cpu_small_call`; dynamics/engine/kernel.py lists what XLA asks of one.
With jaxlib 0.10.2 besides:

- two batches of LAPACK calls in one program: on two cores it has waited for ever, rarely; 30 calls of it here did not. A batch
  waits on a thread of XLA's pool for parts that it gives to that pool. The design of excitations has one decomposition.
- kernels of eight lanes of float32, which fill one vector register of 32 bytes: LLVM took more than 23 GB for the derivatives
  of a Panda's forward dynamics. The library makes none.
- flags that XLA does not know, as 0.11 `--xla_cpu_use_fusion_emitters`: XLA aborts. The library sets none.

A reproduction that runs through fails its test; with another jaxlib than 0.10 it skips it. Then see whether the library's
part can go.
"""

import importlib.metadata
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import random_chain
from jaxdyn.dynamics.engine import kernel, lanes
from jaxdyn.dynamics.engine.kernel import blank_results, compilable_lanes, computed_once, settled
from users_programs.environment import environment

pytestmark = pytest.mark.ci
KNOWN = importlib.metadata.version("jaxlib").startswith("0.10.")

START = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
jax.config.update("jax_enable_x64", True)
x = jnp.arange(4.0)

def kernel(function, *arguments):
    with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
        return jax.jit(function)(*arguments)
"""

# an arm whose last joint mimics the one before
MIMIC = """
import jaxdyn
from helpers import random_chain
arm = jaxdyn.with_coupling(random_chain(4, joints="revolute"), np.vstack([np.eye(3), [0, 0, -0.7]]))
q, still = 0.3 * jnp.arange(1.0, 4.0), jnp.zeros(3)
"""
PROGRAMS_OF_CONSTANTS = {
    "still": "jax.jit(lambda q: jaxdyn.inverse_dynamics(arm, q, still, still))(q)",
    "falling and held": "jax.jit(lambda q: (jaxdyn.forward_dynamics(arm, q, q, q), jaxdyn.gravity_force(arm, q)))(q)",
    "moving and held": "jax.jit(lambda q: (jaxdyn.bias_force(arm, q, q), jaxdyn.gravity_force(arm, q)))(q)",
}
FLAG = "a flag that it does not know"
TAKES = {  # in a kernel, what one might think it does not
    "a large constant": "kernel(lambda y: jnp.sum(jnp.sin(y) * jnp.asarray(many)) * y, x[1])",
    "a large constant as result": "kernel(lambda y: (jnp.asarray(many), y + 1), x[1])",
    "an empty array": "kernel(lambda x, e: jnp.sin(jnp.concatenate([x, e])), x, x[:0])",
    "an empty result": "kernel(lambda x: (jnp.sin(x), x[:0]), x)",
    "an operand as result": "kernel(lambda x: (x, x, jnp.sin(x)), x)",
    "a constant as result": "kernel(lambda x: (jnp.zeros(4), jnp.sin(x)), x)",
    "an operand for a result that nobody reads": "kernel(lambda x, y: (jnp.sin(x), jnp.cos(y)), x, x + 1)[0]",
    "an operand thrice": "kernel(lambda x, y, z: jnp.sin(x) + y * z, x, x, x)",
    "many operands and results": "kernel(lambda *x: x, *(x + k for k in range(1001)))",
    "a kernel": "kernel(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: kernel(jnp.sin, x) * 2, x), x)",
    "branches": "kernel(lambda x: jax.lax.switch(x[0].astype(int), [jnp.sin, jnp.cos, lambda x: jnp.ones(4)], x), x)",
    "a loop of no turns": "kernel(lambda x: jax.lax.scan(lambda c, y: (c + y, c), x, jnp.zeros((0, 4))), x)",
    "a loop that never starts": "kernel(lambda x: jax.lax.while_loop(lambda c: False, jnp.sin, x), x)",
    "a reduction to two": "kernel(lambda x: x + jnp.argmax(x), x)",
    "sums along": "kernel(jnp.cumsum, x)",
    "functions of LLVM's library": "kernel(lambda x: jnp.tanh(x) + jnp.arctan2(x, 2 * x) + jnp.mod(x, 0.7) + x**x, x)",
    "half precision": "kernel(lambda x: jnp.sin(x) * x, x.astype(jnp.bfloat16)).astype(float)",
}
UNUSED = "the product with zero that reads it is folded"
ABORTS = {  # the program, and what XLA says
    UNUSED: ("jax.jit(lambda x, k: kernel(lambda x, k: jnp.sin(x) + k * 0, x, k))(x, jnp.arange(4))", "explicit index"),
    "a call in a reduction": (
        "jax.jit(lambda x: jax.lax.reduce(x, 0.0, lambda a, b: kernel(lambda a, b: a + jnp.sin(b), a, b), (0,)))(x)",
        "operand_maps.size() == 1",
    ),
    FLAG: ('jax.devices("cpu")', "Unknown flag"),
}
REFUSES = {
    "512 KiB": ("kernel(lambda x: 2 * x, x)", "jnp.ones((300, 256))", "Invalid LLVM IR"),
    "200 000 operations": ("kernel(lambda x: jnp.sin(x).sum(1), x)", "jnp.ones((200, 150))", "Fusion kind"),
    "16 KB, much computed": (
        "kernel(lambda x: sum(x * x + k * x for k in range(30)), x)",
        "jnp.ones(1000)",
        "Invalid LLVM IR",
    ),
    "a matrix product": ("kernel(lambda x: x @ x + 1, x)", "jnp.ones((60, 60))", "Fusion kind"),
    "a small matrix product": ("kernel(lambda x: x @ x + 1, x)", "jnp.ones((8, 8))", "Fusion kind"),
    "LAPACK": ("kernel(jnp.linalg.cholesky, x)", "jnp.eye(6)", "materialize symbols"),
    "a sort": ("kernel(jnp.sort, x)", "jnp.ones(9)", "materialize symbols"),
    "a scatter": ("kernel(lambda x: x.at[jnp.asarray([0, 2])].add(1.0), x)", "jnp.ones(9)", "scatter"),
    "the largest entries": (
        "kernel(lambda x: jax.lax.top_k(x, 2)[0], x)",
        "jnp.ones(9, np.float32)",
        "materialize symbols",
    ),
    "a print": ("kernel(lambda x: (jax.debug.print('{}', x[0]), x + 1)[1], x)", "jnp.ones(9)", "materialize symbols"),
    "a callback": ("kernel(lambda x: jax.pure_callback(np.sin, x, x), x)", "jnp.ones(9)", "materialize symbols"),
    "an FFT": ("kernel(lambda x: jnp.fft.fft(x).real, x)", "jnp.ones(9)", "Fft"),
}


def run(program: str, **variables: str) -> subprocess.CompletedProcess:
    """A program in a process of its own, compiled as users do, with nothing from the cache."""
    own = {k: v for k, v in environment().items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    command = [sys.executable, "-c", START + program]
    return subprocess.run(command, env={**own, **variables}, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", ABORTS)
def test_what_xla_aborts_on(name):
    program, says = ABORTS[name]
    variables = {"XLA_FLAGS": "--xla_cpu_no_such_flag=true"} if name == FLAG else {}
    ended = run(program, **variables)
    if ended.returncode == 0 and not KNOWN:
        pytest.skip("this version of XLA no longer aborts here")
    assert ended.returncode != 0 and says in ended.stderr, ended.stderr[-2000:]


def test_what_xla_refuses_in_a_kernel():
    """By an exception: all in one process."""
    lines = [
        f"try: jax.block_until_ready(jax.jit(lambda x: {program})({argument})); print('ran: {name}')\n"
        f"except Exception as error: print('{name}:', str(error)[:400].replace(chr(10), ' '))"
        for name, (program, argument, _) in REFUSES.items()
    ]
    ended = run("\n".join(lines))
    assert ended.returncode == 0, ended.stderr[-2000:]
    mended = []
    for name, (_, _, says) in REFUSES.items():
        line = next(line for line in ended.stdout.splitlines() if line.startswith((f"{name}:", f"ran: {name}")))
        if line.startswith("ran") and not KNOWN:
            mended.append(name)
        else:
            assert says in line, line
    if mended:
        pytest.skip(f"this version of XLA takes {', '.join(mended)}")


@pytest.mark.nightly
def test_what_xla_takes_in_a_kernel():
    """With the numbers of the same program without kernels."""
    lines = [
        "many = np.random.default_rng(0).normal(size=2000)\nmarked = kernel",
        *(
            f"program = lambda x: {program}\n"
            "kernel = marked\nfound = jax.jit(lambda x: program(x))(x)\n"
            "kernel = lambda function, *arguments: function(*arguments)\nright = jax.jit(lambda x: program(x))(x)\n"
            "for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):\n"
            f"    np.testing.assert_allclose(a, b, rtol=0.05 if {name == 'half precision'} else 1e-12, err_msg={name!r})"
            for name, program in TAKES.items()
        ),
    ]
    ended = run("\n".join(lines))
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=() if x == "falling and held" else pytest.mark.nightly) for x in PROGRAMS_OF_CONSTANTS],
)
def test_constant_arguments_of_kernels(name):
    """As they are, and without the barrier, where XLA aborts."""
    program = f"print({PROGRAMS_OF_CONSTANTS[name]})"
    ended = run(MIMIC + program)
    assert ended.returncode == 0, ended.stderr[-2000:]
    bare = run(f"jax.lax.optimization_barrier = lambda x: x\n{MIMIC}{program}")
    if bare.returncode == 0 and not KNOWN:
        pytest.skip("this version of XLA no longer aborts here")
    assert bare.returncode != 0 and "explicit index" in bare.stderr, bare.stderr[-2000:]


def test_arguments_that_a_kernel_need_not_read():
    """The library's kernels, with an argument whose product with zero is folded."""
    program = """
from jaxdyn.dynamics.engine.lanes import by_batch
folded = lambda x, k: jnp.sin(x) + k * 0
k = jnp.arange(4)
print(jax.jit(by_batch(folded, size=lambda x: 10))(x, k) - jnp.sin(x))
"""
    ended = run(program)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == ["[0.", "0.", "0.", "0.]"]


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two threads")
def test_batches_of_lapack_calls_in_the_library():
    """The programs with two decompositions of a batch that the library has, many times: none waits for ever."""
    program = """
import jaxdyn
from helpers import random_chain
arm = random_chain(6, joints="revolute")
rows = jnp.asarray(np.random.default_rng(0).normal(size=(2, 256, 6)))
task = jax.jit(jax.vmap(lambda q, v: jaxdyn.dynamics.operational_space(arm, q, v)))
for _ in range(50):
    jax.block_until_ready(task(*rows))
"""
    ended = run(program)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_the_library_sets_no_flags():
    """XLA's flags are the user's: a name that another version does not know ends the process."""
    reads = 'os.environ.get("XLA_FLAGS", "")'  # the only mention allowed
    text = [path.read_text().replace(reads, "") for path in (ROOT / "jaxdyn").rglob("*.py")]
    assert not any("XLA_FLAGS" in part for part in text)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is one of Linux")
@pytest.mark.parametrize("count", [8, 12])
def test_a_few_states_in_float32_compile_in_little_memory(count):
    """The limit applies to the address space: 8 GB, of which 6 suffice."""
    program = f"""
import resource
import jaxdyn
jax.config.update("jax_enable_x64", False)
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
robot, states = jaxdyn.robots.panda(), jnp.ones((3, {count}, 7))
derivatives = jax.jit(jax.vmap(lambda q, qd, tau: jaxdyn.forward_dynamics_derivatives(robot, q, qd, tau)[0]))
one = jaxdyn.forward_dynamics(robot, *states[:, 0])
jax.block_until_ready(derivatives(*states))
print("compiled", one.dtype)
"""
    ended = run(program)
    assert "compiled float32" in ended.stdout, ended.stderr[-2000:]


@pytest.mark.parametrize("keep", [True, False])
def test_xla_removes_values_that_a_loop_carries_unread_unless_they_are_kept(keep):
    """The sine is carried; the results do not need it."""

    def loop(x):
        last, out = jax.lax.scan(lambda carry, y: (jnp.sin(y), 3 * y), x[0], x)
        return computed_once((last,), x, out) if keep else out

    x = jnp.linspace(0.0, 1.0, 5)
    compiled = jax.jit(loop).lower(x).compile()
    assert ("sine(" in compiled.as_text()) == keep
    np.testing.assert_array_equal(compiled(x), 3 * x)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("around", [lambda f: f, jax.vmap, lambda f: lambda x: jax.jvp(f, (x,), (x,))])
def test_xla_repeats_operations_in_the_results_that_use_them_unless_they_are_settled(keep, around):
    """Two reductions use the sum of two squares, each in a fusion of its own."""

    def results(x):
        (square,) = settled(x * x + 2) if keep else (x * x + 2,)
        return jnp.sum(square, axis=0), jnp.max(square, axis=0)

    x = jnp.ones((3, 4, 5))
    compiled = jax.jit(around(results)).lower(x).compile()
    assert ("conditional(" in compiled.as_text()) == keep
    for found, expected in zip(jax.tree.leaves(compiled(x)), jax.tree.leaves(jax.jit(around(results))(x)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_results_that_a_loop_writes_differ_in_length():
    blank = blank_results([3, 3, 2], [jnp.ones(4), jnp.ones(4), jnp.ones(())])
    assert [x.shape for x in blank] == [(4, 4), (5, 4), (5,)]
    assert not any(x.any() for x in blank)


def test_no_kernel_has_eight_lanes_of_float32():
    single, double = [jnp.ones(2, jnp.float32)], [jnp.ones(2)]
    assert compilable_lanes(8, 64, single) == 16
    assert compilable_lanes(8, 15, single) == 7
    assert compilable_lanes(8, 64, double) == 8
    assert [compilable_lanes(n, 64, single) for n in (1, 7, 16, 64)] == [1, 7, 16, 64]


@pytest.mark.ci
@pytest.mark.parametrize("n", [7, pytest.param(40, marks=pytest.mark.nightly)])
def test_no_operation_of_a_kernel_is_large_enough_to_be_distributed_over_threads(n, monkeypatch):
    """The declared sizes of functions keep results of operations below 512 KiB (point 3 in engine/kernel.py)."""
    largest = []

    def measured(function, lanes=None):
        def call(*variables):
            program = jax.make_jaxpr(function)(*variables).jaxpr
            largest.append(max(x.aval.size * x.aval.dtype.itemsize for e in operations(program) for x in e.outvars))
            return function(*variables)

        return call

    monkeypatch.setattr(lanes, "as_kernel", measured)
    assert kernel.LARGEST * 8 < 512 * 1024
    chain, state = random_chain(n), [jax.ShapeDtypeStruct((1024, n), float)] * 3
    for function, count in (
        (jaxdyn.inverse_dynamics, 3),
        (jaxdyn.forward_dynamics, 3),
        (jaxdyn.crba, 1),
        (jaxdyn.mass_matrix, 1),
        (jaxdyn.coriolis_matrix, 2),
        (jaxdyn.regressor, 3),
        (jaxdyn.inverse_dynamics_derivatives, 3),
        (jaxdyn.forward_dynamics_derivatives, 3),
    ):
        jax.eval_shape(jax.vmap(lambda *x, f=function: f(chain, *x)), *state[:count])
    assert largest and max(largest) < 512 * 1024


def operations(program):
    """The operations of a program and of the programs that they call, without those that only call others."""
    for equation in program.eqns:
        inner = [x.jaxpr for x in equation.params.values() if hasattr(x, "jaxpr")]
        yield from (e for x in inner for e in operations(x))
        if not inner:
            yield equation


def test_kernels_with_loops_over_lanes_need_no_communication_between_devices():
    """Searches end when all lanes have found a point, closed forms decide once for all results; lanes are on two devices."""
    program = """
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import jaxdyn
from jaxdyn.geometry import Fixed, Shapes, distances
arm, kinds = jaxdyn.textbook.pendulum(3), ("capsule", "cylinder", "box")
size = jnp.array([[0, 0, 0.1], [0.1, 0.1, 0.1], [0.1, 0.1, 0.2]])
fixed = Fixed(kinds, (0, 2, -1), tuple("abc"), ((0, 1), (1, 2)))
shapes = Shapes(jnp.tile(jnp.eye(4), (3, 1, 1)), size, jnp.zeros(3), (), fixed)
gradient = jax.jit(jax.vmap(jax.grad(lambda q: jnp.sum(distances(arm, shapes, q) ** 2))))
q = jax.random.normal(jax.random.key(0), (64, 3))
expected = gradient(q)
for axes in AxisType.Auto, AxisType.Explicit:
    mesh = jax.make_mesh((2,), ("robots",), axis_types=(axes,))
    with jax.set_mesh(mesh):
        found = gradient(jax.device_put(q, NamedSharding(mesh, PartitionSpec("robots"))))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    print("equal on", len(found.sharding.device_set), "devices")
"""
    ended = run(program, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert ended.stdout.count("equal on 2 devices") == 2, ended.stderr[-2000:]
