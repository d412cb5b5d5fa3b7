"""Factors of long logs against a dense QR, in chunks, blocks and files, and logs read in parts."""

import dataclasses
import zipfile

import jax
import numpy as np
import pytest

from helpers import random_chain
from jaxdyn import IdentificationError, Log, LogError, OutputError, read_log
from jaxdyn.identification import (
    Columns,
    Filters,
    accumulate_stream,
    base_parameters,
    load_factors,
    merge_factors,
    merge_over_processes,
    preprocess,
    preprocess_stream,
    save_factors,
    solve,
)
from jaxdyn.identification.accumulate import RunRows, accumulate, accumulate_samples
from jaxdyn.identification.factors import triangles_of
from jaxdyn.io import read_log_chunks
from regression import dense, known_arm, states

ALL = Columns()


@pytest.fixture(scope="module")
def long_run():
    """An arm whose second joint rests at first, more samples than the first blocks take, and the dense regressor."""
    chain = known_arm()
    x = states(11_000)
    x[1:, :700, 1] = 0
    x[0, :700, 1] = 0.3
    w = dense(chain, *x)
    tau = w @ np.random.default_rng(1).normal(size=w.shape[2]) + np.random.default_rng(2).normal(size=x[0].shape)
    return chain, x, tau, np.concatenate([w, tau[:, :, None]], axis=2)


def assert_factors(factors, rows, tolerance=1e-11):
    """Every singular value of every joint's factor is that of the rows, relative to itself, or zero as there."""
    for r, of_joint in zip(factors.r, rows.transpose(1, 0, 2), strict=True):
        size = np.linalg.norm(of_joint, axis=0)
        error = (
            np.abs(r.T @ r - of_joint.T @ of_joint)
            / np.where(size == 0, 1, size)[:, None]
            / np.where(size == 0, 1, size)
        )
        assert error.max() < tolerance
        found, expected = (np.linalg.svd(a, compute_uv=False) for a in (r, of_joint))
        there = expected > 1e-12 * expected[0]
        assert (np.abs(found - expected)[there] / expected[there]).max() < tolerance
        assert found[~there].max(initial=0) < 1e-13 * expected[0]
        assert np.abs(np.tril(r, -1)).max() == 0


def cut(x, tau, *at):
    return zip(*(np.split(a, at) for a in (*x, tau)), strict=True)


def test_samples_in_chunks_of_any_length_give_the_factors_of_qr(long_run):
    chain, x, tau, rows = long_run
    done = []
    factors = accumulate_stream(ALL, chain, cut(x, tau, 3, 1000, 1001, 8000), progress=done.append)
    assert_factors(factors.total, rows)
    assert done == [3, 1000, 1001, 8000, 11_000] and factors.total.counts.tolist() == [11_000] * 3


def test_a_stream_keeps_blocks_of_neighbouring_samples(long_run):
    chain, x, tau, rows = long_run
    factors = accumulate_stream(ALL, chain, cut(x, tau, *range(100, 11_000, 100)))
    assert len(factors.runs) == 32 and not factors.runs.any()
    assert factors.counts[:, 0].max() <= 4 * factors.counts[:, 0].min()
    ends = np.cumsum([0, *factors.counts[:, 0]])
    for r, a, b in zip(factors.r, ends[:-1], ends[1:], strict=True):
        np.testing.assert_allclose(r[0].T @ r[0], rows[a:b, 0].T @ rows[a:b, 0], rtol=1e-9, atol=1e-7)
    base = base_parameters(chain, ALL)
    whole = accumulate_samples(ALL, chain, [RunRows(tuple(x), tau)])
    found, expected = solve(factors, base), solve(whole, base)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.standard_deviations, expected.standard_deviations, rtol=0.6)


