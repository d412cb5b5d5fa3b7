"""The part of the report about parameters: base parameters, drives, links, and what the data do not tell."""

import math
from collections.abc import Sequence

from ...identification._regression.base_parameters import null_space
from ...identification._regression.columns import DRIVE_NAMES, INERTIAL_NAMES
from ...identification._result import Identification
from .._markup import element, escaped, items, names, number, rounded, table, unit, with_deviation
from .._quality import FAIR, GOOD, Row, determination, parameter_rows

_MEANING = {
    "armature": "reflected rotor inertia Ia",
    "viscous": "viscous friction fv",
    "coulomb": "Coulomb friction fc",
    "offset": "offset off",
}
_POSSIBLE = (
    "The set in the written model: of all bodies that can exist, those that fit the logs, and are nearest the given ones where "
    "the logs do not decide. "
)
_NEAREST = "One set of parameters that has these base parameters: the one nearest the prior. "
_KNOWN = {"yes": "yes", "only in sums": "", "no": "no"}


def parameter_sections(result: Identification) -> str:
    """Base parameters, then the full set a link and a joint at a time, then what is not identifiable."""
    base, full = parameter_rows(result)
    return _base(base) + _full(result, full) + _unknown(result)


def _base(rows: Sequence[Row]) -> str:
    head = "".join(
        element("th", text, kind)
        for text, kind in (
            ("base parameter", "text"),
            ("of", "text"),
            ("estimate", ""),
            ("± s.d.", ""),
            ("unit", "text"),
            ("s.d. [%]", ""),
            ("determined", "text"),
            ("in the model", "edge"),
            ("OLS", ""),
            ("prior", ""),
        )
    )
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
            "The combinations of parameters that torques depend on, by weighted least squares (each joint weighed by "
            "its own noise). In the model: what the written model has, whose links are bodies that can exist; where that is "
            "several deviations off, the noise or something the model lacks asks for impossible bodies. OLS is ordinary least "
            "squares, prior the model that was given. Each is named by its sum, its leading parameter first; numbers after "
            "names count links and joints from the base.",
        )
        + element(
            "p",
            "Standard deviation in percent of the estimate: "
            + legend
            + ". The bar is full at 0.1 % and empty at 100 %. A value near zero is poor in percent however well it is "
            "known: compare the deviation itself. Deviations cover noise, not a model that lacks something "
            "(flexibility, another law of friction).",
        )
        + element(
            "p",
            '<label>Show only <input type="search" placeholder="fc, joint2, poorly ..."></label>',
            "filter",
            data_table="base-table",
            hidden="hidden",
        ).replace("data_table", "data-table")
        + table([head], [_base_row(row) for row in rows], id="base-table")
    )


def _base_row(row: Row) -> str:
    assert row.deviation is not None and row.relative is not None and row.ols_value is not None
    value, deviation = with_deviation(row.value, row.deviation)
    word = determination(row.relative)
    share = min(1.0, max(0.0, (2 - math.log10(max(row.relative, 1e-9))) / 3)) if math.isfinite(row.relative) else 0.0
    filled = element("i", "", word, style=f"width: {100 * share:.0f}%")
    return "".join(
        (
            element("td", escaped(row.name), "text sum"),
            element("td", escaped(row.belongs_to), "text"),
            element("td", value),
            element("td", f"± {deviation}"),
            element("td", unit(row.unit), "text"),
            element("td", rounded(row.relative)),
            element("td", element("span", filled, "bar") + f" {word}", "text"),
            element("td", with_deviation(row.model, row.deviation)[0], "edge"),
            element("td", with_deviation(row.ols_value, row.deviation)[0]),
            element("td", with_deviation(row.prior, row.deviation)[0] if row.prior else "0"),
        )
    )


