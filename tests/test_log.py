"""Reading logs: three formats, every complaint with its place, and what is noted."""

import dataclasses
import sys
import tomllib
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

import regression
from jaxdyn import (
    IdentificationError,
    JointLimits,
    Log,
    LogError,
    Topology,
    from_dh,
    identify,
    make_chain,
    read_log,
)
from jaxdyn.identification import calibrate_gains, compare_models, compare_with_log, identify_payload, identify_together
from jaxdyn.identification.excitation_design import ExcitationDesign
from jaxdyn.io import check_log, loads, read_log_chunks, read_motion
from jaxdyn.io.tables import find_bad_rows, segments

N, JOINTS = 60, 2
HEADER = ["t", "q1", "q2", "qd1", "qd2", "tau1", "tau2"]
UR10E_GAINS = (14.87, 13.26, 11.13, 10.62, 11.03, 11.47)


def motion(samples: int = N, rate: float = 100.0) -> dict[str, np.ndarray]:
    t = np.arange(samples) / rate
    w = np.array([3.0, 5.0])
    x = t[:, None] * w
    return {"t": t, "q": 0.8 * np.sin(x), "qd": 0.8 * w * np.cos(x), "tau": 10 * np.cos(x) + 3}


def table(samples: int = N) -> np.ndarray:
    return np.hstack([block.reshape(samples, -1) for block in motion(samples).values()])


def rows_of(values: np.ndarray) -> list[list[str]]:
    return [[repr(float(x)) for x in row] for row in values]


@pytest.fixture
def write(tmp_path):
    def write(cells, header=HEADER, separator=",", end="\n", name="log.csv", before="", encoding="utf-8"):
        lines = [separator.join(line) for line in ([header] if header else []) + list(cells)]
        path = tmp_path / name
        path.write_bytes((before + end.join(lines) + end).encode(encoding))
        return path

    return write


def same(log: Log, expected=None) -> None:
    expected = expected or motion()
    for name, block in expected.items():
        np.testing.assert_array_equal(getattr(log, name), block, err_msg=name)


def complaint(*args, **kwargs) -> str:
    with pytest.raises(LogError) as caught:
        read_log(*args, **kwargs)
    return str(caught.value)


def test_a_written_csv_log_is_read_unchanged(write):
    log = read_log(write(rows_of(table())), JOINTS)
    same(log)
    assert (log.n, len(log), log.source, log.notes) == (2, N, "log.csv", ())
    assert "60 samples in 0.59 s, 2 joints" in repr(log)


@pytest.mark.parametrize(
    "layout",
    [
        {"separator": ";"},
        {"separator": "\t", "name": "log.tsv"},
        {"separator": "  ", "name": "log.txt"},
        {"end": "\r\n"},
        {"end": "\r"},
        {"encoding": "utf-8-sig"},
        {"encoding": "utf-16"},
        {"before": "# made by hand\n\n  # twice\n"},
        {"separator": ", "},
        {"header": [f'"{name}"' for name in HEADER]},
    ],
    ids=lambda layout: str(layout),
)
def test_text_logs_of_all_layouts_are_read(write, layout):
    same(read_log(write(rows_of(table()), **layout)))


def test_decimal_commas_and_headers_of_numpy_are_read(write):
    cells = [[cell.replace(".", ",") for cell in row] for row in rows_of(table())]
    log = read_log(write(cells, separator=";"))
    same(log)
    assert log.notes == ("decimal commas read as points",)
    log = read_log(write([["# " + HEADER[0], *HEADER[1:]], *rows_of(table())], header=None))
    same(log)
    assert log.notes == ("column names taken from the comment in line 1",)


@pytest.mark.parametrize("two_dimensional", [False, True])
@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_binary_logs_are_read_unchanged(tmp_path, kind, two_dimensional):
    columns = motion() if two_dimensional else dict(zip(HEADER, table().T, strict=True))
    path = tmp_path / f"log.{kind}"
    if kind == "npz":
        np.savez(path, **columns)
    else:
        arrow = pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
        from pyarrow import parquet

        arrays = {name: arrow.array(list(block) if block.ndim == 2 else block) for name, block in columns.items()}
        parquet.write_table(arrow.table(arrays), path)
    same(read_log(path, JOINTS))


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'jaxdyn[parquet]'" in complaint(path)


def test_files_that_are_not_what_they_are_called(tmp_path):
    pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    for name, text in (("log.npz", "not a NumPy archive"), ("log.parquet", "not a Parquet file")):
        (tmp_path / name).write_text("hello, hello, hello")
        assert text in complaint(tmp_path / name)


@pytest.mark.parametrize(
    "names",
    [
        ["time", "pos1", "pos2", "dq1", "dq2", "effort1", "effort2"],
        ["Timestamp", "position_1", "position_2", "v1", "v2", "torque1", "torque2"],
        ["time [s]", "q[1]", "q[2]", "vel.1", "vel.2", "tau(1)", "tau(2)"],
        ["t_s", "q1_m", "q2_measured", "qd1 (rad/s)", "qd2 (rad/s)", "tau1 [Nm]", "tau2 [N m]"],
    ],
)
def test_columns_are_known_by_their_aliases(write, names):
    log = read_log(write(rows_of(table()), header=names))
    same(log)
    assert log.notes == ()


