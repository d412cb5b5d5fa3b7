"""Column maps: any table made a log, and every mistake in a map named by file, line and key."""

import numpy as np
import pytest

from data_paths import ROOT
from jaxdyn import LogError, read_log
from jaxdyn.io.column_map import UNITS, read_column_map

N = 60
T = np.arange(N) / 100
W = np.array([3.0, 5.0])
Q, QD, TAU = np.sin(T[:, None] * W), W * np.cos(T[:, None] * W), 10 * np.cos(T[:, None] * W) + 3

MAP = """# a controller's own export
separator = ";"
decimal = ","
skip_lines = 2

[t]
column = "Stamp"
unit = "ms"

[q]
columns = ["A1", "A2"]
unit = ["deg", "rev"]
sign = [1, -1]
offset = [0.0, 1.5]

[qd]
columns = "V*"
unit = "rpm"

[i]
columns = ["Strom1", "Strom2"]
unit = "mA"
gains = [2.0, -4.0]
"""


@pytest.fixture
def write(tmp_path):
    """Writes a controller's export, with German numbers and two lines above the header, and a map; both paths."""

    def write(text=MAP, header="Stamp;V0;V1;Strom2;Strom1;A2;A1;State"):
        cells = np.column_stack(
            [
                1e3 * T,
                QD * 30 / np.pi,
                TAU[:, 1] / -4e-3,
                TAU[:, 0] / 2e-3,
                (1.5 - Q[:, 1]) / (2 * np.pi),
                np.degrees(Q[:, 0]),
                np.zeros(N),
            ]
        )
        lines = ["Export 4.2", "t;q1;tau1"] + ([header] if header else [])
        lines += [";".join(repr(float(x)).replace(".", ",") for x in row) for row in cells]
        (tmp_path / "run.csv").write_text("\n".join(lines) + "\n")
        (tmp_path / "map.toml").write_text(text)
        return tmp_path / "run.csv", tmp_path / "map.toml"

    return write


def same(log):
    np.testing.assert_allclose(log.t, T, rtol=1e-14)
    for block, truth in ((log.q, Q), (log.qd, QD), (log.tau, TAU)):
        np.testing.assert_allclose(block, truth, rtol=1e-13, atol=1e-14)


def test_a_map_with_every_entry_reads_a_foreign_log(write):
    path, columns = write()
    log = read_log(path, 2, columns=columns)
    same(log)
    (note,) = [note for note in log.notes if "map.toml" in note]
    assert "q with unit ['deg', 'rev'], sign [1, -1], offset [0.0, 1.5]" in note and "gains [2.0, -4.0]" in note


def test_a_map_can_be_a_mapping_and_read_logs_without_header(write):
    path, _ = write(header=None)
    content = {
        "separator": ";",
        "decimal": ",",
        "skip_lines": 2,
        "header": False,
        "t": {"column": 1, "unit": "ms"},
        "q": {"columns": [7, "column 6"], "scale": [np.pi / 180, -2 * np.pi], "offset": [0, 1.5]},
        "qd": {"columns": [2, 3], "unit": "rpm"},
        "tau": {"columns": [5, 4], "scale": [2e-3, -4e-3]},
    }
    same(read_log(path, columns=content))


def test_currents_take_gains_from_the_call(write):
    path, columns = write(MAP.replace("gains = [2.0, -4.0]\n", ""))
    same(read_log(path, columns=columns, gains=[2.0, -4.0]))
    with pytest.raises(LogError, match="motor currents, not torques"):
        read_log(path, columns=columns)
    path, columns = write()
    with pytest.raises(LogError, match=r"map.toml, line 23, \[i\], gains: gains= is also passed"):
        read_log(path, columns=columns, gains=[1.0, 1.0])


