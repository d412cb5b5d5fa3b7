"""CSV file with a table of the identified parameters."""

import csv
import dataclasses
import io
import os
import re
from collections.abc import Iterator

from ...errors import OutputError
from ...identification._result import Identification, ParameterRow, parameter_rows
from ...io._files import write_whole

COLUMNS = tuple(field.name for field in dataclasses.fields(ParameterRow))


def parameters_csv(result: Identification) -> str:
    """The text that `write_parameters` writes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rows in parameter_rows(result):
        writer.writerows([_cell(getattr(row, name)) for name in COLUMNS] for row in rows)
    writer.writerows([_cell(row.get(name)) for name in COLUMNS] for row in _friction(result))
    return text.getvalue()


def write_parameters(result: Identification, path: str | os.PathLike[str]) -> None:
    """Write the parameters as a CSV file with one row per parameter.

    The rows contain the base parameters (`kind` base), the full set (`kind` full) and, if a friction model was fitted,
    its parameters (`kind` friction). In that case, the full set contains the viscous, Coulomb and constant friction
    nearest to the friction model.

    The columns are:

    - kind, name, belongs_to (link or joint), value, unit, standard_deviation, relative_sd_percent;
    - lower and upper: limits of the 95 % confidence interval of the value;
    - ols_value and ols_standard_deviation: estimate by ordinary least squares;
    - prior: value in the given model;
    - identifiable: yes, only in sums, no, or known;
    - model_value: value in the identified, physically consistent model.

    The value of a base parameter is its weighted least-squares estimate, with a standard deviation from a block
    jackknife. The values of the full set and of friction are those of the written model, with the standard deviations and
    intervals of the same, physically consistent estimate; an interval ends at the parameter's bound, for example zero. A
    parameter of the full set has a standard deviation only if it is also a base parameter; otherwise its value depends on
    how the set was completed. Numbers have full precision, and missing numbers are empty cells.

    Read the table with a spreadsheet, pandas, or
    `numpy.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")`.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    write_whole(path, parameters_csv(result), OutputError)


def _friction(result: Identification) -> Iterator[dict[str, str | float | None]]:
    """Rows with the parameters of a friction model, of which the nonlinear ones have no unit."""
    if result.friction is None:
        return
    for name, value, deviation, unit in zip(*result.friction.rows(), strict=True):
        joint = result.chain.joint_names[int(re.findall(r"\d+$", name)[0]) - 1]
        reach = result.wls.interval_factor() * deviation
        yield {
            "kind": "friction",
            "name": name,
            "belongs_to": joint,
            "value": value,
            "unit": unit,
            "standard_deviation": deviation,
            "relative_sd_percent": 100 * deviation / abs(value) if value else None,
            "lower": value - reach,
            "upper": value + reach,
            "identifiable": "yes",
            "model_value": value,
        }


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(float(value))