def test_columns_may_be_in_any_order_and_others_are_ignored(write):
    order = [4, 0, 6, 2, 5, 1, 3]
    names = ["t", "q0", "q1", "qd0", "qd1", "tau0", "tau1"]
    cells = [[row[k] for k in order] + ["running"] for row in rows_of(table())]
    log = read_log(write(cells, header=[names[k] for k in order] + ["state"]))
    same(log)
    assert log.notes == ("joints are numbered from 0 in the file: q0 is joint 1", "columns ignored: state")


def test_velocities_are_optional(write):
    keep = [0, 1, 2, 5, 6]
    log = read_log(write([[row[k] for k in keep] for row in rows_of(table())], header=[HEADER[k] for k in keep]))
    assert log.qd is None
    same(log, {name: block for name, block in motion().items() if name != "qd"})


def test_motor_currents_need_gains(write):
    names = [*HEADER[:5], "i1", "i2"]
    path = write(rows_of(table()), header=names)
    assert "motor currents, not torques; specify gains=" in complaint(path)
    log = read_log(path, gains=[2.0, -3.0])
    np.testing.assert_array_equal(log.tau, motion()["tau"] * [2.0, -3.0])
    assert log.notes == ("tau = gain x current with 2, -3",)
    for wrong in ([1.0], [1.0, 0.0], [1.0, np.nan]):
        assert "gains must be 2 finite numbers other than zero" in complaint(path, gains=wrong)


def test_gains_are_a_factor_on_torques_and_choose_currents(write):
    log = read_log(write(rows_of(table())), gains=[2.0, 0.5])
    np.testing.assert_array_equal(log.tau, motion()["tau"] * [2.0, 0.5])
    assert "factor x logged torque with 2, 0.5" in log.notes[0]
    both = write([[*row, "1.5", str(k)] for k, row in enumerate(rows_of(table()))], header=[*HEADER, "i1", "i2"])
    same(read_log(both))
    np.testing.assert_array_equal(read_log(both, gains=[2.0, 3.0]).tau[:, 1], 3.0 * np.arange(N))


def test_motor_side_columns_are_noted_or_ignored(write):
    names = ["t", "qm1", "qm2", "qdm1", "qdm2", "taum1", "taum2"]
    log = read_log(write(rows_of(table()), header=names))
    same(log)
    assert "are motor-side: convert them to joint values with motor_to_joint" in log.notes[0]
    joint_side = write([[*row, "1", "2"] for row in rows_of(table())], header=[*HEADER, "qm1", "qm2"])
    log = read_log(joint_side)
    same(log)
    assert log.notes == ("columns ignored: qm1, qm2",)


def test_rows_are_counted_from_one_and_only_they_are_checked(write):
    cells = rows_of(table())
    cells[1][3] = "nan"
    path = write(cells)
    assert "row 2 (line 3)" in complaint(path)
    log = read_log(path, rows=(11, 40))
    same(log, {name: block[10:40] for name, block in motion().items()})
    assert log.notes == ("rows 11 to 40 of 60 read",)
    assert "row 2 (line 3)" in complaint(path, rows=(2, 40))
    for wrong in ((0, 40), (40, 40), (1, 61)):
        assert "is not a range (first, last) within the file's rows 1 to 60" in complaint(path, rows=wrong)


def test_missing_and_empty_files_are_refused(tmp_path, write):
    assert "there is no such file" in complaint(tmp_path / "nothing.csv")
    assert "a log is a .csv, .tsv" in complaint(tmp_path / "log.mat")
    (tmp_path / "log.csv").write_text("")
    assert "the file is empty" in complaint(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text("# nothing\n\n")
    assert "the file contains no data" in complaint(tmp_path / "log.csv")
    assert "a header line, but no data below it" in complaint(write([]))


def test_text_that_ends_within_a_character(write):
    path = write(rows_of(table()), encoding="utf-16")
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path}: the file begins with the byte-order mark of UTF-16" in complaint(path)


def test_a_log_without_header_is_refused(write):
    assert "line 1 contains numbers instead of the header" in complaint(write(rows_of(table()), header=None))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["x", *HEADER[1:]], "missing columns: t; the columns are x, q1"),
        (["t", "a", "b", *HEADER[3:]], "missing columns: q; the"),
        ([*HEADER[:3], "qd1", "speed", "tau1", "tau2"], "missing columns: qd2; the"),
        ([*HEADER[:5], "tau1", "f2"], "missing columns: tau2; the"),
        ([*HEADER[:5], "f1", "f2"], "missing columns: tau (or currents i); the"),
        (["t", "q1", "q3", *HEADER[3:]], "missing columns: q2, qd3, tau3; the"),
        (["t", "q1 [deg]", "q2", *HEADER[3:]], "missing columns: q1; the"),
        (["t", "q1", "pos1", *HEADER[3:]], "columns 'q1' and 'pos1' denote the same quantity"),
        (["t", "q1", "q900000", *HEADER[3:]], "missing columns: q2, q3, q4"),
        (["t", "q1", "q22", *HEADER[3:]], "q20, q21, qd3"),
        (["t", "q1", "q30", *HEADER[3:]], "q20, q21 and 8 more, qd3"),
        (["t", "q1", "q900000", *HEADER[3:]], "q21 and 899978 more, qd3"),
        (["t", "q1", "q" + "9" * 5000, *HEADER[3:]], "1 joints have positions, but 2 have qd"),
        (["t", "q", "q2", *HEADER[3:]], "'q' and 'q2' both contain q; remove one"),
    ],
)
def test_missing_and_double_columns_are_named(write, names, text):
    message = complaint(write(rows_of(table()), header=names))
    assert text in message and len(message) < 2000
    assert "missing" not in text or "in a column map (docs/logs.md): columns='map.toml'" in message


