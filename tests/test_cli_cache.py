"""The command line keeps compiled programs from one run to the next, and uses one thread for small matrices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from jaxdyn.cli import main
from jaxdyn.commands.cache import cache_folder, kept_programs, prune


@pytest.fixture
def without_setting(monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)


def files(folder):
    return sorted(path.name for path in folder.glob("*-cache"))


def test_programs_are_kept_and_found_again(tmp_path, without_setting):
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    program = lambda: jax.jit(lambda x: jnp.sin(x) * 1.234567 + jnp.cumsum(x))  # another one each time
    x = jnp.arange(11.0)
    with kept_programs(tmp_path):
        first = program()(x)
    kept = files(tmp_path)
    assert len(kept) == 1 and "lambda" in kept[0]
    with kept_programs(tmp_path):
        second = program()(x)
    assert files(tmp_path) == kept and jnp.array_equal(first, second)
    jax.jit(lambda x: jnp.cos(x) * 7.654321)(jnp.arange(12.0))
    assert files(tmp_path) == kept
    assert (jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs) == before


def test_the_users_setting_and_a_folder_that_cannot_be_written_leave_jax_alone(tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "own"))
    with kept_programs(tmp_path / "ours"):
        assert jax.config.jax_compilation_cache_dir == before
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (tmp_path / "file").write_text("")
    with kept_programs(tmp_path / "file" / "ours"):
        assert jax.config.jax_compilation_cache_dir == before
    assert not (tmp_path / "ours").exists()


def test_what_was_used_longest_ago_goes_first(tmp_path):
    for k in range(4):
        (tmp_path / str(k)).write_bytes(bytes(100))
        os.utime(tmp_path / str(k), (1000.0 + k, 1000.0 + k))
    os.utime(tmp_path / "0", (2000.0, 2000.0))
    prune(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "3"]
    prune(tmp_path / "missing")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folder is another one there")
def test_the_folder_is_the_users_and_an_option_turns_it_off(tmp_path, monkeypatch, without_setting, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder()
    assert folder.parent == tmp_path / "jaxdyn"
    line = ["excite", str(tmp_path / "missing.urdf"), "--out", str(tmp_path / "x.csv")]
    assert main(["--no-cache", *line]) == 1 and not folder.exists()
    assert main(line) == 1 and folder.is_dir()
    assert capsys.readouterr().err.count("missing.urdf") == 2


THREADS_OF_BLAS = """
import os, sys

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_NUM_THREADS"))
            sys.exit()

sys.meta_path.insert(0, AtImport())
from jaxdyn.cli import main
main(["identify"])
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("given", "used"), [pytest.param({}, "1", marks=pytest.mark.nightly), ({"OPENBLAS_NUM_THREADS": "3"}, "3")]
)
def test_blas_uses_one_thread_unless_the_user_sets_a_number(given, used, tmp_path):
    # OpenBLAS reads the variable when NumPy is imported
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"} | given
    line = [sys.executable, "-c", THREADS_OF_BLAS]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert done.stdout == used + "\n"
