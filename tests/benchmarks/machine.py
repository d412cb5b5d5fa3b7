"""Description of the machine, and its measured peak rates, from which the floors are computed."""

import datetime
import functools
import os
import platform
import sys

import jax
import jax.numpy as jnp
import numpy as np

from . import peers
from .timing import in_turn, waited


def description() -> dict:
    """Processor, load, system and versions, without anything that identifies the owner of the machine."""
    device = jax.devices()[0]
    versions = {name: peers.version(name) for name in ("jax", "jaxlib", "numpy", "pin", *peers.PACKAGES)}
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "device": device.device_kind if device.platform != "cpu" else "cpu",
        "platform": device.platform,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": {name: version for name, version in versions.items() if version},
    }


def memory_available() -> int:
    """Number of bytes of main memory that are available now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":") for line in file)
        return int(rows["MemAvailable"].split()[0]) * 1024
    except OSError:
        return 4 << 30


def _processor() -> str:
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def spread(function, devices, arguments: int, chain: bool = True):
    """Jit a batched function over several devices, each with a share of the batch; also return its arguments' shardings.

    Args:
        chain: True if the first argument is a robot, which is replicated on every device.
    """
    mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
    P = jax.sharding.PartitionSpec
    specs = (*([P()] if chain else []), *[P("batch")] * arguments)
    program = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P("batch"), check_vma=False)
    return jax.jit(program), tuple(jax.sharding.NamedSharding(mesh, spec) for spec in specs)


@functools.cache
def peaks(precision: str, budget: float, turns: int, devices: int = 1) -> dict[str, float]:
    """Measured peak flop/s and bytes/s of `devices` devices, the best of many runs.

    The arithmetic peak is the faster of two programs: chains of multiply-adds on numbers that stay in registers, and a matrix
    product. The bandwidth is that of x <- x / 2 + y on arrays larger than any cache, which moves three
    numbers per element.
    """
    dtype, terms, repeats, size = jnp.dtype(precision), 64, 64, 1 << 12
    large = (1 << 27) // dtype.itemsize // devices * devices
    passes = 4

    def chain(x):
        def once(_, x):
            y, z = x + 1, x - 1
            for _ in range(terms // 2):
                y, z = y * x + x, z * x + x
            return 0.5 * (y - z)

        return jax.lax.fori_loop(0, repeats, once, x)

    def move(x, y):
        return jax.lax.fori_loop(0, passes, lambda _, x: x / 2 + y, x)

    used = jax.devices()[:devices]
    arithmetic, of_chain = spread(chain, used, 1, chain=False)
    moved, of_move = spread(move, used, 2, chain=False)
    small = jax.device_put(jnp.linspace(0.1, 0.9, size * devices, dtype=dtype), of_chain[0])
    big = jax.device_put(jnp.ones(large, dtype), of_move[0])
    calls = {"chain": waited(arithmetic, small), "memory": waited(moved, big, big)}
    flops = {"chain": 2.0 * terms * repeats * size * devices}
    n = 384
    multiply = lambda a: jnp.matmul(a, a, precision=jax.lax.Precision.HIGHEST)
    product, of_product = spread(multiply, used, 1, chain=False)
    calls["product"] = waited(product, jax.device_put(jnp.full((devices, n, n), 0.01, dtype), of_product[0]))
    flops["product"] = 2.0 * devices * n**3
    t = in_turn(calls, budget, turns, statistic=np.min)
    rates = {name: count / t[name] for name, count in flops.items()}
    found = {"flops": max(rates.values()), "bytes": 3.0 * passes * large * dtype.itemsize / t["memory"]}
    return found | {f"flops_{name}": rate for name, rate in rates.items()}


def floor(operations: float, moved: float, peak: dict[str, float]) -> float:
    """A lower bound on the time of an evaluation [s]: its arithmetic or its memory traffic at the peak rate."""
    return max(operations / peak["flops"], moved / peak["bytes"])