def test_a_log_with_the_wrong_number_of_joints_is_refused(write):
    assert "the log has 2 joints, but the robot has 7; the positions are q1, q2" in complaint(
        write(rows_of(table())), 7
    )


def test_arrays_of_the_wrong_shape_in_archives_are_refused(tmp_path):
    path = tmp_path / "log.npz"
    np.savez(path, **{**motion(), "q": motion()["q"].T})
    assert "array 'q' has shape (2, 60), but 't' has 60 samples" in complaint(path)
    np.savez(path, **{**motion(), "tau": motion()["tau"][:, :1]})
    assert "2 joints have positions, but 1 have tau" in complaint(path)
    np.savez(path, **{**motion(), "q": np.array(["a"] * N)})
    assert "column 'q' contains <U1, not numbers" in complaint(path)
    np.savez(path, **{**motion(), "tau": motion()["tau"] > 0})
    assert "column 'tau' contains bool, not numbers" in complaint(path)
    columns = dict(zip(HEADER, table().T, strict=True))
    np.savez(path, **{**columns, "q1": table()[:, 1:3]})
    assert "array 'q1' has shape (60, 2), unlike q2; provide one column per joint" in complaint(path)
    np.savez(path, **{name: columns[name] for name in HEADER[:-1]})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("tau2", "no array")
    assert "column 'tau2' contains |S8, not numbers" in complaint(path)
    np.savez(path, **motion())
    path.write_bytes(b"prefix" + path.read_bytes())  # as self-extracting archives have it
    assert read_log(path).q.shape == (N, 2)
    for clock in (np.zeros(0), np.zeros(())):
        np.savez(path, **{**motion(), "t": clock})
        assert f"'t' has shape {clock.shape}: the log contains no samples" in complaint(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_with_flipped_bytes_are_refused_or_read(tmp_path, save):
    path, rng = tmp_path / "log.npz", np.random.default_rng(0)
    save(path, **motion())
    sound, refused = path.read_bytes(), 0
    for place in rng.integers(0, len(sound), size=150):
        changed = bytearray(sound)
        changed[place] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        for read in (read_log, lambda p: list(read_log_chunks(p, rows=100))):
            try:
                read(path)
            except LogError as error:
                assert str(path) in str(error)
                refused += 1
    assert refused > 200


def test_cells_that_are_not_numbers_are_located(write):
    cells = rows_of(table())
    cells[4][2], cells[9][6] = "oops", ""
    text = complaint(write(cells, before="# one line more\n"))
    assert "2 of 60 rows cannot be used: 2 with NaN or infinite numbers" in text
    assert "first at row 5 (line 7), column 'q2' (not a number: 'oops')" in text
    assert "on_bad_rows='drop'" in text and "rows=(first, last)" in text
    log = read_log(write(cells), on_bad_rows="drop")
    same(log, {name: np.delete(block, [4, 9], axis=0) for name, block in motion().items()})
    assert log.notes[0].endswith("dropped: rows 5, 10")


@pytest.mark.parametrize("cell", ["1_000", "٣", "0x10", "1,5", "1.5.2"])
def test_what_only_python_takes_for_a_number(write, cell):
    cells = rows_of(table())
    cells[20][4] = cell
    assert f"first at row 21 (line 22), column 'qd2' (not a number: {cell!r})" in complaint(
        write(cells, separator="  ")
    )


@pytest.mark.parametrize(("bad", "shown"), [("nan", "nan"), ("-inf", "-inf"), ("1e400", "inf")])
def test_nan_and_infinite_cells_are_located(write, bad, shown):
    cells = rows_of(table())
    cells[20][4] = cells[21][4] = bad
    text = complaint(write(cells))
    assert "2 with NaN or infinite numbers, first at row 21 (line 22), column 'qd2' (" + shown + ")" in text
    assert len(read_log(write(cells), on_bad_rows="drop")) == N - 2


def test_lines_with_too_few_cells_are_located(write):
    cells = rows_of(table())
    cells[30] = cells[30][:4]
    assert "first at row 31 (line 32), column 't' (the row has 4 cells, not 7)" in complaint(write(cells))


@pytest.mark.parametrize("separator", [",", ";", "\t", " "])
def test_rows_with_a_cell_too_many_are_refused(write, separator):
    """The position of an extra cell is unknown: all later cells may belong to the previous column."""
    cells = rows_of(table())
    cells[12].insert(3, "0")
    text = complaint(write(cells, separator=separator))
    assert (
        "1 of 60 rows cannot be used" in text
        and "first at row 13 (line 14), column 't' (the row has 8 cells, not 7)" in text
    )
    log = read_log(write(cells, separator=separator), on_bad_rows="drop")
    same(log, {name: np.delete(block, 12, axis=0) for name, block in motion().items()})
    with pytest.raises(LogError, match=r"data row 13, column 't': the row has 8 cells, not 7"):
        list(read_log_chunks(write(cells, separator=separator), rows=100))


def test_separators_at_the_ends_of_rows_are_let_pass(write):
    same(read_log(write([[*row, "", " "] for row in rows_of(table())])))


def test_absurd_numbers_and_jumps_are_located(write):
    cells = rows_of(table())
    cells[7][5] = "1e200"
    assert "1 with numbers beyond 1e+06, first at row 8 (line 9), column 'tau1' (1e+200)" in complaint(write(cells))
    cells = rows_of(table())
    cells[7][2] = "253"
    text = complaint(write(cells))
    assert "1 at which a position jumps away and back, first at row 8 (line 9), column 'q2' (253)" in text
    assert len(read_log(write(cells), on_bad_rows="drop")) == N - 1


def test_folded_angles_are_refused_even_when_dropping(write):
    values = table()
    values[:, 1] = (np.linspace(2.5, 4.0, N) + np.pi) % (2 * np.pi) - np.pi
    path = write(rows_of(values))
    for how in ("raise", "drop"):
        text = complaint(path, on_bad_rows=how)
        assert "1 jumps in position, first at row 27 (line 28), column 'q1'" in text and "numpy.unwrap" in text


def test_time_must_increase(write):
    values = table()
    values[10, 0] = values[9, 0]
    values[30, 0] = values[20, 0] + 1e-4
    text = complaint(write(rows_of(values)))
    assert "at which time does not increase (1 steps back, 1 repeated stamps), first at row" in text
    log = read_log(write(rows_of(values)), on_bad_rows="drop")
    assert len(log) == N - 2 and (np.diff(log.t) > 0).all()
    np.testing.assert_array_equal(log.q[-10:], motion()["q"][-10:])


def test_too_many_bad_rows_are_not_dropped(write):
    values = np.vstack([table(), table()])
    values[N:, 1] += 1e-3
    for choice in ("drop", "raise"):
        text = complaint(write(rows_of(values)), on_bad_rows=choice)
        assert "60 of 120 rows cannot be used" in text and "more than a tenth, too many to drop" in text
        assert "on_bad_rows" not in text  # no advice that would be refused


def test_exact_repeats_are_removed(write):
    """Rows that a logger wrote several times at once, or again later, do not count as bad rows."""
    values = table()
    for order in (np.repeat(np.arange(N), 4), np.r_[0:40, 20:N], np.r_[0:N, 0:N]):
        log = read_log(write(rows_of(values[order])))
        same(log)
        assert f"{len(order) - N} rows removed that repeat an earlier row exactly" in log.notes[0]
    repeated = values[np.repeat(np.arange(N), 4)]
    repeated[130, 2] = np.nan  # places are those of the file
    assert (
        "1 of 61 rows cannot be used" in (text := complaint(write(rows_of(repeated)))) and "row 131 (line 132)" in text
    )
    log = read_log(write(rows_of(repeated)), on_bad_rows="drop")
    same(log)
    assert log.notes[1].endswith("dropped: rows 131")
    many = table(500)[np.repeat(np.arange(500), 3)]
    parts = list(read_log_chunks(write(rows_of(many)), rows=100))
    np.testing.assert_array_equal(np.concatenate([part.q for part in parts]), motion(500)["q"])


def test_time_in_milliseconds_is_suspected(write):
    values = table()
    values[:, 0] *= 1e3
    assert "the median time step is 10 s, too long for a robot log; is the time in milliseconds" in complaint(
        write(rows_of(values))
    )


def test_few_samples_and_nothing_that_changes(write):
    assert "19 samples are too few; at least 20 are needed" in complaint(write(rows_of(table()[:19])))
    assert len(read_log(write(rows_of(table()[:20])))) == 20
    values = table()
    values[:, 1:3] = 0.5
    assert "positions are constant (q1, q2)" in complaint(write(rows_of(values)))
    values = table()
    values[:, 5:] = 0.0
    assert "torques are constant (tau1, tau2): were torques recorded?" in complaint(write(rows_of(values)))
    values = table()
    values[:, 6] = 0.0
    assert read_log(write(rows_of(values))).notes == ("columns tau2 are constant: was the torque recorded?",)


def test_gaps_in_time_are_noted(write):
    values = np.delete(table(), slice(20, 30), axis=0)
    log = read_log(write(rows_of(values)))
    assert log.notes == (
        "gaps in time: 1 (steps longer than 5 times the median of 0.01 s); the longest, 0.11 s, follows row 20 (line 21)",
    )
    assert segments(log.t) == ((0, 20), (20, 50))
    assert segments(log.t, 0.2) == ((0, 50),)


def test_bad_rows_leave_a_real_robots_motion_alone():
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.005, 0.015, 2000))
    q = np.stack([np.sin(3 * t), 200 * np.sin(2 * t), 0 * t], axis=1) + rng.normal(size=(2000, 3)) * 1e-4
    assert find_bad_rows(t, q, ["q1", "q2", "q3"], 3) == []


