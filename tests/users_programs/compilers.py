"""Programs compiled with options, ahead of time, in threads, for several devices and under JAX's settings."""

import concurrent.futures
import functools
import pathlib
import pickle
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxdyn
from helpers import random_mechanism

from .states import ARM, FD, ID, MIMIC, OTHER, ROWS, STATE, STILL, Programs, checked, wanted, wanted_rows


def compilers() -> Programs:
    """Compilers' options, programs that are kept, and devices."""
    q, v, a = STATE
    arm = functools.partial(ID, ARM)
    rows = jax.vmap(arm)
    options = [
        {"xla_backend_optimization_level": 0},
        {"xla_cpu_enable_fast_math": True},
        {"xla_cpu_parallel_codegen_split_count": 1},
        {"xla_llvm_disable_expensive_passes": True},
        {"xla_cpu_multi_thread_eigen": False},
        {"xla_cpu_prefer_vector_width": 128},
    ]
    shape = jax.ShapeDtypeStruct((2,), float)

    def exported(function, *shapes):
        return jax.jit(export.deserialize(export.export(jax.jit(function))(*shapes).serialize(vjp_order=1)).call)

    def open_rows(*given):
        size = export.symbolic_shape("rows")
        return exported(rows, *[jax.ShapeDtypeStruct((*size, 2), float)] * 3)(*given)

    def kept():
        program = jax.jit(arm).lower(*STATE).compile()
        payload = pickle.loads(pickle.dumps(serialize(program)))
        return deserialize_and_load(*payload, execution_devices=jax.devices()[:1])(*STATE), wanted()

    def cached():
        with tempfile.TemporaryDirectory() as folder:
            names = (
                "compilation_cache_dir",
                "persistent_cache_min_compile_time_secs",
                "persistent_cache_min_entry_size_bytes",
            )
            before = [getattr(jax.config, f"jax_{name}") for name in names]
            values = folder, 0, 0
            try:
                for name, value in zip(names, values, strict=True):
                    jax.config.update(f"jax_{name}", value)
                compilation_cache.reset_cache()  # JAX stays with the folder that it began with
                out, written = [], []
                for _ in range(2):
                    jax.clear_caches()
                    out.append((jax.jit(arm)(*STATE), jax.jit(rows)(*ROWS)))
                    written.append({path.name for path in pathlib.Path(folder).glob("*-cache")})
                assert len(written[0]) >= 2, f"{len(written[0])} programs were kept"
                assert written[1] == written[0], "a program that was kept was compiled again"
            finally:
                for name, value in zip(names, before, strict=True):
                    jax.config.update(f"jax_{name}", value)
                compilation_cache.reset_cache()
        return out, [(wanted(), wanted_rows())] * 2

    def threads():
        of = [(f, r) for f in (ID, FD, jaxdyn.regressor) for r in (ARM, OTHER)]

        def one(pair):
            function, robot = pair
            single = jax.jit(functools.partial(function, robot))(*STATE)
            return single, jax.jit(jax.vmap(functools.partial(function, robot)))(*ROWS)[0]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            out = list(pool.map(one, of))
        return out, [(wanted(f, r), wanted(f, r, [x[0] for x in ROWS])) for f, r in of]

    def sharded(kind, *, known=False, **options):
        mesh = jax.make_mesh((jax.device_count(),), ("rows",), axis_types=(kind,))
        spec = PartitionSpec("rows")
        part = (lambda q, v, a: rows(q, jnp.zeros(v.shape), jnp.ones(a.shape))) if known else rows
        some = tuple(np.concatenate([x, x[:1]]) for x in ROWS)
        mapped = jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec, **options)
        given = (some[0], 0 * some[1], 0 * some[2] + 1) if known else some
        placed = jax.device_put(some, NamedSharding(mesh, spec))
        return jax.jit(mapped)(*placed), jnp.stack([wanted(state=x) for x in zip(*given, strict=True)])

    def on_last_device():
        there = jax.device_put(STATE, jax.devices()[-1])
        return jax.jit(arm)(*there), wanted()

    def split_arguments():
        mesh = jax.make_mesh((jax.device_count(),), ("rows",), axis_types=(AxisType.Auto,))
        where = NamedSharding(mesh, PartitionSpec("rows"))
        some = tuple(np.concatenate([x, x[:1]]) for x in ROWS)
        return jax.jit(rows, in_shardings=where, out_shardings=where)(*some)[:5], wanted_rows()

    def under(setting):
        with setting:
            return jax.jit(lambda *x: arm(*x))(*map(jnp.asarray, STATE)), wanted()

    found = {
        f"option {next(iter(o.items()))}": lambda o=o: (
            (jax.jit(arm, compiler_options=o)(*STATE), jax.jit(rows, compiler_options=o)(*ROWS)),
            (wanted(), wanted_rows()),
        )
        for o in options
    }
    return found | {
        "exported": lambda: (exported(arm, shape, shape, shape)(*STATE), wanted()),
        "exported at rest": lambda: (
            exported(lambda q: ID(MIMIC, q, STILL, STILL), shape)(q),
            wanted(ID, MIMIC, (q, STILL, STILL)),
        ),
        "exported with derivatives": lambda: (
            jax.jit(jax.grad(lambda q: jnp.sum(exported(arm, shape, shape, shape)(q, v, a))))(q),
            jax.jit(jax.grad(lambda q: jnp.sum(arm(q, v, a))))(q),
        ),
        "exported rows of open number": lambda: (open_rows(*ROWS), wanted_rows()),
        "compiled program kept": kept,
        "cache of programs": cached,
        "threads": threads,
        "shard_map": lambda: sharded(AxisType.Auto, check_vma=False),
        "shard_map with constants": lambda: sharded(AxisType.Auto, check_vma=False, known=True),
        "shard_map that checks": lambda: sharded(AxisType.Auto),
        "shard_map of typed axes": lambda: sharded(AxisType.Explicit),
        "the last device": on_last_device,
        "arguments that are split": split_arguments,
        "without jit": lambda: (arm(*map(jnp.asarray, STATE)), wanted()),
        "with jit off": lambda: under(jax.disable_jit()),
        "with checks of NaN": lambda: under(jax.debug_nans(True)),
        "with checks of leaks": lambda: under(jax.checking_leaks()),
        "with JAX's own checks": lambda: under(jax.enable_checks(True)),
        "without promotion": lambda: under(jax.numpy_dtype_promotion("strict")),
        "a mechanism, all known": lambda: mechanism_known(),
    }


def mechanism_known():
    robot = random_mechanism(1)
    q = jaxdyn.random_configuration(robot, jax.random.key(0))
    v = jnp.zeros(robot.nv)
    return jax.jit(lambda: FD(robot, q, v, v))(), jax.jit(FD)(robot, q, v, v)


def programs():
    return checked(compilers())
