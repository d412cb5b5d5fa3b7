"""One setting for all tests: float64, no silent promotion, and compiled programs kept from one run to the next."""

import contextlib
import ctypes
import gc
import importlib.metadata
import os
from pathlib import Path

import pytest

from data_paths import ROOT, SHARED_DATA

# Through the environment, so that the processes that tests start (the command line, the examples) share the cache. A
# program is written to it however small: a test suite is thousands of small ones.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two workers share one GPU where there is one

# A worker has one core: BLAS threads that wait for each other's small matrices took more of it than the tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Most of a test's time went into optimising programs that run once. JAXDYN_TEST_OPTIMISED=1 runs them as users do;
# users' programs and the benchmarks always do, the examples nightly. XLA aborts on flags that it does not know.
if os.environ.get("JAXDYN_TEST_OPTIMISED", "0") == "0":
    quick = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        quick.append("--xla_cpu_use_fusion_emitters=false")
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([*(flag for flag in quick if flag.split("=")[0] not in given), given]).strip()


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return  # this process hands tests out and needs no JAX
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish():
    """Exclude imported objects, which live to the end, from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def memory_given_back():
    """After a file, drops the compiled programs of a worker that has grown beyond 5 GB: nightly, two reach 14 GB."""
    yield
    statistics = Path("/proc/self/statm")
    if statistics.exists() and int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > 5e9:
        import jax

        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc keeps what was freed
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture
def annotations_unchecked(monkeypatch):
    """For tests that pass what annotations exclude, where `--jaxtyping-packages` checks them at run time."""
    import jaxtyping

    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the logs of real robots; the test skips where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no logs of real robots at {SHARED_DATA}; set JAXDYN_DATA to the folder that holds them")
    return SHARED_DATA