# unit slips, limits, joints at rest

LIMITS = np.array([[-2.9, 2.9], [-2.0, 2.0]])
SPEED = np.array([6.0, 6.0])


def made(scale_q=1.0, scale_qd=1.0, **changes) -> Log:
    parts = motion(400) | changes
    qd = None if parts["qd"] is None else parts["qd"] * scale_qd
    return Log(parts["t"], parts["q"] * scale_q, qd, parts["tau"], "made")


def refusal(log: Log, **kwargs) -> str:
    with pytest.raises(LogError) as caught:
        check_log(log, **kwargs)
    return str(caught.value)


def test_a_good_log_passes_unchanged():
    log = made()
    checked = check_log(log, position_limits=LIMITS, velocity_limit=SPEED, joint_names=["a", "b"])
    assert checked.notes == () and checked.q is log.q
    assert check_log(log).notes == ()


DEGREES = 180 / np.pi


@pytest.mark.parametrize(
    ("log", "limits", "reason"),
    [
        (made(DEGREES, DEGREES), {}, r"|q| reaches 45.84"),
        (made(DEGREES, DEGREES), {"position_limits": LIMITS}, "|q| reaches 45.84, but the limits only 2.9"),
        (made(8.0, 8.0), {"position_limits": LIMITS}, "% of the positions are beyond the limits -2.9 .. 2.9"),
        (made(0.05 * DEGREES, qd=None), {"velocity_limit": SPEED / 20}, "its velocity limit is 0.3"),
        (made(0.1 * DEGREES, 0.1), {}, "the logged velocity is 0.0174"),
        (made(1.0, DEGREES), {}, "the logged velocity is 57.3"),
    ],
)
def test_angles_in_degrees_are_refused_unless_units_are_checked(log, limits, reason):
    text = refusal(log, **limits)
    assert "made: the values of joint 1 look like degrees" in text and reason in text and "units_checked=True" in text
    check_log(log, **limits, units_checked=True)


