"""The benchmark suite at its smallest: that its parts run, check results and write what they say, not how fast anything is."""

import json
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import operations, pages, tables
from data_paths import ROOT

SMALLEST = """--batch 8 --max-batch 16 --max-links 5 --states 64 --budget 0.001 --turns 1 --rounds 1 --robots panda
    --peers""".split()


def suite(*arguments, **variables) -> subprocess.CompletedProcess:
    """`python -m tests.benchmarks` in a process of its own, as small as it goes."""
    environment = {**os.environ, "MPLBACKEND": "Agg", **variables}
    command = [sys.executable, "-m", "tests.benchmarks", *SMALLEST, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def check(tmp_path, parts: list[str], *arguments) -> dict:
    """Records of parts that ran, in which something of jaxdyn's was measured and nothing failed."""
    file = tmp_path / "records.json"
    done = suite(*arguments, "--json", str(file), "--plots", "--pictures", str(tmp_path), "--", *parts)
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(file.read_text())["records"]
    assert list(records) == parts
    for part, found in records.items():
        ours = [r for r in found if r["library"] == "jaxdyn"]
        assert ours, part
        assert not [r["reason"] for r in found if r.get("reason")], part
        assert f"# {part}:" in done.stdout
    return records


@pytest.mark.ci
def test_programs_of_this_folder_find_what_they_import():
    programs = (
        "tests.benchmarks.session",
        *(f"tests.{name}.__main__" for name in ("benchmarks", "fuzz", "mutation", "sweep")),
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(programs)}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_a_part_runs(tmp_path):
    pytest.importorskip("pinocchio")
    arguments = ["--precisions", "float64", "--quantities", "gravity"]
    records = check(tmp_path, ["throughput"], *arguments)["throughput"]
    assert {r["variant"] for r in records if r["library"] == "Pinocchio"} == {"Python loop"}
    for r in records:
        assert r["seconds"] > 0
        if r["library"] == "jaxdyn":
            assert r["error"] < 1e-12 and r["operations"] > 100 and r["bytes"] == 2 * 7 * 8 and 0 < r["floor"] < 1e-6


@pytest.mark.nightly
def test_the_part_of_identification(tmp_path):
    pytest.importorskip("pinocchio")
    records = check(tmp_path, ["identification"], "--samples", "20000")["identification"]
    assert len(records) == 3 and all(r["seconds"] > 0 and r["error"] < 1e-11 for r in records)
    assert records[0]["peak_bytes"] < 1.5 * 2**30


@pytest.mark.nightly
def test_all_parts_run(tmp_path):
    pytest.importorskip("pinocchio")
    arguments = ["--precisions", "float64", "--quantities", "inverse_dynamics", "rollout"]
    parts = ["latency", "batches", "scaling", "compile", "memory", "accuracy"]
    records = check(tmp_path, parts, *arguments)
    assert {r["dispatch"] for r in records["latency"]} == {"JAX's default", "calling thread"}
    assert {r["n"] for r in records["scaling"]} == {2, 5}
    assert all(r["worst"] < 1e-4 for r in records["accuracy"])
    for picture in ("batches_panda.png", "scaling.png"):
        assert (tmp_path / picture).stat().st_size > 10_000


@pytest.mark.nightly
def test_other_libraries_are_measured_or_named(tmp_path):
    """Those that are installed are right; of those that are not, the reason is in the table."""
    pytest.importorskip("pinocchio")
    file = tmp_path / "records.json"
    arguments = ["frax", "adam", "--precisions", "float64", "--quantities", "gravity", "--json", str(file)]
    done = suite(*arguments, "--", "throughput")
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(file.read_text())["records"]["throughput"]
    for name in ("frax", "adam"):
        (record,) = [r for r in records if r["library"] == name]
        assert record.get("reason") or record["error"] < 1e-12
        assert name in done.stdout


def test_an_unknown_part_is_refused():
    done = suite("--", "speed")
    assert done.returncode == 2 and "unknown part speed; the parts are latency, throughput" in done.stderr


def test_operations_are_counted():
    x, a = jnp.ones(5), jnp.ones((5, 5))
    assert operations.count(lambda x: 2 * x + jnp.sin(x), x).operations == 15
    assert operations.count(lambda x: 2 * x + jnp.sin(x), x).transcendental == 5
    assert operations.count(lambda a, x: a @ x, a, x).operations == 50
    assert operations.count(lambda x: x**4, x).operations == 10

    def loop(x):
        import jax

        return jax.lax.fori_loop(0, 7, lambda _, y: y * 3, x)

    assert operations.count(loop, x).operations == 35


def test_a_page_keeps_what_is_written_by_hand(tmp_path):
    page = tmp_path / "page.md"
    begin, end = pages.markers("latency")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    pages.rewrite("latency", r"new \1", page)
    assert page.read_text() == f"before\n{begin}\n\nnew \\1\n\n{end}\nafter\n"
    pages.rewrite("memory", "m", page)
    assert page.read_text().startswith("before\n") and "\n## Memory\n" in page.read_text()
    page.write_text(f"{begin}\n{begin}\n{end}\n")
    with pytest.raises(SystemExit, match="not one pair"):
        pages.rewrite("latency", "x", page)


def test_the_page_has_a_place_for_every_part():
    text = pages.PAGE.read_text()
    from benchmarks.parts import PARTS

    for part in PARTS:
        assert all(text.count(marker) == 1 for marker in pages.markers(part)), part


def test_figures():
    assert [tables.figures(x) for x in (0, 1.2345, 12345, 0.00123456, None)] == ["0", "1.23", "12 300", "0.00123", "-"]
    assert np.isclose(float(tables.micro(1.5e-6)), 1.5)
