"""Programs for an H100, compiled without one: kernels, bytes, registers and spills, as `jax[cuda12]` and its ptxas report them.

    pip install -e ".[test]" "jax[cuda12]"             (neither a GPU nor a driver is needed)
    python -m tests.benchmarks gpu --ahead-of-time     all programs; --write puts the table into docs/benchmarks.md

It must run in a process of its own, because JAX reads the environment when it starts. Kernels of loops count once per
iteration. The least time is the larger of the bytes divided by 3.35 TB/s and 2.5 us per kernel, kernel after kernel. How fast a
kernel computes only a GPU shows.
"""

import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

LAUNCH, BANDWIDTH, BATCH, STEPS = 2.5e-6, 3.35e12, 65536, 1000
H100 = """gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000
  l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
WIDTH = {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "u32": 4, "pred": 1}
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota", "partition-id"}


def missing() -> str | None:
    """What prevents compiling for a GPU, or None."""
    try:
        found = [importlib.util.find_spec(x) for x in ("jax_plugins.xla_cuda12", "nvidia.cuda_nvcc")]
    except ModuleNotFoundError:
        found = [None]
    return None if all(found) else 'JAX\'s CUDA plugin is not installed: pip install "jax[cuda12]"'


def programs() -> dict:
    """Functions of a Panda, in float32, with the shapes of their arguments."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import jaxdyn
    from jaxdyn.parallel import kernel_vmap

    robot = jax.tree.map(lambda x: np.asarray(x, np.float32), jaxdyn.robots.panda())
    dt, three = np.float32(1e-3), [(BATCH, robot.n)] * 3
    policy = lambda t, q, qd: -qd

    def swing(q, qd, gain):
        pd = lambda t, q, qd: -gain[0] * q - gain[1] * qd
        end = jaxdyn.rollout(robot, q, qd, pd, dt, STEPS, every=STEPS)
        return jnp.sum(end[0][-1] ** 2) + jnp.sum(end[1][-1] ** 2)

    of_state = {
        "inverse dynamics": lambda *x: jaxdyn.inverse_dynamics(robot, *x),
        "forward dynamics": lambda *x: jaxdyn.forward_dynamics(robot, *x),
        "mass matrix, composite bodies": lambda q, *_: jaxdyn.crba(robot, q),
        "mass matrix, differentiation": lambda q, *_: jaxdyn.mass_matrix(robot, q),
        "regressor": lambda *x: jaxdyn.regressor(robot, *x),
        "derivatives of inverse dynamics": lambda *x: jaxdyn.inverse_dynamics_derivatives(robot, *x),
        "derivatives of forward dynamics": lambda *x: jaxdyn.forward_dynamics_derivatives(robot, *x),
        "step": lambda *x: jaxdyn.step(robot, *x, dt),
        f"rollout, {STEPS} steps": lambda q, qd, _: jaxdyn.rollout(robot, q, qd, policy, dt, STEPS, every=STEPS),
    }
    found = {name: (kernel_vmap(f), three) for name, f in of_state.items()}
    over = kernel_vmap(swing, (0, 0, None))
    gradient = jax.grad(lambda *x: jnp.sum(over(*x)), (0, 1, 2))
    return {**found, f"gradient of a rollout, {STEPS} steps": (gradient, [*three[:2], (2, robot.n)])}