def test_many_turns_within_the_limits_are_fine():
    limits = np.array([[-40.0, 40.0], [-40.0, 40.0]])
    assert check_log(made(25.0, 25.0), position_limits=limits).notes == ()


def test_logs_of_lists_and_of_jax_are_arrays(annotations_unchecked):
    plain = made(qd=None)
    for kind in (np.ndarray.tolist, jnp.asarray):
        log = Log(*(None if x is None else kind(x) for x in (plain.t, plain.q, None, plain.tau)))
        assert all(isinstance(x, np.ndarray) for x in (log.t, log.q, log.tau)) and log.n == JOINTS
        np.testing.assert_allclose(check_log(log).q, plain.q)


@pytest.mark.parametrize("samples", [0, 1])
def test_a_log_without_motion_in_time_is_refused(samples):
    log = Log(np.zeros(samples), np.zeros((samples, 2)), None, np.zeros((samples, 2)))
    with pytest.raises(LogError, match=f"memory: the log has {samples} samples"):
        check_log(log)


def test_a_joint_that_does_not_move_is_refused():
    q = motion(400)["q"] * [1.0, 1e-4]
    log = made(q=q, qd=None)
    text = refusal(log, joint_names=["shoulder", "elbow"])
    assert "elbow does not move (it spans 0.00016)" in text and "allow_still=True" in text
    assert check_log(log, allow_still=True).notes == ("joint 2 does not move (it spans 0.00016)",)


def test_exceeded_limits_are_noted():
    checked = check_log(
        made(), position_limits=np.array([[-0.6, 2.9], [-2.0, 0.75]]), velocity_limit=np.array([2.0, 6.0])
    )
    assert len(checked.notes) == 2
    assert "joint 1 is beyond its position limits -0.6 .. 2.9 by up to 0.2, in" in checked.notes[0]
    assert checked.notes[1] == "joint 1 moves at up to 2.4, above its velocity limit 2"


def test_velocities_of_another_sign_are_noted():
    notes = check_log(made(scale_qd=-1.0)).notes
    assert len(notes) == 2 and "the logged velocity of joint 1 is -1 times the derivative of its position" in notes[0]


def test_a_log_of_coupled_joints_has_a_column_per_coordinate():
    body = '<mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
    link = lambda name: f'<link name="{name}"><inertial>{body}</inertial></link>'
    joint = lambda k, extra="": (
        f'<joint name="j{k}" type="revolute"><parent link="l{k}"/><child link="l{k + 1}"/><axis xyz="0 0 1"/>'
        f'<limit lower="-0.5" upper="2" effort="1" velocity="9"/>{extra}</joint>'
    )
    parts = [*(link(f"l{k}") for k in range(4)), joint(0), joint(1), joint(2, '<mimic joint="j1"/>')]
    gripper = loads(f'<robot name="r">{"".join(parts)}</robot>')
    assert (gripper.n, gripper.nv) == (3, 2)
    checked = check_log(made(), gripper)
    assert checked.n == 2
    assert [n.split(" -")[0] for n in checked.notes] == [f"j{k} is beyond its position limits" for k in (0, 1)]
    assert "2 position limits for a log with 3 joints" in refusal(
        Log(np.arange(30.0), np.ones((30, 3)), None, np.ones((30, 3)), "made"), chain=gripper
    )


def test_limits_of_a_log_come_from_its_robot():
    chain = make_chain(
        rotation=[jnp.eye(3)] * 2,
        translation=jnp.zeros((2, 3)),
        screw=[[0.0, 0, 1, 0, 0, 0]] * 2,
        inertia=jnp.asarray([[1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1]] * 2),
        limits=JointLimits(position=jnp.asarray([[-0.5, 0.5], [-1.0, 1.0]])),
        topology=Topology.serial(2, joint_names=("pan", "tilt")),
    )
    assert "pan is beyond its position limits -0.5 .. 0.5" in check_log(made(), chain).notes[0]
    three = Log(np.arange(30.0), np.ones((30, 3)), None, np.ones((30, 3)), "made")
    assert "2 position limits for a log with 3 joints; is it from another robot?" in refusal(three, chain=chain)


# real robots