def test_parts_are_merged_saved_and_gone_on_from(long_run, tmp_path):
    chain, x, tau, rows = long_run
    x, tau, rows = x[:, :900], tau[:900], rows[:900]
    first, second = (accumulate_stream(ALL, chain, [part]) for part in cut(x, tau, 400))
    assert_factors(merge_factors(first, second).total, rows)
    save_factors(tmp_path / "run.npz", first)
    (rest,) = list(cut(x, tau, 400))[1:]
    on = accumulate_stream(ALL, chain, [rest], start=load_factors(tmp_path / "run.npz"))
    assert_factors(on.total, rows)
    assert merge_over_processes(on) is on
    np.testing.assert_array_equal(on.total.counts, [900] * 3)
    np.testing.assert_array_equal(accumulate_stream(ALL, chain, [], start=on).r, on.r)
    with pytest.raises(OutputError, match="cannot be written"):
        save_factors(tmp_path / "no folder" / "run.npz", first)
    with pytest.raises(IdentificationError, match="no such file"):
        load_factors(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", r=np.ones((2, 3)), counts=np.ones(2))
    with pytest.raises(IdentificationError, match="invalid factors"):
        load_factors(tmp_path / "other.npz")
    square = np.ones((2, 3, 3))
    for r, counts in ((square, [-1, 5]), (square, [1.5, np.inf]), (square + 1j, [5, 5]), (square > 0, [5, 5])):
        np.savez(tmp_path / "other.npz", r=r, counts=np.array(counts))
        with pytest.raises(IdentificationError, match="invalid factors"):
            load_factors(tmp_path / "other.npz")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:  # members that are no arrays
        archive.writestr("r", "text")
        archive.writestr("counts", "text")
    with pytest.raises(IdentificationError, match="invalid factors"):
        load_factors(tmp_path / "other.npz")
    with pytest.raises(IdentificationError, match="are incompatible"):
        merge_factors(first, dataclasses.replace(first, r=first.r[..., :5, :5]))


def test_bad_samples_are_named(long_run):
    chain, x, tau, _ = long_run
    few = [a[:40] for a in (*x, tau)]
    with pytest.raises(IdentificationError, match="no samples"):
        accumulate_stream(ALL, chain, [])
    with pytest.raises(IdentificationError, match=r"qd have shape \(39, 3\); for 40 samples of 3 joints"):
        accumulate_stream(ALL, chain, [(few[0], few[1][:39], *few[2:])])
    with pytest.raises(IdentificationError, match="a chunk has 3 arrays"):
        accumulate_stream(ALL, chain, [few[:3]])
    with pytest.raises(IdentificationError, match="are incompatible"):
        accumulate_stream(ALL, chain, [few, (*few, None, np.zeros((40, 3, 1)))])
    broken = [a.copy() for a in few]
    broken[2][7, 1] = np.nan
    with pytest.raises(IdentificationError, match=r"qdd of sample 7 .* is not finite"):
        accumulate_stream(ALL, chain, [few, broken])
    other = accumulate_stream(Columns(("viscous",)), chain, [few])
    with pytest.raises(IdentificationError, match="are incompatible"):
        accumulate_stream(ALL, chain, [few], start=other)


@pytest.mark.nightly
def test_a_tree():
    chain = random_chain(4, seed=3)
    chain = dataclasses.replace(chain, topology=dataclasses.replace(chain.topology, parents=(-1, 0, 0, 2)))
    x = states(60, 4)
    rows = np.asarray(jax.jit(jax.vmap(ALL.matrix, (None, 0, 0, 0)))(chain, *x))
    tau = np.ones_like(x[0])
    assert_factors(accumulate(ALL, chain, *x, tau), np.concatenate([rows, tau[:, :, None]], axis=2))


def run_of(seconds=30.0, rate=200.0, jitter=0.0, gap=False):
    """A log of two joints with noise; stamps that jitter, and a hole in time."""
    rng = np.random.default_rng(0)
    t = np.arange(int(seconds * rate)) / rate + jitter / rate * rng.uniform(-0.3, 0.3, int(seconds * rate))
    if gap:
        t[len(t) // 3 :] += 2.0
        t[len(t) // 3 + 110 :] += 1.0  # a piece that leaves too few samples between its margins
    q = np.stack([np.sin(2 * t) + 0.3 * np.cos(7 * t), np.cos(3 * t)], axis=1) + 1e-4 * rng.normal(size=(len(t), 2))
    return Log(t, q, None, 10 * q + rng.normal(size=q.shape))


def parts_of(log, *at):
    for t, q, tau in zip(*(np.split(x, at) for x in (log.t, log.q, log.tau)), strict=True):
        yield Log(t, q, None, tau)


@pytest.mark.parametrize(
    ("jitter", "gap", "seconds"), [(0.0, False, 30.0), (0.0, False, 29.995), (1.0, False, 30.0), (1.0, True, 30.0)]
)
def test_windows_give_the_samples_of_the_whole(jitter, gap, seconds):
    log = run_of(seconds, jitter=jitter, gap=gap)
    whole = preprocess(log, Filters(position_cutoff=10.0, torque_cutoff=8.0, stride=2))
    rate = whole.rate * 2
    pieces = list(
        preprocess_stream(
            parts_of(log, 150, 2100, 2200, 4100), Filters(position_cutoff=10.0, torque_cutoff=8.0, stride=2), rate=rate
        )
    )
    assert len(pieces) > 2 + gap
    for piece in pieces:
        assert piece.rate == pytest.approx(whole.rate, rel=1e-12) and piece.segments == ((0, len(piece)),)
        assert (piece.position_cutoff, piece.torque_cutoff) == (10.0, 8.0)
    for name in ("t", "q", "qd", "qdd", "tau"):
        found, expected = np.concatenate([getattr(p, name) for p in pieces]), getattr(whole, name)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-10 * np.abs(expected).max(), name


def test_windows_are_refused_like_the_whole():
    log = run_of(5.0)
    with pytest.raises(LogError, match="time does not increase between chunks"):
        list(preprocess_stream([log, log], Filters(position_cutoff=8.0)))
    for late in (0.0, 1e-3):  # a chunk begins where the one before ends
        again = dataclasses.replace(log, t=log.t + (log.t[-1] - log.t[0]) - late)
        with pytest.raises(LogError, match="time does not increase between chunks"):
            list(preprocess_stream([log, again], Filters(position_cutoff=8.0)))
    with pytest.raises(LogError, match="half the log's rate"):
        list(preprocess_stream([log], Filters(position_cutoff=200.0)))
    with pytest.raises(LogError, match="no piece of the log is long enough"):
        list(
            preprocess_stream(
                [dataclasses.replace(log, t=log.t[:60], q=log.q[:60], tau=log.tau[:60])], Filters(position_cutoff=8.0)
            )
        )


@pytest.fixture
def logged(tmp_path):
    """One run as text, as an archive and as Parquet."""
    log = run_of(4.0)
    table = np.column_stack([log.t, log.q, log.tau])
    names = ["t", "q1", "q2", "tau1", "tau2"]
    np.savetxt(tmp_path / "run.csv", table, "%.17g", ",", header="a robot\n" + ",".join(names), comments="# ")
    np.savetxt(tmp_path / "plain.csv", table, "%.17g", ",", header=",".join(names), comments="")
    np.savez(tmp_path / "run.npz", t=log.t, q=log.q, tau=log.tau)
    np.savez_compressed(tmp_path / "small.npz", **dict(zip(names, table.T, strict=True)))
    return tmp_path


@pytest.mark.parametrize("name", ["plain.csv", "run.csv", "run.npz", "small.npz", "run.parquet"])
def test_parts_of_a_file_are_the_file(logged, name):
    if name.endswith("parquet"):
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        with np.load(logged / "small.npz") as held:
            parquet.write_table(arrow.table(dict(held)), logged / name)
    whole = read_log(logged / name, gains=[2.0, 3.0])
    parts = list(read_log_chunks(logged / name, 150, gains=[2.0, 3.0]))
    assert [len(p) for p in parts] == [150] * 5 + [50]
    for field in ("t", "q", "tau"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, field) for p in parts]), getattr(whole, field))