def compiled(function, shapes, dump: Path) -> dict:
    """Kernels, megabytes, least time, registers, spills and processor time of a program of float32 arrays."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies

    device = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
    mesh = topologies.make_mesh(device, (1,), ("device",))
    one = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    before, start = set(dump.glob("*.ptx")), _seconds()
    arguments = [jax.ShapeDtypeStruct(s, jnp.float32, sharding=one) for s in shapes]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Triton.*")
        text = jax.jit(function).lower(*arguments).compile().as_text()
    seconds = _seconds() - start
    kernels, moved, least = _launched(_computations(text), "", 1)
    report = "".join(_assembled(path) for path in sorted(set(dump.glob("*.ptx")) - before) if path.stat().st_size)
    return {
        "kernels": kernels,
        "megabytes": moved / 1e6,
        "least_us": 1e6 * least,
        "registers": max(map(int, re.findall(r"Used (\d+) registers", report)), default=0),
        "spills": sum(map(int, re.findall(r"(\d+) bytes spill", report))),
        "seconds": seconds,
    }


def _seconds() -> float:
    used = [resource.getrusage(x) for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(x.ru_utime + x.ru_stime for x in used)


def _assembled(path: Path) -> str:
    """The report of ptxas on a file."""
    target = re.search(r"\.target (\w+)", path.read_text())
    folder = importlib.util.find_spec("nvidia.cuda_nvcc").submodule_search_locations[0]
    command = [f"{folder}/bin/ptxas", "-v", f"-arch={target[1]}", str(path), "-o", os.devnull]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _computations(text: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """(name, shape, operation, rest of the line) of the instructions of each computation; the entry is called ''."""
    found: dict[str, list] = {}
    for line in text.splitlines():
        line = re.sub(r"/\*.*?\*/", "", line)
        if head := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line):
            current = found["" if head[1] else head[2]] = []
        elif found and (m := re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$", line)):
            current.append(m.groups())
    return found


def _launched(computations: dict, name: str, turns: int) -> tuple[int, int, float]:
    """Kernels, bytes of their operands and results, and least time of a computation."""
    shapes = {n: s for n, s, _, _ in computations[name]}
    total = (0, 0, 0.0)
    for _, shape, operation, rest in computations[name]:
        if operation in FREE:
            continue
        if operation in ("while", "call", "conditional"):
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', rest)
            inner = re.findall(r"(?:body|to_apply|calls)=%?([\w.\-]+)", rest)
            parts = [_launched(computations, x, turns * int(trips[1] if trips else 1)) for x in inner]
        else:
            moved = _bytes(shape) + sum(
                _bytes(shapes.get(x, "")) for x in re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
            )
            parts = [(turns, turns * moved, turns * max(LAUNCH, moved / BANDWIDTH))]
        for part in parts:
            total = tuple(a + b for a, b in zip(total, part, strict=True))
    return total


def _bytes(shape: str) -> int:
    sizes = ((kind, [int(x) for x in dims.split(",") if x]) for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", shape))
    total = 0
    for kind, dims in sizes:
        count = WIDTH.get(kind, 0)
        for x in dims:
            count *= x
        total += count
    return total


def table(records: dict[str, dict]) -> str:
    lines = [
        "| program | kernels | MB read and written | least us | registers | bytes spilled | compile s |",
        "|---" * 7 + "|",
    ]
    for name, r in records.items():
        lines.append(
            f"| {name} | {r['kernels']} | {r['megabytes']:.1f} | {r['least_us']:.1f} | {r['registers']} | {r['spills']} "
            f"| {r['seconds']:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Arguments: parts of names, to restrict the programs; --write; --json FILE."""
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    file = arguments[arguments.index("--json") + 1] if "--json" in arguments else None
    names = [x for x in arguments if not x.startswith("--") and x != file]
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
        os.environ |= {"XLA_FLAGS": f"--xla_dump_to={folder}", "JAX_ENABLE_COMPILATION_CACHE": "false"}
        os.environ.pop("JAX_PLATFORMS", None)
        import jax

        jax.config.update("jax_default_device", jax.devices("cpu")[0])
        chosen = {k: x for k, x in programs().items() if not names or any(name in k for name in names)}
        records = {name: compiled(*x, Path(folder)) for name, x in chosen.items()}
    print(table(records))
    if file:
        Path(file).write_text(json.dumps(records), encoding="utf-8")
    if "--write" in arguments:
        from . import pages

        head = f"jax {jax.__version__}, Panda, float32, {BATCH} states, `parallel.kernel_vmap`."
        pages.rewrite("gpu, ahead of time", f"{head}\n\n{table(records)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
