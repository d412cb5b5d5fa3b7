"""Configuration of all tests: float64, no implicit promotion, and a compilation cache that persists between runs."""

import contextlib
import ctypes
import gc
import importlib.metadata
import os
from pathlib import Path

import pytest

from data_paths import ROOT, SHARED_DATA

# Environment variables also configure the processes that tests start (the command line, the examples), so that they share
# the cache. Even small programs are cached, because the tests compile thousands of them.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two workers share the GPU, if there is one

# Each worker has one core. Several BLAS threads would spend more time waiting for each other than the tests need.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Most programs run only once in a test, so XLA's optimisation, which would take most of the time, is turned off. To test
# optimised programs, as users run them, set JAXDYN_TEST_OPTIMISED=1. Benchmarks, the tests of users' programs, and the nightly
# tests of the examples always optimise. The flags depend on the version of jaxlib, because XLA aborts on unknown flags.
if os.environ.get("JAXDYN_TEST_OPTIMISED", "0") == "0":
    quick = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        quick.append("--xla_cpu_use_fusion_emitters=false")
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([*(flag for flag in quick if flag.split("=")[0] not in given), given]).strip()


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return  # this process only distributes tests to workers and needs no JAX
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish():
    """Exclude imported objects, which are never freed, from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def memory_given_back():
    """After each test file, drop the compiled programs of a worker that uses more than 5 GB.

    Without this, two workers would use 14 GB in the nightly tests.
    """
    yield
    statistics = Path("/proc/self/statm")
    if statistics.exists() and int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > 5e9:
        import jax

        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc otherwise keeps freed memory
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture
def annotations_unchecked(monkeypatch):
    """Turn off the run-time checks of `--jaxtyping-packages`.

    For tests that pass arguments of invalid types or shapes, or that need chains of NumPy arrays (`unrounded`).
    """
    import jaxtyping

    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with logs of real robots; tests that use it are skipped if it does not exist."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no logs of real robots at {SHARED_DATA}; set JAXDYN_DATA to the folder that holds them")
    return SHARED_DATA