def test_a_map_reads_columns_separated_by_blanks_and_archives_of_arrays(tmp_path):
    path = tmp_path / "run.txt"
    path.write_text("time pos0 pos1 f0 f1\n" + "\n".join(" ".join(map(repr, map(float, r))) for r in np.c_[T, Q, TAU]))
    content = {"t": {"column": "time"}, "q": {"columns": "pos*"}, "tau": {"columns": "f*"}}
    for separator in ({}, {"separator": " "}):
        log = read_log(path, 2, columns={**separator, **content})
        np.testing.assert_array_equal(log.tau, TAU)
    path.write_text(path.read_text().replace("pos1", "pos99999999"))
    with pytest.raises(LogError, match=r"numbered from 0 or 1 without gaps; .* has pos0, pos99999999"):
        read_log(path, columns=content)
    np.savez(tmp_path / "run.npz", stamp=T, angles=np.degrees(Q), load=TAU)
    content = {
        "t": {"column": "stamp"},
        "q": {"columns": "angles", "unit": "deg", "sign": [1, -1]},
        "tau": {"columns": "load", "unit": "kN m"},
    }
    log = read_log(tmp_path / "run.npz", 2, columns=content)
    np.testing.assert_allclose(log.q, Q * [1, -1], rtol=1e-14)
    np.testing.assert_allclose(log.tau, 1e3 * TAU)
    content["q"]["sign"] = [1, 1, 1]
    with pytest.raises(LogError, match=r"the column map, \[q\], sign: 3 values for 2 columns"):
        read_log(tmp_path / "run.npz", columns=content)


@pytest.mark.parametrize("unit, start", [("degC", 293.15), ("K", 20.0), (" K ", 20.0)])
def test_temperatures_in_kelvins_become_degrees_celsius(write, unit, start):
    warm = MAP + f'\n[temperature]\ncolumn = "State"\nunit = "{unit}"\noffset = 293.15\n'
    path, columns = write(warm)
    np.testing.assert_allclose(read_log(path, 2, columns=columns).temperature, start, rtol=1e-12)