REAL = {
    "panda/exciting_1.csv": (7, 20544, None),
    "ur10/exciting.csv": (6, 3441, None),
    "tx40/motor_log.csv": (6, 45000, None),
    "ur10e/train_20sec_8harm.csv": (6, 2506, UR10E_GAINS),
    "ur10e/train_30sec_12harm.csv": (6, 3691, UR10E_GAINS),
    "ur10e/train_40sec_12harm.csv": (6, 4639, UR10E_GAINS),
    "ur10e/unloaded_15harm50sec.csv": (6, 5347, UR10E_GAINS),
    "ur10e/validate_ptp_10_points.csv": (6, 5347, UR10E_GAINS),
}


@pytest.mark.parametrize("name", REAL)
def test_real_logs_read_and_pass(shared_data, name):
    joints, count, gains = REAL[name]
    log = read_log(shared_data / name, joints, gains=gains)
    assert len(log) == count and np.isfinite(log.q).all() and (np.diff(log.t) > 0).all()
    if name.startswith("tx40"):
        assert "joint 1 look like degrees" in refusal(log)
    else:
        assert check_log(log).notes == log.notes


def test_the_real_log_with_garbage_is_refused_with_its_rows(shared_data):
    path = shared_data / "ur10e" / "loaded_15harm50sec.csv"
    text = complaint(path, 6, gains=UR10E_GAINS)
    assert "9 of 6106 rows cannot be used" in text and "on_bad_rows='drop'" in text
    assert "first at row 2 (line 3), column 't' (-0.1231)" in text
    log = read_log(path, 6, gains=UR10E_GAINS, on_bad_rows="drop")
    assert len(log) == 6097 and np.abs(log.q).max() < 2 * np.pi and np.abs(log.tau).max() < 500
    assert log.notes[0].endswith("dropped: rows 2-10")
    assert segments(log.t) == ((0, 1), (1, 6097))
    check_log(log)


def test_the_functions_that_use_logs_check_them():
    chain = regression.known_arm()
    t = np.arange(400) / 100
    x = t[:, None] * [3.0, 4.0, 5.0]
    log = Log(t, np.degrees(0.5 * np.sin(x)), None, 5 * np.cos(x), "run")
    uses = {
        "identify": lambda log: identify(chain, log),
        "validation": lambda log: identify(chain, dataclasses.replace(log, q=np.radians(log.q)), log),
        "together": lambda log: identify_together(chain, {"left": log, "right": log}),
        "payload": lambda log: identify_payload(chain, log, unloaded=log),
        "known arm": lambda log: identify_payload(chain, log),
        "gains": lambda log: calibrate_gains(chain, log, log, 1.0),
        "compare": lambda log: compare_models(chain, chain, log),
        "design": lambda log: compare_with_log(chain, object.__new__(ExcitationDesign), log),
    }
    for name, use in uses.items():
        with pytest.raises(LogError, match=r"look like degrees .* pass units_checked=True to read_log"):
            use(log)
            pytest.fail(name)
    compared = compare_models(chain, chain, dataclasses.replace(log, units_checked=True))
    assert check_log(log, chain, units_checked=True).units_checked
    slow = Log(log.t, 0.5 * np.sin(x) * [1, 1, 1e-5], -1.5 * np.cos(x), log.tau, "run")
    notes = compare_models(chain, chain, slow).runs[0].notes
    assert len(compared.runs) == 1 and any("does not move" in note for note in notes)
    assert any("is -1" in note and "times the derivative" in note for note in notes)
    with pytest.raises(IdentificationError, match="does not move"):
        identify(chain, slow)


NANO = 1_695_196_914_311_943_424 + np.round(1e7 * np.arange(N)).astype(
    np.int64
)  # 60 samples at 100 Hz, crossing a second
ISO = [str(np.datetime64(int(x), "ns")) for x in NANO]
SPLIT = [(f"{x // 10**9}", f"{x % 10**9}") for x in NANO.tolist()]


