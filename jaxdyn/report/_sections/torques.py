"""The parts of the report about torques: errors by joint, and pictures over time."""

from collections.abc import Sequence

import numpy as np

from ...identification._regression.prediction import MOVING, Fit
from ...identification._result import Identification
from .._markup import (
    Cell,
    Column,
    columns_table,
    element,
    escaped,
    faint,
    figure,
    group_row,
    names_column,
    rounded,
    section,
)
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
    unit, total = f" [{units[0]}]" if same else "", ("", "")
    columns = [names_column("joint", (*result.chain.joint_names, "all joints"))]
    columns += [] if same else [Column("unit", [*units, total], "text")]
    columns.append(Column(f"torque, RMS{unit}", [*map(rounded, size), total]))
    for _, fit in groups:
        columns += error_columns(fit, f"error, RMS{unit}")
    return section(
        "Errors by joint",
        "errors",
        columns_table(columns, group_row(2 if same else 3, (name for name, _ in groups), 3)),
        faint(
            "RRE is the norm of the error in percent of the norm of the measured torque; moving: over the samples at "
            f"which the joint itself moves, faster than {MOVING:g} rad/s or m/s. A joint that carries little torque "
            "has a large RRE with a small error. Measured torques are those behind the low-pass filter "
            f"({cutoff:.3g} Hz): what it takes off, noise mostly, is in no error."
        ),
    )


def error_columns(fit: Fit, heading: str, better: Sequence[bool] = ()) -> list[Column]:
    """RMS error, RRE, and that while moving, joint by joint and over all; where the model is the `better` one in bold."""
    texts = [*map(rounded, fit.rms), ""]
    wins = [*(better or [False] * len(fit.rms)), False]
    rms: list[Cell] = [(text, "edge yes") if won else text for text, won in zip(texts, wins, strict=True)]
    relative = [*map(rounded, fit.relative), (rounded(fit.total_relative), "yes")]
    moving = [*map(rounded, fit.relative_moving), ""]
    return [Column(heading, rms, "edge"), Column("RRE [%]", relative), Column("RRE moving [%]", moving)]


def pictures_section(result: Identification) -> str:
    """Measured and predicted torque of each joint and run, over time."""
    n, units = result.chain.n, torque_units(result.chain)
    room = MOST_PICTURES // n
    drawn = min(max(1, room), len(result.fitted) + len(result.validation))
    points = max(150, min(1400, _CURVES // (drawn * n * _POINT)))
    text, done = element("h2", "Torques", id="torques"), 0
    for evaluation in (*result.validation, *result.fitted):
        fit = evaluation.fit
        text += element("h3", escaped(evaluation.title[:1].upper() + evaluation.title[1:]))
        text += faint(f"Total relative error {rounded(fit.total_relative)} % over {fit.samples} samples.")
        if done >= drawn:
            text += element("p", f"Not drawn: the report holds the pictures of {drawn} runs at most.")
            continue
        for j, joint in enumerate(result.chain.joint_names):
            picture = torque_svg(evaluation, j, units[j], points, key=str(done))
            text += figure(joint, _caption(fit, j, units[j]), picture)
        done += 1
    return text


def _caption(fit: Fit, joint: int, unit: str) -> str:
    return (
        f"error {rounded(fit.rms[joint])} {unit} RMS, RRE {rounded(fit.relative[joint])} %, "
        f"while moving {rounded(fit.relative_moving[joint])} %"
    )
