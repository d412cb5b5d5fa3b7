"""What XLA:CPU aborts on, hangs on or refuses, each with a reproduction, and that users of the public API do not get there.

A kernel is a call that is marked `xla_cpu_small_call` (dynamics/lowering.py). With jaxlib 0.10.2:

- a kernel with a parameter that nothing in it reads: XLA aborts. `lowering._kernel` returns an entry of each argument.
- constant arguments of a kernel, which XLA moves inside, so that nothing reads the parameter: XLA aborts. There is a barrier
  before the call.
- an operation in a kernel that would be spread over threads (512 KiB, or 200 000 operations and more computed than read), a
  product of larger matrices, LAPACK, a sort, a scatter, an FFT in a kernel: XLA refuses with an exception. Functions of
  `by_batch` are written without, and leave kernels where their `size` times the lanes is above `lowering.LARGEST`.
- two batches of LAPACK calls in one program: on two cores it has waited for ever, rarely; 30 calls of it here did not. A batch
  waits on a thread of XLA's pool for parts that it gives to that pool. The design of excitations has one decomposition.
- flags that XLA does not know, as 0.11 `--xla_cpu_use_fusion_emitters`: XLA aborts. The library sets none.

A reproduction that runs through fails its test; with another jaxlib than 0.10 it skips it. Then see whether the library's
part can go.
"""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from data_paths import ROOT
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
UNUSED = "the product with zero that reads it is folded"
ABORTS = {  # the program, and what XLA says
    UNUSED: ("jax.jit(lambda x, k: kernel(lambda x, k: jnp.sin(x) + k * 0, x, k))(x, jnp.arange(4))", "explicit index"),
    "a flag that it does not know": ('jax.devices("cpu")', "Unknown flag"),
}
REFUSES = {
    "512 KiB": ("kernel(lambda x: 2 * x, x)", "jnp.ones((300, 256))", "Invalid LLVM IR"),
    "200 000 operations": ("kernel(lambda x: jnp.sin(x).sum(1), x)", "jnp.ones((200, 150))", "Fusion kind"),
    "a matrix product": ("kernel(lambda x: x @ x + 1, x)", "jnp.ones((60, 60))", "Fusion kind"),
    "LAPACK": ("kernel(jnp.linalg.cholesky, x)", "jnp.eye(6)", "materialize symbols"),
    "a sort": ("kernel(jnp.sort, x)", "jnp.ones(9)", "materialize symbols"),
    "a scatter": ("kernel(lambda x: x.at[jnp.asarray([0, 2])].add(1.0), x)", "jnp.ones(9)", "scatter"),
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
    variables = {} if name == UNUSED else {"XLA_FLAGS": "--xla_cpu_no_such_flag=true"}
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


@pytest.mark.parametrize("name", PROGRAMS_OF_CONSTANTS)
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
    """The library's kernels, with an argument whose product with zero is folded: alone, and called from the outside."""
    program = """
from jaxdyn.dynamics.lowering import by_batch, over_lanes
folded = lambda x, k: jnp.sin(x) + k * 0
k = jnp.arange(4)
print(jax.jit(by_batch(folded, size=lambda x: 10))(x, k) - jnp.sin(x))
print(jax.jit(over_lanes(folded, kernel=True))(x, k) - jnp.sin(x))
"""
    ended = run(program)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == ["[0.", "0.", "0.", "0.]"] * 2


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two threads")
def test_batches_of_lapack_calls_in_the_library():
    """The programs with two decompositions of a batch that the library has, many times: none waits for ever."""
    program = """
import jaxdyn
from helpers import random_chain
arm = random_chain(6, joints="revolute")
rows = jnp.asarray(np.random.default_rng(0).normal(size=(2, 256, 6)))
task = jax.jit(jax.vmap(lambda q, v: jaxdyn.operational_space(arm, q, v)))
for _ in range(50):
    jax.block_until_ready(task(*rows))
"""
    ended = run(program)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_the_library_sets_no_flags():
    """XLA's flags are the user's: a name that another version does not know ends the process."""
    text = [path.read_text() for path in (ROOT / "jaxdyn").rglob("*.py")]
    assert not any("XLA_FLAGS" in part for part in text)