@pytest.mark.parametrize(
    ("names", "stamps"),
    [
        (("sec", "nanosec"), SPLIT),
        (("header.stamp.sec", "header.stamp.nanosec"), SPLIT),
        (("nsecs", "secs"), [pair[::-1] for pair in SPLIT]),
        (("stamp_sec", "stamp_usec"), [(a, f"{int(b) / 1e3:.3f}") for a, b in SPLIT]),
        (("time_s", "time_ns"), SPLIT),
        (("date", "time"), [x.split("T") for x in ISO]),
        (("time",), [(x,) for x in ISO]),
        (("timestamp",), [(f"{x}Z",) for x in ISO]),
        (("t",), [(x.replace("T", " "),) for x in ISO]),
        (("datetime",), [(f"{x.replace('T', ' ')[:-3]}+02:00",) for x in ISO]),
        (("stamp",), [(x.partition("T")[2].replace(".", ","),) for x in ISO]),
        (("time",), [(f'"{x[8:10]}.{x[5:7]}.{x[:4]} {x[11:]}"',) for x in ISO]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value[0], str) else value[0][0],
)
def test_times_in_other_columns_and_formats_are_read(write, names, stamps):
    rows = [[*stamp, *row[1:]] for stamp, row in zip(stamps, rows_of(table()), strict=True)]
    path = write(rows, [*names, *HEADER[1:]], separator="\t")
    log = read_log(path)
    exact = 1e-9 * (NANO - NANO[0])
    np.testing.assert_allclose(log.t, exact, rtol=0, atol=1e-12 if "+" not in str(stamps[0]) else 1e-6)
    np.testing.assert_array_equal(log.tau, motion()["tau"])
    assert any(note.startswith("time is counted from ") for note in log.notes)
    parts = list(read_log_chunks(path, rows=100))
    np.testing.assert_allclose(parts[0].t, log.t, rtol=0, atol=1e-12)
    rows[7][0] = "nonsense"
    assert "row 8 (line 9), column" in complaint(write(rows, [*names, *HEADER[1:]], separator="\t"))


def test_full_nanoseconds_are_not_added_to_seconds(write):
    """A column of seconds beside one of the whole time in nanoseconds is the time by itself."""
    rows = [[row[0], f"{int(1e9 * float(row[0]))}", *row[1:]] for row in rows_of(table())]
    same(read_log(write(rows, ["time_s", "time_ns", *HEADER[1:]])))


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
@pytest.mark.parametrize("kind", ["datetime64[ns]", "datetime64[us]", "timedelta64[ns]", "text", "pair", "zone"])
def test_times_in_binary_files_are_read_in_all_types(tmp_path, suffix, kind):
    blocks = {f"{name}{j + 1}": motion()[name][:, j] for name in ("q", "tau") for j in range(2)}
    stamps = {"t": NANO.astype("datetime64[ns]").astype(kind)} if kind.startswith("d") else {}
    stamps = (
        stamps
        or {
            "timedelta64[ns]": {"t": (NANO - NANO[0]).astype("timedelta64[ns]")},
            "text": {"t": np.array(ISO)},
            "pair": {"sec": NANO // 10**9, "nanosec": NANO % 10**9},
            "zone": {"t": NANO.astype("datetime64[ns]")},
        }[kind]
    )
    path = tmp_path / f"log.{suffix}"
    if suffix == "npz":
        np.savez(path, **stamps, **blocks)
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {name: arrow.array(x) for name, x in (stamps | blocks).items()}
        if kind == "zone":
            columns["t"] = columns["t"].cast(arrow.timestamp("ns", "Europe/Berlin"))
        parquet.write_table(arrow.table(columns), path)
    exact = 1e-9 * (NANO - NANO[0])
    np.testing.assert_allclose(read_log(path).t, exact, rtol=0, atol=1e-6 if kind == "datetime64[us]" else 1e-12)
    if suffix == "parquet":
        np.testing.assert_allclose(next(read_log_chunks(path)).t, exact, rtol=0, atol=1e-6)


def test_two_files_with_times_of_other_forms_are_joined(tmp_path):
    q, tau = motion()["q"], motion()["tau"]
    header, later = "sec,nanosec,q1,q2", NANO + 2_000_000
    rows = [f"{a},{b},{x},{y}" for (a, b), (x, y) in zip(SPLIT, q.tolist(), strict=True)]
    (tmp_path / "q.csv").write_text("\n".join([header, *rows]))
    rows = [f"{np.datetime64(int(t), 'ns')},{x},{y}" for t, (x, y) in zip(later, tau.tolist(), strict=True)]
    (tmp_path / "tau.csv").write_text("\n".join(["time,tau1,tau2", *rows]))
    log = read_log([tmp_path / "q.csv", tmp_path / "tau.csv"])
    np.testing.assert_allclose(log.t, 0.01 * np.arange(N - 1), atol=1e-9)
    np.testing.assert_allclose(log.tau, 0.2 * tau[:-1] + 0.8 * tau[1:], atol=1e-6)


JOINT_NAMES = ("shoulder_pan", "elbow")


@pytest.mark.parametrize(
    "form",
    [
        "{joint}/{word}",
        "{word}_{joint}",
        "{joint}.{word}",
        "/joint_states/{joint}/{word}",
        "{word}[{joint}]",
        "joint_states.{word}.{joint}",
        "{word} {joint}",
        "{joint}::{word}",
        "{word}['{joint}']",
        "state.{joint}.actual_{word}",
    ],
)
@pytest.mark.parametrize("words", [("position", "velocity", "effort"), ("q", "qd", "tau"), ("Pos", "Vel", "Torque")])
def test_columns_called_by_the_names_of_joints_are_found(write, form, words):
    """In another order, and with a gripper that the robot lacks."""
    q, qd, tau = (motion()[kind] for kind in ("q", "qd", "tau"))
    columns = {"t": motion()["t"]}
    for j in (1, 0):
        for word, block in zip(words, (q, qd, tau), strict=True):
            columns[form.format(joint=JOINT_NAMES[j], word=word)] = block[:, j]
    extra = [form.format(joint="gripper", word=word) for word in words]
    columns |= dict.fromkeys(extra, np.zeros(N))
    path = write(rows_of(np.stack(list(columns.values()), 1)), list(columns), separator=";")
    log = read_log(path, JOINT_NAMES)
    same(log)
    assert f"columns ignored: {', '.join(extra)}" in log.notes
    chain = from_dh([1.0] * 2, [0.0] * 2, [0.0] * 2, [0.0] * 2, topology=Topology.serial(2, joint_names=JOINT_NAMES))
    np.testing.assert_array_equal(read_motion(path, chain).tau, tau)
    text = complaint(path, ("wrist", *JOINT_NAMES))
    assert "no columns contain the positions of wrist" in text and "docs/logs.md" in text and "lock=" in text
    assert "docs/logs.md" in complaint(path, 2)


def test_mistakes_in_columns_called_by_joint_are_named(write):
    header = ["t", "elbow/pos", "arm/pos", "elbow/vel", "arm/vel", "elbow/effort", "arm/effort"]
    joints = ("elbow", "arm")
    same(read_log(write(rows_of(table()), header), joints))
    assert read_log(write(rows_of(table()), [*header[:4], "x", *header[5:]]), joints).qd is None
    text = complaint(write(rows_of(table()), [*header[:5], "cmd/elbow/pos", header[6]]), joints)
    assert "'elbow/pos' and 'cmd/elbow/pos' both look like q of joint 'elbow'" in text and "docs/logs.md" in text
    text = complaint(write(rows_of(table()), [*header[:5], "x", header[6]]), joints)
    assert "torques (or currents) of some joints are missing" in text and "docs/logs.md" in text
    named = [*header[:5], "current_elbow", "current_arm"]
    np.testing.assert_array_equal(
        read_log(write(rows_of(table()), named), joints, gains=[2.0, 1.0]).tau, motion()["tau"] * [2, 1]
    )


def test_the_only_group_with_positions_and_torques_is_read(write):
    joints, words = ("elbow", "arm"), ("position", "velocity", "effort")
    header = ["__time", *(f"/joint_states/{joint}/{word}" for word in words for joint in joints)]
    wide = np.hstack([table(), 7 * table()[:, 1:3]])
    same(read_log(write(rows_of(wide), [*header, "/commands/elbow/position", "/commands/arm/position"]), joints))
    twice = [name.replace("/joint_states", "/simulated") for name in header[1:]]
    text = complaint(write(rows_of(np.hstack([table(), table()[:, 1:]])), [*header, *twice]), joints)
    assert "'/joint_states/elbow/position' and '/simulated/elbow/position' both look like q of joint 'elbow'" in text


@pytest.mark.parametrize("form", ["/joint_states/{}[{}]", "joint_states.{}.{}", "/robot/{}_{}"])
def test_numbered_columns_may_have_a_common_beginning(write, form):
    header = ["time", *(form.format(word, k) for word in ("position", "velocity", "effort") for k in (0, 1))]
    same(read_log(write(rows_of(table()), header), 2))
    same(read_log(write(rows_of(table()), header), ("elbow", "arm")))


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (["clock", "M1", "M2", "x", "y", "A1", "A2"], ("clock", "M*", "A*")),  # in the order of the file
        (["clock", "torque_1", "torque_2", "x", "y", "w.1", "w.2"], ("clock", "w.*", "torque_*")),
        (
            ["s", *(f"left_{j}/{w}" for w in ("position_cmd", "position_now", "effort_now") for j in ("elbow", "arm"))],
            ("s", "left_*/position_now", "left_*/effort_now"),
        ),
    ],
)
def test_a_map_for_columns_that_are_not_recognised_is_proposed_and_works(write, header, columns):
    path = write(rows_of(table()), header)
    text = complaint(path, ("elbow", "arm"))
    proposed = text.partition("\n\n")[2]
    found = tomllib.loads(proposed)
    assert (found["t"]["column"], found["q"]["columns"], found["tau"]["columns"]) == columns
    log = read_log(path, ("elbow", "arm"), columns=found)
    at = [
        header.index(columns[1].replace("*", x)) if columns[1].replace("*", x) in header else None
        for x in ("1", "elbow")
    ]
    np.testing.assert_array_equal(log.q[:, 0], table()[:, next(k for k in at if k is not None)])
    assert "\n" not in complaint(write(rows_of(table()), ["t", "q1", "q3", *HEADER[3:]]))