def test_cells_are_checked_under_their_foreign_names(write):
    path, columns = write()
    path.write_text(path.read_text().replace("\n30,0;", "\nnonsense;", 1))
    with pytest.raises(LogError, match=r"row 4 \(line 7\), column 'Stamp' \(not a number: 'nonsense'\)"):
        read_log(path, columns=columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("separator = ", "separator "), r"map.toml: the column map is not TOML: .*line 2"),
        (('separator = ";"', 'separator = ";;"'), r"map.toml, line 2, separator: ';;' is not a single character"),
        (('separator = ";"', "separator = 3"), r"line 2, separator: 3 is not a text in quotes"),
        (('decimal = ","', 'decimal = ";"'), r"line 3, decimal: ';' is neither '.' nor ','"),
        (("skip_lines = 2", "skip_lines = -2"), r"line 4, skip_lines: .* cannot be negative"),
        (
            ("skip_lines = 2", "skip = 2"),
            r"line 4, skip: unknown key; known keys are separator, .*\[t\], \[q\], \[qd\]",
        ),
        (("[qd]", "[velocity]"), r"line 16, \[velocity\]: unknown table; known tables are \[t\], \[q\]"),
        (
            ('column = "Stamp"', 'name = "Stamp"'),
            r"line 7, \[t\], name: unknown key; known keys are column, columns, unit",
        ),
        (("gains =", "gain ="), r"line 23, \[i\], gain: unknown key"),
        (('unit = "rpm"', "gains = 2.0"), r"line 18, \[qd\], gains: unknown key; .*gains only in \[i\]"),
        (('unit = "ms"', 'columns = "Stamp"'), r"line 7, \[t\], column: specify column or columns, not both"),
        (
            ('unit = "rpm"', 'unit = "rps"'),
            r"line 18, \[qd\], unit: 'rps' is unknown; choose among rad/s, .*or specify a scale",
        ),
        (("sign = [1, -1]", "sign = [1, -2]"), r"line 13, \[q\], sign: -2 is not a valid sign: use 1 or -1"),
        (("sign = [1, -1]", "sign = [1]"), r"line 13, \[q\], sign: 1 values for 2 columns"),
        (("sign = [1, -1]", "scale = 0"), r"line 13, \[q\], scale: 0 is not a valid scale: it erases the column"),
        (("[0.0, 1.5]", '[0.0, "x"]'), r"line 14, \[q\], offset: 'x' is not a finite number"),
        (("[2.0, -4.0]", "[2.0, nan]"), r"line 23, \[i\], gains: nan is not a finite number"),
        (
            ('"A2"]', '"A3"]'),
            r"line 11, \[q\], columns: 'A3' is not a column of .*run.csv; its columns are Stamp, V0, V1",
        ),
        (('"A2"]', '"A1"]'), r"\[q\], columns: column 'A1' of .*run.csv is used twice, by \[q\] and \[q\]"),
        (('"A2"]', "9]"), r"line 11, \[q\], columns: 9 is not a column of .*, which has columns 1 to 8"),
        (('"V*"', '"W*"'), r"line 17, \[qd\], columns: 'W\*' must match columns numbered .*; .* has none"),
        (
            ('column = "Stamp"', "columns = []"),
            r"line 7, \[t\], columns: no columns are specified; time needs one",
        ),
        (('column = "Stamp"\n', ""), r"line 6, \[t\]: key column is missing"),
        (('[t]\ncolumn = "Stamp"\nunit = "ms"\n', ""), r"map.toml: \[t\] is missing: specify the column of"),
        (("[i]", "[tau]"), r"line 23, \[tau\], gains: unknown key"),
        ((MAP[MAP.index("[i]") :], ""), r"map.toml: \[tau\] or \[i\] is missing"),
        (("[i]", '[tau]\ncolumn = "State"\n[i]'), r"line 22, \[i\]: specify \[tau\] or \[i\], not both"),
        (('unit = "rpm"', "unit = {}"), r"line 18, \[qd\], unit: {} is unknown"),
        (("skip_lines = 2", "deep = " + 50000 * "["), r"map.toml: the column map is not TOML"),
        (("[2.0, -4.0]", "[2.0, 1" + 400 * "0" + "]"), "map.toml: an integer .* exceeds the 64 bits"),
        (("skip_lines = 2", "joints = 0x" + 5000 * "f"), "map.toml: an integer .* exceeds the 64 bits"),
        (("skip_lines = 2", "joints = [1, 2]"), r"line 4, joints: \[1, 2\] is not a list of joint names"),
    ],
)
def test_mistakes_in_a_map_are_named(write, change, message):
    assert change[0] in MAP
    path, columns = write(MAP.replace(*change, 1))
    with pytest.raises(LogError, match=message):
        read_log(path, columns=columns)


def test_a_map_that_cannot_be_read_is_refused(tmp_path, write):
    path, _ = write()
    with pytest.raises(LogError, match=r"none.toml: the column map cannot be read: No such file"):
        read_log(path, columns=tmp_path / "none.toml")
    with pytest.raises(LogError, match=r"the column map is not TOML: .*null"):
        read_log(path, columns="a\0b")
    path, columns = write(header="Stamp;V0;V1;Strom2;Strom1;A2;A2;State")
    with pytest.raises(LogError, match=r"\[q\], columns: 'A1' is not a column"):
        read_log(path, columns=columns)
    path, columns = write(MAP.replace("A1", "A2", 1), header="Stamp;V0;V1;Strom2;Strom1;A2;A2;State")
    with pytest.raises(LogError, match=r"several columns 'A2'; specify the column by its number"):
        read_log(path, columns=columns)
    deep = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(LogError, match="unknown key"):
        read_log(path, columns={"deep": deep})
    assert read_column_map(columns).kinds["qd"] == {"columns": "V*", "unit": "rpm"}