def test_bad_files_are_named(logged):
    text = (logged / "plain.csv").read_text().splitlines()
    for row, line, message in (
        (300, "nan,0,0,0,0", "row 300, column 't'"),
        (300, text[200].rpartition(",")[0] + ",9", r"unusable rows .*: \d+ at which time does not increase"),
        (302, text[302].replace(text[302].split(",")[1], "50"), r"position jumps|jumps away"),
    ):
        (logged / "bad.csv").write_text("\n".join([*text[:row], line, *text[row + 1 :]]))
        with pytest.raises(LogError, match=message):
            list(read_log_chunks(logged / "bad.csv", 150))
    with pytest.raises(LogError, match="no such file"):
        list(read_log_chunks(logged / "none.csv"))
    (logged / "no.npz").write_bytes(b"nothing")
    with pytest.raises(LogError, match="not a NumPy archive"):
        list(read_log_chunks(logged / "no.npz"))
    with pytest.raises(LogError, match="2 joints, but the robot has 3"):
        list(read_log_chunks(logged / "run.npz", joints=3))


@pytest.mark.parametrize(
    ("name", "message"),
    [("run.bag", "bag cannot be read in parts"), ("run.xlsx", "not '.xlsx'"), ("run", "without a suffix")],
)
def test_files_that_cannot_be_read_in_parts_are_named(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(LogError, match=message) as error:
        list(read_log_chunks(tmp_path / name))
    assert str(tmp_path / name) in str(error.value)


def test_parts_of_an_archive_have_any_form_of_time(tmp_path):
    t = np.arange(250) * 10_000_000 + 1_700_000_000_999_000_000
    x = np.sin(np.arange(250.0) / 9)
    np.savez(
        tmp_path / "run.npz",
        sec=t // 10**9,
        nanosec=t % 10**9,
        q=x[:, None],
        tau=2 * x[:, None],
        state=np.array(["on"]),
    )
    parts = list(read_log_chunks(tmp_path / "run.npz", 100))
    whole = read_log(tmp_path / "run.npz")
    np.testing.assert_array_equal(np.concatenate([part.t for part in parts]), whole.t)
    np.testing.assert_array_equal(np.concatenate([part.q for part in parts]), whole.q)


def test_parts_of_parquet_are_refused_like_the_whole(logged, tmp_path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    with np.load(logged / "small.npz") as held:
        table = dict(held)
    rows, path = len(table["t"]), tmp_path / "run.parquet"
    for column, message in (
        (arrow.array([{"a": 1.0}] * rows), "not numbers"),
        (arrow.array([k % 2 > 0 for k in range(rows)]), "bool, not numbers"),
        (
            arrow.array([[1.0], [2.0] * 3, [3.0] * 2] * (rows // 3) + [[1.0], [1.0] * 3][: rows % 3]),
            "have different lengths",
        ),
    ):
        parquet.write_table(arrow.table({**table, "t": column}), path)
        for read in (
            lambda p: read_log(p, gains=[2.0, 3.0]),
            lambda p: list(read_log_chunks(p, 150, gains=[2.0, 3.0])),
        ):
            with pytest.raises(LogError, match=message):
                read(path)
    parquet.write_table(arrow.table({**table, "state": arrow.array([{"a": 1.0}] * rows)}), path)
    assert len(list(read_log_chunks(path, 150, gains=[2.0, 3.0]))) == 6  # what is not needed may be anything
    parquet.write_table(arrow.table(table), path, compression="snappy")
    data = path.read_bytes()
    for place in range(60, 1500, 60):
        path.write_bytes(data[:place] + b"\xff" * 8 + data[place + 8 :])
        try:
            list(read_log_chunks(path, 150, gains=[2.0, 3.0]))
        except LogError as error:
            assert str(path) in str(error)


def test_triangles_of_joints_that_do_not_feel_all_columns():
    """Columns and rows of zeros left out or not: one triangle, up to signs of its rows."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 30, 12))
    rows[0][:, [0, 3, 4, 11]] = 0.0
    rows[1][:, 2:] = 0.0
    rows[2][5:] = 0.0  # fewer rows than columns
    rows[3] = 0.0
    found = triangles_of(rows)
    assert found.shape == (4, 12, 12) and np.array_equal(found, np.triu(found))
    np.testing.assert_allclose(
        np.swapaxes(found, 1, 2) @ found, np.swapaxes(rows, 1, 2) @ rows, atol=1e-12 * np.abs(rows).sum()
    )
    assert not found[0][:, [0, 3, 4, 11]].any() and not found[3].any()
