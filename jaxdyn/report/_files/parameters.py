"""File with a table of the identified parameters."""

import csv
import io
import os
import re
from collections.abc import Iterator

from ...errors import OutputError
from ...identification._result import Identification, ParameterRow, parameter_rows
from ...io._files import write_whole

COLUMNS = (
    "kind",
    "name",
    "belongs_to",
    "value",
    "unit",
    "standard_deviation",
    "relative_sd_percent",
    "ols_value",
    "ols_sd",
    "prior",
    "identifiable",
    "model_value",
)


def parameters_csv(result: Identification) -> str:
    """The text of `write_parameters`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rows in parameter_rows(result):
        writer.writerows([*map(_cell, _values(row))] for row in rows)
    writer.writerows([*map(_cell, row)] for row in _friction(result))
    return text.getvalue()


def write_parameters(result: Identification, path: str | os.PathLike[str]) -> None:
    """Write the parameters as a CSV file with one row per parameter.

    First the base parameters (`kind` base), then the full set (`kind` full), then the parameters of a friction model (`kind`
    friction), to which the friction in `full` is the nearest viscous, Coulomb and constant friction.

    Columns: kind, name, belongs_to (link or joint), value, unit, standard_deviation, relative_sd_percent, ols_value,
    ols_sd, prior (in the given model), identifiable (yes, only in sums, no), model_value. The value of a base
    parameter is its weighted least-squares estimate, with a standard deviation from a block jackknife; model_value is its
    value in the written, physically consistent model. A full parameter has a standard deviation only if it is itself a
    base parameter; otherwise its value depends on how the set was completed. Numbers have full precision; missing numbers
    are empty cells. Read the table with a spreadsheet, pandas, or `numpy.genfromtxt(path, delimiter=",", names=True,
    dtype=None, encoding="utf-8")`.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    write_whole(path, parameters_csv(result), OutputError)


def _friction(result: Identification) -> Iterator[tuple[str | float | None, ...]]:
    """Rows of the parameters of a friction model."""
    if result.friction is None:
        return
    for name, value, deviation, unit in zip(*result.friction.rows(), strict=True):
        joint = result.chain.joint_names[int(re.findall(r"\d+$", name)[0]) - 1]
        relative = 100 * deviation / abs(value) if value else None
        yield "friction", name, joint, value, unit, deviation, relative, None, None, None, "yes", value


def _values(row: ParameterRow) -> tuple[str | float | None, ...]:
    estimates = (row.deviation, row.relative, row.ols_value, row.ols_deviation)
    return (row.kind, row.name, row.belongs_to, row.value, row.unit, *estimates, row.prior, row.identifiable, row.model)


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(float(value))