def _full(result: Identification, rows: Sequence[Row]) -> str:
    chain, terms = result.chain, result.columns.drive_terms
    inertial, rest = rows[: 10 * chain.n], rows[10 * chain.n :]
    drive, extra = rest[: len(terms) * chain.n], rest[len(terms) * chain.n :]
    text = element("h2", "Full set", id="full")
    text += element(
        "p",
        (_POSSIBLE if result.consistent else _NEAREST)
        + "Set in "
        + element("b", "bold", "yes")
        + ", a parameter is identified on its own; plain, only sums that it is part of are; in "
        + element("i", "italics", "no")
        + ", no torque depends on it and it is the prior's.",
    )
    if terms:
        head = element("th", "joint", "text") + "".join(
            element("th", f"{_MEANING[term]} [{unit(drive[k].unit)}]") for k, term in enumerate(terms)
        )
        same = all(row.unit == drive[k % len(terms)].unit for k, row in enumerate(drive))
        lines = [
            element("th", escaped(joint), "text")
            + "".join(_cell(row, not same) for row in drive[len(terms) * j : len(terms) * (j + 1)])
            for j, joint in enumerate(chain.joint_names)
        ]
        if not same:
            head = element("th", "joint", "text") + "".join(element("th", _MEANING[term]) for term in terms)
        text += element("h3", "Drives") + table([head], lines)
    head = element("th", "link", "text") + "".join(
        element("th", f"{name} [{unit}]", "edge" if name in ("mx", "Ixx") else "")
        for name, unit in zip(INERTIAL_NAMES, ["kg", *["kg m"] * 3, *["kg m²"] * 6], strict=True)
    )
    lines = [
        element("th", escaped(link), "text")
        + "".join(
            _cell(row, edge=name in ("mx", "Ixx"), digits=3)
            for name, row in zip(INERTIAL_NAMES, inertial[10 * i : 10 * (i + 1)], strict=True)
        )
        for i, link in enumerate(chain.link_names)
    ]
    text += element("h3", "Links") + element(
        "p", "Mass, first moments m c and inertia, about the origin of the link's frame and along its axes.", "faint"
    )
    text += table([head], lines)
    if extra:
        head = "".join(element("th", t, k) for t, k in (("parameter", "text"), ("value", ""), ("unit", "text")))
        lines = [
            element("th", escaped(row.name), "text") + _cell(row) + element("td", unit(row.unit), "text")
            for row in extra
        ]
        text += element("h3", "Further parameters") + table([head], lines)
        if homeless := [name for e in result.columns.extra if e.leaf is None for name in e.names]:
            text += element(
                "p", f"The model has no place for {names(homeless)}: identified.urdf is without them.", "faint"
            )
    return text


def _cell(row: Row, with_unit: bool = False, edge: bool = False, digits: int = 4) -> str:
    value = number(row.value, digits)
    if row.deviation is not None and digits > 3:
        value = " ± ".join(with_deviation(row.value, row.deviation))
    value += f" {unit(row.unit)}" if with_unit else ""
    known = f"{row.name}: identifiable {row.identifiable}; prior {row.prior:.6g}"
    return element("td", value, f"{_KNOWN[row.identifiable]}{' edge' if edge else ''}".strip(), title=known)


def _unknown(result: Identification) -> str:
    base = result.base
    text = element("h2", "What the data cannot tell", id="unknown")
    if base.unidentifiable:
        text += element("p", "No torque of this robot depends on these; their values are the prior's: ")
        text += element("p", names(base.unidentifiable))
    if base.dropped:
        text += element(
            "p",
            "These act only as parts of the sums above. No motion tells them apart; the full set holds the values "
            "nearest the prior's that keep the sums:",
        )
        text += element("p", names(base.dropped))
    if not base.unidentifiable and not base.dropped:
        text += element("p", "Nothing: every parameter is identifiable on its own.")
    if directions := null_space(base, result.names):
        text += element(
            "p",
            f"Together they leave {len(directions)} directions in which parameters can change and no torque does, whatever "
            "the motion. In each, one grows by 1 of its unit and the others by what stands after them:",
        )
        lines = "".join(element("li", element("code", escaped(d.text))) for d in directions)
        text += element("details", element("summary", f"All {len(directions)} directions") + element("ul", lines))
    left_out = [DRIVE_NAMES[term] for term in DRIVE_NAMES if term not in result.columns.drive_terms]
    if left_out:
        text += element("p", f"Not identified, because they were left out: {names(left_out)} of every joint.")
    return text


def impossible_section(result: Identification) -> str:
    """A warning that names the links whose inertia no body can have and says what to do; empty where there are none."""
    if not result.impossible:
        return ""
    return element(
        "div",
        element("p", element("b", "No body has the inertia that was found for these links"))
        + items(result.impossible)
        + element(
            "p",
            "Predicted torques are as good all the same: they depend on the base parameters only. But forward dynamics "
            "can fail, because the mass matrix may not be positive definite. Load the model with "
            + element("code", "allow_nonphysical=True")
            + " to use it for inverse dynamics. Without consistent=None, `identify` finds bodies that can exist.",
        ),
        "warning",
    )
