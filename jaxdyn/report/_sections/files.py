"""Section on the predictions of each written model file after it is loaded again."""

from collections.abc import Sequence

from ...identification._result import Identification
from .._files.predictions import FilePrediction, compared_runs
from .._markup import Column, columns_table, element, escaped, faint, group_row, items, names_column, rounded, section
from .._quality import torque_units


def files_section(result: Identification, files: Sequence[FilePrediction]) -> str:
    """Section with the errors of every model file by joint, and the reasons for differences; empty without files."""
    if not files:
        return ""
    units = torque_units(result.chain)
    unit = f" [{units[0]}]" if len(set(units)) == 1 else ""
    columns = [names_column("joint", (*result.rows, "all joints"))]
    shown = [(file.name, file.fit) for file in files if file.fit is not None]
    for _, fit in shown:
        columns.append(
            Column(f"error, RMS{unit}", [*((text, "edge") for text in map(rounded, fit.rms)), ("", "edge")], "edge")
        )
        columns.append(Column("RRE [%]", [*map(rounded, fit.relative), (rounded(fit.total_relative), "yes")]))
    which = "the fitted motion" if compared_runs(result) is result.fitted else "the validation runs"
    text = f"The model files were loaded again, and their predictions were compared with the torques of {which}."
    if result.validation_refit:
        text += " The files contain the model that was fitted to all data, so no motion is held out from them."
    reasons = [f"{file.name}: {file.why}" for file in files if file.why]
    return section(
        "What each file predicts",
        "files",
        columns_table(columns, group_row(1, (name for name, _ in shown), 2)) if shown else "",
        faint(text),
        items(reasons)
        if reasons
        else element("p", escaped("All files predict the same torques."))
        if len(shown) > 1
        else "",
    )