def test_the_map_in_the_documentation_works(tmp_path):
    page = (ROOT / "docs" / "logs.md").read_text("utf-8")
    (tmp_path / "map.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    header = "Timestamp (ms);A1;A2;A3;velocity_0;velocity_1;velocity_2;current_1;current_2;current_3"
    rows = ["; ".join([str(10 * k), *(f"{k * j},5" for j in range(1, 10))]) for k in range(30)]
    (tmp_path / "run.csv").write_text("\n".join(["", "made by hand", header, *rows]))
    log = read_log(tmp_path / "run.csv", 3, columns=tmp_path / "map.toml")
    np.testing.assert_allclose(log.t, np.arange(30) / 100)
    np.testing.assert_allclose(log.q[2], [np.radians(2.5), 1.5708 - np.radians(4.5), 0.0065])
    np.testing.assert_allclose(log.qd[2], np.array([8.5, 10.5, 12.5]) * np.pi / 30)
    np.testing.assert_allclose(log.tau[2], np.array([14.5, 16.5, 18.5]) * 1e-3 * [14.87, 13.26, 11.13])
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in page.splitlines() if line.startswith("| `")]
    units = {row[1]: set(row[2].replace(" ", "").replace(";", ",").split(",")) for row in rows if row[1] in UNITS}
    assert units == {kind: set(known) for kind, known in UNITS.items()}


def test_columns_can_be_given_by_their_numbers(tmp_path):
    """Whatever they are called: twice the same, nothing at all, or without a header line, which then need not be said."""
    t = np.arange(50) / 50
    rows = np.c_[t, np.sin(t), np.cos(t)]
    numbers = {"t": {"column": 1}, "q": {"column": 2}, "tau": {"columns": [3]}}
    for k, header in enumerate(("clock,A,A", ",,", "")):
        path = tmp_path / f"{k}.csv"
        text = "\n".join(",".join(map(repr, row)) for row in rows.tolist())
        path.write_text(f"{header}\n{text}" if header else text)
        log = read_log(path, 1, columns=numbers)
        np.testing.assert_array_equal(np.c_[log.t, log.q, log.tau], rows)
    with pytest.raises(LogError, match=r"several columns 'A'; specify the column by its number"):
        read_log(tmp_path / "0.csv", 1, columns={**numbers, "q": {"column": "A"}})


