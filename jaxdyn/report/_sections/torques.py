"""The parts of the report about torques: errors by joint, and pictures over time."""

import numpy as np

from ...identification._regression.prediction import MOVING, Fit
from ...identification._result import Identification
from .._markup import element, escaped, rounded, table
from .._pictures.over_time import torque_svg
from .._quality import pooled, torque_units

MOST_PICTURES = 100
_CURVES = 1_600_000  # bytes that all curves of all pictures may take
_POINT = 13 * 3  # bytes a point of three curves


def errors_section(result: Identification) -> str:
    """Errors joint by joint, on motion that was fitted and on motion that was not."""
    groups = [
        (name, fit)
        for name, fit in (("not fitted", pooled(result.validation)), ("fitted", pooled(result.fitted)))
        if fit
    ]
    units = torque_units(result.chain)
    tau = np.concatenate([e.samples.tau for e in (*result.fitted, *result.validation)])
    size = np.sqrt((tau**2).mean(0))
    cutoff = result.fitted[0].samples.torque_cutoff
    same = len(set(units)) == 1
    unit = f" [{units[0]}]" if same else ""
    top = element("th", "") * (2 if same else 3) + "".join(
        element("th", name, "group edge", colspan="3") for name, _ in groups
    )
    head = element("th", "joint", "text") + ("" if same else element("th", "unit", "text"))
    head += element("th", f"torque, RMS{unit}")
    head += "".join(
        element("th", f"error, RMS{unit}", "edge") + element("th", "RRE [%]") + element("th", "RRE moving [%]")
        for _ in groups
    )
    rows = []
    for j, joint in enumerate(result.chain.joint_names):
        row = element("th", escaped(joint), "text") + ("" if same else element("td", units[j], "text"))
        row += element("td", rounded(size[j]))
        for _, fit in groups:
            row += element("td", rounded(fit.rms[j]), "edge")
            row += element("td", rounded(fit.relative[j])) + element("td", rounded(fit.relative_moving[j]))
        rows.append(row)
    total = element("th", "all joints", "text") + element("td", "") * (1 if same else 2)
    total += "".join(
        element("td", "", "edge") + element("td", rounded(fit.total_relative), "yes") + element("td", "")
        for _, fit in groups
    )
    return (
        element("h2", "Errors by joint", id="errors")
        + table([top, head], [*rows, total])
        + element(
            "p",
            "RRE is the norm of the error in percent of the norm of the measured torque; moving: over the samples at "
            f"which the joint itself moves, faster than {MOVING:g} rad/s or m/s. A joint that carries little torque "
            "has a large RRE with a small error. Measured torques are those behind the low-pass filter "
            f"({cutoff:.3g} Hz): what it takes off, noise mostly, is in no error.",
            "faint",
        )
    )


def pictures_section(result: Identification) -> str:
    """Measured and predicted torque of each joint and run, over time."""
    n, units = result.chain.n, torque_units(result.chain)
    groups = (("Not fitted", result.validation), ("Fitted", result.fitted))
    room = MOST_PICTURES // n
    drawn = min(max(1, room), len(result.fitted) + len(result.validation))
    points = max(150, min(1400, _CURVES // (drawn * n * _POINT)))
    text, done = element("h2", "Torques", id="torques"), 0
    for _, evaluations in groups:
        for evaluation in evaluations:
            fit = evaluation.fit
            text += element("h3", escaped(evaluation.title[:1].upper() + evaluation.title[1:]))
            text += element(
                "p", f"Total relative error {rounded(fit.total_relative)} % over {fit.samples} samples.", "faint"
            )
            if done >= drawn:
                text += element("p", f"Not drawn: the report holds the pictures of {drawn} runs at most.")
                continue
            for j, joint in enumerate(result.chain.joint_names):
                caption = element("b", escaped(joint)) + element("span", _caption(fit, j, units[j]))
                picture = torque_svg(evaluation, j, units[j], points, key=str(done))
                text += element("figure", element("figcaption", caption) + picture)
            done += 1
    return text


def _caption(fit: Fit, joint: int, unit: str) -> str:
    return (
        f"error {rounded(fit.rms[joint])} {unit} RMS, RRE {rounded(fit.relative[joint])} %, "
        f"while moving {rounded(fit.relative_moving[joint])} %"
    )
