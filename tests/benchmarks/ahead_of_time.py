"""Analysis of programs compiled for H100 GPUs without a GPU: kernels, bytes, registers and spills.

The numbers are read from the program that `jax[cuda12]` compiles, and from the report of its assembler, ptxas.

    pip install -e ".[test]" "jax[cuda12]"             (neither a GPU nor a driver is needed)
    python -m tests.benchmarks.ahead_of_time           a Panda; --write puts the table into docs/benchmarks.md

The analysis must run in a separate process, because JAX reads environment variables when it starts. The kernels of a loop are
multiplied by its number of iterations; of a conditional, the largest branch counts. The least time is the sum over all
kernels of 2.5 us or the bytes divided by 3.35 TB/s, whichever is larger. The time that a kernel needs for arithmetic can be
measured only on a GPU.
"""

import argparse
import contextlib
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

from . import launches

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


def missing() -> str | None:
    """The reason why programs cannot be compiled for a GPU, or None."""
    try:
        found = [importlib.util.find_spec(x) for x in ("jax_plugins.xla_cuda12", "nvidia.cuda_nvcc")]
    except ModuleNotFoundError:
        found = [None]
    return None if all(found) else 'JAX\'s CUDA plugin is not installed: pip install "jax[cuda12]"'


def mesh_of(devices: int):
    """A mesh of H100s that are described to the compiler but need not be present."""
    from jax.experimental import topologies

    described = topologies.get_topology_desc(platform="cuda", target_config=H100, topology=f"1x1x{devices}")
    return topologies.make_mesh(described, (devices,), ("batch",))


def compiled(program, dtype, dump: Path, mesh) -> dict:
    """Compile a program; return its kernels, megabytes, least time, registers, spills, compilation time and collectives."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    before, start = set(dump.glob("*.ptx")), _seconds()
    sharded = program.sharded or (False,) * len(program.shapes)
    arguments = [
        jax.ShapeDtypeStruct(
            s, dtype, sharding=NamedSharding(mesh, PartitionSpec("batch") if split else PartitionSpec())
        )
        for s, split in zip(program.shapes, sharded, strict=True)
    ]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        done = jax.jit(program.function).lower(*arguments).compile()
    seconds = _seconds() - start
    found = launches.computations(done.as_text())
    total = launches.iteration(found) if program.loop else launches.launched(found)
    report = "".join(_assembled(path) for path in sorted(set(dump.glob("*.ptx")) - before) if path.stat().st_size)
    return {
        "kernels": total.kernels,
        "megabytes": total.moved / 1e6,
        "least_us": 1e6 * total.least,
        "registers": max(map(int, re.findall(r"Used (\d+) registers", report)), default=0),
        "spills": sum(map(int, re.findall(r"(\d+) bytes spill", report))),
        "seconds": seconds,
        "collectives": launches.communicated(found),
        "fell_back": [str(x.message) for x in warned if x.category.__name__ == "FallbackWarning"],
    }


def _seconds() -> float:
    used = [resource.getrusage(x) for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(x.ru_utime + x.ru_stime for x in used)


def _assembled(path: Path) -> str:
    """The report of ptxas on the assembly of a PTX file."""
    target = re.search(r"\.target (\w+)", path.read_text())
    folder = importlib.util.find_spec("nvidia.cuda_nvcc").submodule_search_locations[0]
    command = [f"{folder}/bin/ptxas", "-v", f"-arch={target[1]}", str(path), "-o", os.devnull]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


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
        if r["collectives"]:
            lines[-1] += " moves " + ", ".join(f"{size} bytes by {kind}" for kind, size in r["collectives"].items())
    return "\n".join(lines)


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ahead_of_time")
    parser.add_argument("names", nargs="*", help="prefixes of program names; by default all programs of the set")
    parser.add_argument("--set", choices=("robot", "solver", "devices"), default="robot", help="set of programs")
    parser.add_argument("--robots", nargs="+", default=["panda"], help="panda, g1, chain-N, or paths of URDFs")
    parser.add_argument(
        "--form",
        choices=("kernel_vmap", "vmap", "loops"),
        default="kernel_vmap",
        help="how batches are compiled; loops: as in version 0.1",
    )
    parser.add_argument("--precision", choices=("float32", "float64"), default="float32")
    parser.add_argument("--json", metavar="FILE", help="write all records to this file")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/benchmarks.md")
    options = parser.parse_args(given)
    if options.write and given != ["--write"]:
        parser.error("--write is for the page's table: all programs of a Panda in float32; pass no other option")
    return options


def _records(options: argparse.Namespace, folder: str) -> dict[str, dict]:
    import jax
    import numpy as np

    jax.config.update("jax_default_device", jax.devices("cpu")[0])
    jax.config.update("jax_enable_x64", options.precision == "float64")
    from jaxdyn.parallel import kernel_vmap

    from . import gpu_programs
    from .subjects import subject

    mesh = mesh_of(8 if options.set == "devices" else 1)
    over = kernel_vmap if options.form == "kernel_vmap" else jax.vmap
    records = {}
    with _loops() if options.form == "loops" else contextlib.nullcontext():
        for robot in options.robots:
            chain, dtype = subject(robot).chain, np.dtype(options.precision).type
            for name, program in gpu_programs.SETS[options.set](chain, dtype, over, mesh).items():
                if not options.names or name.startswith(tuple(options.names)):
                    records[name if len(options.robots) == 1 else f"{robot}, {name}"] = found = compiled(
                        program, dtype, Path(folder), mesh
                    )
                    print(name, json.dumps(found), file=sys.stderr, flush=True)
    return records


@contextlib.contextmanager
def _loops():
    """Compile sweeps over links as loops on GPUs, too."""
    from jaxdyn.dynamics.engine import lanes as batch

    before, batch.UNROLLED = batch.UNROLLED, 0
    try:
        yield
    finally:
        batch.UNROLLED = before


def main(given: list[str]) -> int:
    options = arguments(given)
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
        os.environ |= {"XLA_FLAGS": f"--xla_dump_to={folder}", "JAX_ENABLE_COMPILATION_CACHE": "false"}
        os.environ.pop("JAX_PLATFORMS", None)
        records = _records(options, folder)
    print(table(records))
    if options.json:
        Path(options.json).write_text(json.dumps(records), encoding="utf-8")
    if options.write:
        import jax

        from . import gpu_programs, pages

        head = f"jax {jax.__version__}, Panda, float32, {gpu_programs.BATCH} states, `parallel.kernel_vmap`."
        pages.rewrite("gpu, ahead of time", f"{head}\n\n{table(records)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