def test_time_can_be_in_two_columns_without_a_header(tmp_path):
    """As `ros2 topic echo --csv` writes it: seconds, nanoseconds, frame, names, positions, velocities, efforts."""
    start = 1_695_196_914_311_943_424
    stamps = [start + round(1e9 * t) for t in T]
    rows = [
        f"{t // 10**9},{t % 10**9},,b,a,{q[1]!r},{q[0]!r},{tau[1]!r},{tau[0]!r}"
        for t, q, tau in zip(stamps, Q.tolist(), TAU.tolist(), strict=True)
    ]
    path = tmp_path / "echo.csv"
    path.write_text("\n".join(rows))
    columns = {
        "t": {"columns": [1, 2], "unit": ["s", "ns"]},
        "q": {"columns": [7, 6], "sign": [1, -1]},
        "tau": {"columns": [9, 8]},
    }
    log = read_log(path, 2, columns=columns)
    np.testing.assert_allclose(log.t, T - T[0], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(log.q, Q * [1, -1])
    np.testing.assert_array_equal(log.tau, TAU)
    with pytest.raises(LogError, match=r"\[t\], scale: columns of time that are added have only units"):
        read_log(path, 2, columns={**columns, "t": {"columns": [1, 2], "scale": 2.0}})
    whole = len(rows) // 2
    parts = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for part, some in zip(parts, (rows[:whole], rows[whole:]), strict=True):
        part.write_text("\n".join(some))
    np.testing.assert_allclose(read_log(parts, 2, columns=columns).t, log.t, rtol=0, atol=1e-12)


def test_dates_are_read_in_the_format_of_the_map(tmp_path):
    stamps = [np.datetime64("2025-11-27T23:59:59.5", "ns") + np.timedelta64(round(1e9 * t), "ns") for t in T]
    lines = ["Tag;Uhrzeit;A1;A2;F1;F2"]
    for t, q, tau in zip(map(str, stamps), Q.tolist(), TAU.tolist(), strict=True):
        lines.append(";".join([*t.split("T"), *(f"{x!r}" for x in (*q, *tau))]))
    path = tmp_path / "run.csv"
    path.write_text("\n".join(lines))
    content = {"t": {"columns": ["Tag", "Uhrzeit"]}, "q": {"columns": "A*"}, "tau": {"columns": "F*"}}
    np.testing.assert_allclose(read_log(path, 2, columns=content).t, T - T[0], rtol=0, atol=1e-9)
    with pytest.raises(LogError, match=r"\[t\]: column 'Uhrzeit' of .* contains times, not numbers"):
        read_log(path, 2, columns={**content, "t": {"column": "Uhrzeit", "unit": "ms"}})
    with pytest.raises(LogError, match=r"\[q\]: column 'Tag' of .* contains times, not numbers"):
        read_log(path, 2, columns={**content, "t": {"column": "Uhrzeit"}, "q": {"columns": ["Tag", "A1"]}})


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["elbow/position", "joint_1/position"], "*/position"),
        (["/left/elbow/position", "/left/joint_1/position", "/right/elbow/position"], "/left/*/position"),
        (["q elbow", "q joint_1", "q gripper", "q 3"], "q *"),
        (["joint_2/position", "joint_1/position"], "joint_*/position"),
        (["ur10_joint_2", "ur10_joint_1"], "*"),
        (["b1/pos", "b0/pos"], "*/pos"),
    ],
)
def test_patterns_stand_for_names_or_numbers_of_joints(tmp_path, names, pattern):
    """A pattern stands for the joints' names, whatever their order, or for their numbers."""
    header = ["stamp", *names, "F1", "F2"]
    blocks = [T, *Q.T[::-1], *np.zeros((len(names) - 2, len(T))), *TAU.T]
    path = tmp_path / "run.csv"
    np.savetxt(path, np.stack(blocks, 1), "%.17g", ";", header=";".join(header), comments="")
    content = {"t": {"column": "stamp"}, "q": {"columns": pattern}, "tau": {"columns": "F*"}}
    if "*" == pattern:
        content["tau"] = {"columns": [4, 5]}
        content["q"] = {"columns": "ur10_joint_*"}
    log = read_log(path, ("joint_1", "elbow"), columns=content)
    np.testing.assert_array_equal(log.q, Q)
    np.testing.assert_array_equal(log.tau, TAU)


def test_patterns_that_match_too_much_are_refused(tmp_path):
    path = tmp_path / "run.csv"
    np.savetxt(path, np.c_[T, Q, Q, TAU], "%.17g", ",", header="stamp,q1,q2,q1,q2,F1,F2", comments="")
    content = {"t": {"column": "stamp"}, "q": {"columns": "q*"}, "tau": {"columns": "F*"}}
    with pytest.raises(LogError, match=r"has several columns 'q1'; specify the columns by numbers"):
        read_log(path, 2, columns=content)
    np.testing.assert_array_equal(read_log(path, 2, columns={**content, "q": {"columns": [4, 5]}}).q, Q)
    header = "stamp,left_1,left_2,right_1,right_2,F1,F2"
    np.savetxt(path, np.c_[T, Q, -Q, TAU], "%.17g", ",", header=header, comments="")
    both = {**content, "q": {"columns": ["left_*", "right_*"]}, "tau": {"columns": [6, 7, 6, 7]}}
    with pytest.raises(LogError, match=r"column 'F1' of .* is used twice"):
        read_log(path, 4, columns=both)
    both["tau"] = {"columns": ["F1", "F2", "stamp", "left_1"]}
    with pytest.raises(LogError, match="is used twice"):
        read_log(path, 4, columns=both)
    with pytest.raises(LogError, match=r"'\*_1' must match .*, or columns with the robot's joint names \(a, b\)"):
        read_log(path, ("a", "b"), columns={**content, "q": {"columns": "*_1"}})
