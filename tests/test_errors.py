"""Errors are composed of fields: the exception's text and the command line's differ in how an argument is spelled."""

import pickle

import numpy as np
import pytest

from jaxdyn import JaxdynError, LogError, read_log
from jaxdyn.cli import main


def test_text_is_composed_of_the_fields():
    error = LogError("9 rows are bad", "Drop them with {on_bad_rows}", place="run.csv", on_bad_rows="'drop'")
    assert str(error) == "run.csv: 9 rows are bad. Drop them with on_bad_rows='drop'"
    assert (
        error.message(lambda name, value: f"<{name} {value}>")
        == "run.csv: 9 rows are bad. Drop them with <on_bad_rows 'drop'>"
    )
    assert (error.place, error.fault) == ("run.csv", "9 rows are bad")
    assert (
        str(JaxdynError("a fault", "do this")) == "a fault; do this" and str(JaxdynError(remedy="do this")) == "do this"
    )
    assert str(JaxdynError("{x}", "{y}")) == "{x}; {y}"  # what the user gave may hold braces


def test_errors_survive_a_process_boundary():
    error = pickle.loads(pickle.dumps(LogError("wrong", "give {rows}", place="a", rows="(1, 2)")))
    assert str(error) == "a: wrong; give rows=(1, 2)" == error.message() and error.arguments == {"rows": "(1, 2)"}


def test_the_command_line_names_its_own_options(tmp_path, capsys):
    table = np.column_stack([np.arange(60) / 100, *np.sin(np.arange(60)[:, None] / [5, 6, 7, 8]).T])
    table[41, 2] = np.nan
    np.savetxt(tmp_path / "run.csv", table, delimiter=",", header="t,q1,q2,tau1,tau2", comments="")
    with pytest.raises(LogError, match=r"rows with on_bad_rows='drop', or .* read with rows=\(first, last\)$") as found:
        read_log(tmp_path / "run.csv")
    assert set(found.value.arguments) == {"on_bad_rows", "rows"}
    model = '<robot name="r"><link name="a"/><link name="b"/><link name="c"/>' + "".join(
        f'<joint name="{c}{p}" type="continuous"><parent link="{p}"/><child link="{c}"/></joint>'
        for p, c in ("ab", "bc")
    )
    (tmp_path / "arm.urdf").write_text(model + "</robot>")
    line = [
        "identify",
        "--model",
        str(tmp_path / "arm.urdf"),
        "--log",
        str(tmp_path / "run.csv"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(line) == 1
    assert (
        'rows with the key on_bad_rows = "drop" of --settings, or select the rows to read with --rows FIRST:LAST\n'
        in capsys.readouterr().err
    )