def test_numbered_joints_that_the_robot_lacks_are_refused(write):
    path = write(rows_of(table()))
    text = complaint(path, ["elbow"])
    assert "the log has 2 joints, but the robot has 1" in text and "in a column map (docs/logs.md)" in text
    log = read_log(path, ["elbow"], numbered=["gripper", "elbow"])
    for name in ("q", "qd", "tau"):
        np.testing.assert_array_equal(getattr(log, name), motion()[name][:, 1:])
    assert "columns of gripper left out, which are not among the robot's joints" in log.notes
    assert "gripper is left out, but moves (it spans 0.8)" in log.notes
    assert "numbered= lacks elbow" in complaint(path, ["elbow"], numbered=["a", "b"])
    same(read_log(path, ["a", "b"], numbered=["a", "b", "c"]))  # the file has only the robot's joints
    columns = {"t": {"column": "t"}, "q": {"columns": ["q2"]}, "tau": {"columns": ["tau2"]}}  # as the message advises
    np.testing.assert_array_equal(read_log(path, ["elbow"], columns=columns).q, motion()["q"][:, 1:])


def test_limits_that_allow_no_motion_are_named_and_ignored():
    log = made(0.5, 0.4)
    zeros = np.zeros((2, 2))
    (note,) = check_log(log, position_limits=zeros, velocity_limit=np.zeros(2)).notes
    assert note.startswith("the model's position limits of joint 1, joint 2 are 0 .. 0, which allows no motion")
    assert check_log(log, velocity_limit=np.zeros(2)).notes == ()


def test_arrays_that_do_not_belong_together_are_named(annotations_unchecked):
    good = motion()
    for wrong in (
        {"q": good["q"][:-1]},
        {"tau": good["tau"][:, :1]},
        {"t": good["t"][:-1]},
        {"tau": good["tau"][:, 0]},
    ):
        with pytest.raises(LogError, match=r"memory: \w+ has shape .* but t has shape .*one row per time stamp"):
            Log(**(good | wrong))
    with pytest.raises(LogError, match="the time does not increase"):
        check_log(Log(**(good | {"t": good["t"][::-1]})))
