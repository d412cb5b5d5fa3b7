"""Sections on parameters: base parameters, drives, links, and parameters that are not identifiable."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ...identification._estimators.split_half import SplitHalf
from ...identification._regression.columns import DRIVE_NAMES, INERTIAL_NAMES
from ...identification._result import Identification, ParameterRow, parameter_rows
from .._markup import (
    Column,
    columns_table,
    element,
    escaped,
    faint,
    folded,
    items,
    names,
    names_column,
    number,
    rounded,
    unit,
    with_deviation,
)
from .._quality import FAIR, GOOD, determination
from .correlation import correlation_section

_MEANING = {
    "armature": "reflected rotor inertia Ia",
    "viscous": "viscous friction fv",
    "coulomb": "Coulomb friction fc",
    "offset": "offset off",
}
_POSSIBLE = (
    "The parameters of the written model: the physically consistent set that fits the logs and, where the logs do not "
    "determine it, is nearest to the given model. "
)
_NEAREST = "Among all full sets with these base parameters, the set nearest to the prior. "
_ESTIMATED = ("standard_deviation", "relative_sd_percent", "ols_value")
_KNOWN = {"yes": "yes", "only in sums": "", "no": "no", "known": "no"}


def parameter_sections(result: Identification) -> str:
    """Sections with the base parameters and their correlation, the full set, and the parameters that are not identifiable."""
    base, full = parameter_rows(result)
    correlated = correlation_section(result.base, result.wls)
    return _base(base, result.split_half) + correlated + _full(result, full) + _unknown(result)


def _base(rows: Sequence[ParameterRow], halves: SplitHalf | None) -> str:
    legend = "".join(
        element("span", "", f"key {word}") + escaped(text)
        for word, text in (
            ("well", f"well: up to {GOOD:g} %"),
            ("fairly", f"fairly: up to {FAIR:g} %"),
            ("poorly", "poorly: above that"),
        )
    )
    return (
        element("h2", "Base parameters", id="parameters")
        + element(
            "p",
            "The base parameters are the combinations of parameters that determine the torques. They are estimated by "
            "weighted least squares, with each joint weighted by its noise. “In the model” is the value in the written "
            "model, whose links are physically consistent. If this value differs from the estimate by several standard "
            "deviations, noise or missing terms bias the estimate towards inconsistent links. “OLS” is the estimate by "
            "ordinary least squares, and “prior” is the value in the given model. Each name is a sum that starts with the "
            "leading parameter; the numbers in it count links and joints from the base.",
        )
        + element(
            "p",
            "Standard deviation as a percentage of the estimate: "
            + legend
            + ". The bar is full at 0.1 % and empty at 100 %. For a value near zero, "
            "use the absolute standard deviation instead. Standard deviations come from a jackknife over eight blocks of "
            "data (if a motion is repeated, over eight stretches of it, each from all repetitions), and include the effects "
            "of filtered noise and of model errors that vary within the data.",
        )
        + (element("p", escaped(f"{str(halves)[0].upper()}{str(halves)[1:]}.")) if halves is not None else "")
        + element(
            "p",
            '<label>Show only <input type="search" placeholder="fc, joint2, poorly ..."></label>',
            "filter",
            data_table="base-table",
            hidden="hidden",
        )
        + columns_table(_base_columns(rows), id="base-table")
    )


def _base_columns(rows: Sequence[ParameterRow]) -> list[Column]:
    deviations, relative, ols = (np.array([getattr(row, name) for row in rows], float).tolist() for name in _ESTIMATED)

    def beside(values: Iterable[float]) -> list[str]:
        return [with_deviation(value, deviation)[0] for value, deviation in zip(values, deviations, strict=True)]

    priors = beside(row.prior for row in rows)

    return [
        Column("base parameter", [escaped(row.name) for row in rows], "text", "text sum"),
        Column("of", [escaped(row.belongs_to) for row in rows], "text"),
        Column("estimate", beside(row.value for row in rows)),
        Column("± s.d.", [f"± {with_deviation(r.value, d)[1]}" for r, d in zip(rows, deviations, strict=True)]),
        Column("unit", [unit(row.unit) for row in rows], "text"),
        Column("s.d. [%]", [*map(rounded, relative)]),
        Column("determined", [*map(_determined, relative)], "text"),
        Column("in the model", beside(row.model_value for row in rows), "edge"),
        Column("OLS", beside(ols)),
        Column("prior", [text if row.prior else "0" for row, text in zip(rows, priors, strict=True)]),
    ]


def _determined(relative: float) -> str:
    """A bar that is full at 0.1 % and empty at 100 %, followed by a word for the precision."""
    word = determination(relative)
    share = min(1.0, max(0.0, (2 - math.log10(max(relative, 1e-9))) / 3)) if math.isfinite(relative) else 0.0
    filled = element("i", "", word, style=f"width: {100 * share:.0f}%")
    return element("span", filled, "bar") + f" {word}"


def _full(result: Identification, rows: Sequence[ParameterRow]) -> str:
    chain, terms = result.chain, result.columns.drive_terms
    inertial, rest = rows[: 10 * chain.n], rows[10 * chain.n :]
    drive, extra = rest[: len(terms) * chain.n], rest[len(terms) * chain.n :]
    text = element(
        "p",
        (_POSSIBLE if result.consistent else _NEAREST)
        + "Parameters in "
        + element("b", "bold", "yes")
        + " are identifiable on their own, those in plain type only in sums with others. Standard deviations "
        "(±) and 95 % intervals (point at a number to see its interval) belong to these values. Parameters in "
        + element("i", "italics", "no")
        + (
            " do not affect any torque and have the values of the prior."
            if not result.base.known
            else " have the values of the given model."
        ),
    )
    if terms:
        text += element("h3", "Drives") + columns_table(_drive_columns(chain.joint_names, terms, drive))
    text += element("h3", "Links") + faint(
        "Mass, first moments m c, and inertia about the origin of the link frame, all in the axes of this frame."
    )
    columns = [names_column("link", chain.link_names)]
    units = ["kg", *["kg m"] * 3, *["kg m²"] * 6]
    for k, (name, of) in enumerate(zip(INERTIAL_NAMES, units, strict=True)):
        edge = "edge" if name in ("mx", "Ixx") else ""
        columns.append(Column(f"{name} [{of}]", [_cell(row, edge=edge, digits=3) for row in inertial[k::10]], edge))
    text += columns_table(columns)
    if extra:
        columns = [names_column("parameter", (row.name for row in extra)), Column("value", [*map(_cell, extra)])]
        columns.append(Column("unit", [unit(row.unit) for row in extra], "text"))
        text += element("h3", "Further parameters") + columns_table(columns)
        if homeless := [name for e in result.columns.extra if e.leaf is None for name in e.names]:
            text += faint(f"identified.urdf lacks {names(homeless)}, which the model cannot represent.")
    return folded("Full set", "full", text)


def _drive_columns(joints: Sequence[str], terms: Sequence[str], rows: Sequence[ParameterRow]) -> list[Column]:
    """Columns with the drive terms of each joint; numbers are followed by their units if these differ between joints."""
    count = len(terms)
    same = all(row.unit == rows[k % count].unit for k, row in enumerate(rows))
    columns = [names_column("joint", joints)]
    for k, term in enumerate(terms):
        heading = _MEANING[term] + (f" [{unit(rows[k].unit)}]" if same else "")
        columns.append(Column(heading, [_cell(row, with_unit=not same) for row in rows[k::count]]))
    return columns


def _cell(row: ParameterRow, with_unit: bool = False, edge: str = "", digits: int = 4) -> tuple[str, str, str]:
    value = number(row.value, digits)
    if row.standard_deviation is not None and digits > 3:
        value = " ± ".join(with_deviation(row.value, row.standard_deviation))
    value += f" {unit(row.unit)}" if with_unit else ""
    known = f"{row.name}: identifiable {row.identifiable}; prior {row.prior:.6g}"
    if row.lower is not None and row.upper is not None:
        known += f"; 95 % interval {row.lower:.4g} to {row.upper:.4g}"
    return value, f"{_KNOWN[row.identifiable]} {edge}".strip(), known


def _unknown(result: Identification) -> str:
    base = result.base
    text = ""
    if base.known:
        known = set(base.known)
        links = [name for i, name in enumerate(result.chain.link_names) if f"m{i + 1}" in known]
        rest = [name for name in result.names[10 * result.chain.n :] if name in known]
        text += element(
            "p", "Taken from the given model; the resulting torques are subtracted from the logged torques:"
        )
        text += element("p", names([*(f"link {link}" for link in links), *rest]))
    if base.unidentifiable:
        text += element(
            "p", "No torque of this robot depends on these parameters; their values are those of the prior:"
        )
        text += element("p", names(base.unidentifiable))
    if base.dropped:
        text += element(
            "p",
            "These parameters affect torques only through the sums above, so no motion separates them. The full set contains "
            "the values nearest to the prior that result in the same sums:",
        )
        text += element("p", names(base.dropped))
    if not base.unidentifiable and not base.dropped and not base.known:
        text += element("p", "None: every parameter is identifiable on its own.")
    if directions := base.null_names:
        text += element(
            "p",
            f"Parameters can change in {len(directions)} directions without any effect on the torques of any motion. In each "
            "direction, the first parameter increases by one unit, and the others change by their factors:",
        )
        lines = "".join(element("li", element("code", escaped(name))) for name in directions)
        text += element("details", element("summary", f"All {len(directions)} directions") + element("ul", lines))
    left_out = [DRIVE_NAMES[term] for term in DRIVE_NAMES if term not in result.columns.drive_terms]
    if left_out:
        text += element("p", f"Not identified, because they were not selected: {names(left_out)} of every joint.")
    return folded("Not identifiable", "unknown", text)


def impossible_section(result: Identification) -> str:
    """Warning that names physically inconsistent links, with advice; empty if there are none."""
    if not result.inconsistent_links:
        return ""
    return element(
        "div",
        element("p", element("b", "The identified inertias of these links are physically inconsistent"))
        + items(result.inconsistent_links)
        + element(
            "p",
            "Predicted torques are unaffected, because they depend only on the base parameters. However, forward dynamics can "
            "fail, because the mass matrix may not be positive definite. Load the model with "
            + element("code", "allow_nonphysical=True")
            + " to use it for inverse dynamics. Without consistent=None, `identify` returns physically consistent links.",
        ),
        "warning",
    )
