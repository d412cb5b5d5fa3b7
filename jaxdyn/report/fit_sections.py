"""Summary section: the verdict and the key figures.

Sections on torques: errors by joint and by run, and measured and predicted torque over time.

Section on friction: measured samples, and the fitted friction law.

Section on positions re-simulated from measured torques.

Section with spectra of torques and residuals, which distinguish noise from model errors within the motion's band.

Section on excitation: singular values of the base regressor, and the least excited directions.

Section on the model terms that were tried on the logs, and either adopted or rejected."""

import dataclasses
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import signal

from ..dynamics import friction_force
from ..identification.base import BaseParameters, model_torque
from ..identification.diagnostics import Finding
from ..identification.factors import as_float64
from ..identification.filters import bandwidth
from ..identification.friction_fit import FrictionFit
from ..identification.least_squares import Estimate
from ..identification.prediction import MOVING, Fit
from ..identification.result import Evaluation, Identification
from ..identification.torque_model import TorqueModel
from ..identification.validation import Resimulation
from ..model.chain import Chain, coordinate_names, leading_joints, turning_joints
from .markup import (
    DASH,
    MINUS,
    Cell,
    Column,
    columns_table,
    element,
    escaped,
    faint,
    folded,
    group_row,
    items,
    names_column,
    number,
    rounded,
    section,
    tile,
    unit,
)
from .parameter_sections import impossible_section
from .pictures import Curve, Panel, View, plot, time_view
from .quality import (
    FAIR,
    GOOD,
    Simulated,
    measured_rows,
    pooled,
    pooled_raw,
    position_units,
    resimulated,
    together,
    torque_units,
    with_drive,
)
from .verdicts import LEAST_AGREEING, Verdict

REFIT = "a fit without the held-out part predicted it; the written model fits all data"


def overview(result: Identification, judged: Verdict, findings: Sequence[Finding] = ()) -> str:
    """Section with the verdict and its reasons, suspected faults, and the key figures."""
    fitted, unseen = pooled(result.fitted), pooled(result.validation)
    assert fitted is not None
    raw, raw_fitted = pooled_raw(result.validation if unseen else result.fitted), pooled_raw(result.fitted)
    raw, raw_fitted = (raw, raw_fitted) if raw and raw_fitted else (None, None)  # figures are compared, so of one kind
    best, same = raw or unseen or fitted, raw_fitted or fitted
    moving = np.where(np.isnan(best.relative_moving), -1, best.relative_moving)
    worst = int(np.argmax(moving))
    if unseen:
        what, rest = (
            "held-out motion are",
            f"; for the fitted motion, the error is {rounded(same.total_relative)} %"
            + (f" ({rounded(fitted.total_relative)} %)." if raw else "."),
        )
    else:
        what, rest = "the fitted motion are", "; no motion was held out."
    behind = unseen or fitted
    filtered = f" ({rounded(behind.total_relative)} % after low-pass filtering)" if raw else ""
    total = f"{rounded(best.total_relative)} % of the {'logged ' if raw else ''}torque{filtered}"
    text = f"Torques of {what} predicted with a total error of {total}{rest}"
    if moving[worst] >= 0 and result.chain.n > 1:
        text += f" The worst joint is {result.rows[worst]}, with {rounded(moving[worst])} % while it moves."
    relative = np.nan_to_num(result.estimate.relative_standard_deviations, nan=np.inf)
    size, links = result.base.size, len(result.inconsistent_links)
    behind_it = lambda fit: (
        f"{rounded(fit.total_relative)} % filtered; {fit.samples} samples" if raw else f"{fit.samples} samples"
    )
    tiles = [
        tile(
            f"{rounded(best.total_relative)} %",
            "torque error, held out",
            behind_it(unseen),
        )
        if unseen
        else "",
        tile(f"{rounded(same.total_relative)} %", "torque error, fitted", behind_it(fitted)),
        tile(str(size), "base parameters", f"of {len(result.names)} parameters"),
        tile(
            f"{int((relative <= GOOD).sum())} of {size}",
            "well determined",
            f"s.d. up to {GOOD:g} %; {int(((relative > GOOD) & (relative <= FAIR)).sum())} more up to {FAIR:g} %",
        ),
        tile(
            f"{len(halves.names) - len(halves.disagreeing)} of {size}",
            "agree in both halves",
            f"of the {'repeated motion' if halves.of_motion else 'data'}, fitted separately, within 2 s.d.",
            "warn" if halves.share < LEAST_AGREEING else "",
        )
        if (halves := result.split_half) is not None
        else "",
        tile(
            number(result.estimate.condition, 3),
            "condition number",
            f"weighted; {number(result.estimate.scaled_condition, 3)} with unit-norm columns",
        ),
        tile(str(links), "inconsistent links", f"of {result.chain.n}", "warn" if links else ""),
    ]
    refit = element("p", REFIT[0].upper() + REFIT[1:] + ".") if result.validation_refit and unseen else ""
    return section(
        "Summary",
        "summary",
        element("p", element("b", escaped(judged.headline)), f"verdict stamp {judged.level}"),
        element("ul", "".join(element("li", escaped(c.text), c.level) for c in judged.checks), "checks"),
        _diagnoses(findings),
        element("p", escaped(text)),
        element("div", "".join(tiles), "tiles"),
        refit,
        impossible_section(result),
    )


def _diagnoses(findings: Sequence[Finding]) -> str:
    """Warning with the findings of `diagnose_identification`; empty if there are none."""
    if not findings:
        return ""
    title = element("p", element("b", "Check"))
    return element("div", title + items(finding.text for finding in findings), "warning", id="diagnoses")


# -- torques

_POINTS = 90_000  # maximum total number of points in all curves


def errors_section(result: Identification) -> str:
    """Section with errors by joint, on fitted and on held-out motion, followed by errors by run."""
    runs = (("held out", result.validation), ("fitted", result.fitted))
    groups = [(name, fit) for name, fit in ((name, pooled(some)) for name, some in runs) if fit]
    units = torque_units(result.chain)
    size = np.sqrt((together((*result.fitted, *result.validation)).tau ** 2).mean(0))
    cutoff = result.fitted[0].samples.torque_cutoff
    same = len(set(units)) == 1
    unit, total = f" [{units[0]}]" if same else "", ("", "")
    columns = [names_column("joint", (*result.rows, "all joints"))]
    columns += [] if same else [Column("unit", [*units, total], "text")]
    columns.append(Column(f"torque,<br>RMS{unit}", [*map(rounded, size), total]))
    raw = {name: pooled_raw(some) for name, some in runs if some}
    known = None not in raw.values()
    for name, fit in groups:
        columns += error_columns((known and raw[name]) or fit, f"RMS{unit}")
        if known:
            behind = {f"filtered<br>RMS{unit}": fit.rms, "filtered<br>moving [%]": fit.relative_moving}
            columns += [Column(heading, [*map(rounded, values), ""]) for heading, values in behind.items()]
    return section(
        "Errors by joint",
        "errors",
        columns_table(
            columns, group_row(2 if same else 3, (f"error, {name}" for name, _ in groups), 5 if known else 3)
        ),
        faint(
            "RRE is the norm of the error as a percentage of the norm of the measured torque; “moving” includes only samples "
            f"at which the joint moves faster than {MOVING:g} rad/s or m/s. A joint with little torque has a "
            "large RRE even if the error is small. Errors are relative to the torque as logged, including noise"
            + (
                f"; “filtered” errors are relative to the low-pass filtered torque ({cutoff:.3g} Hz), as used in the fit."
                if known
                else f", after low-pass filtering at {cutoff:.3g} Hz."
            )
        ),
        element("h3", "Errors by run", id="runs"),
        columns_table(_run_columns(result)),
        faint(
            f"Each cell contains the RRE while moving [%], and below it the RMS error{unit or ' [N m or N]'}, both relative to "
            "the low-pass filtered torque. Click a cell to "
            "see the torques. errors.csv contains the same numbers."
        ),
    )


def error_columns(fit: Fit, heading: str, better: Sequence[bool] = ()) -> list[Column]:
    """Columns with RMS error, RRE, and RRE while moving, by joint and in total; bold for joints marked in `better`."""
    texts = [*map(rounded, fit.rms), ""]
    wins = [*(better or [False] * len(fit.rms)), False]
    rms: list[Cell] = [(text, "edge yes") if won else text for text, won in zip(texts, wins, strict=True)]
    relative = [*map(rounded, fit.relative), (rounded(fit.total_relative), "yes")]
    moving = [*map(rounded, fit.relative_moving), ""]
    return [Column(heading, rms, "edge"), Column("RRE [%]", relative), Column("moving [%]", moving)]


def runs_of(result: Identification) -> tuple[Evaluation, ...]:
    """All evaluations in the order in which the page shows their runs, with held-out runs first."""
    return (*result.validation, *result.fitted)


def run_titles(runs: Sequence[Evaluation]) -> list[str]:
    """Titles for row headings and selection lists."""
    return [run.title[:1].upper() + run.title[1:] for run in runs]


def _run_columns(result: Identification) -> list[Column]:
    runs = runs_of(result)
    columns = [
        Column("run", [escaped(title) for title in run_titles(runs)], "text", "wrap", tag="th"),
        Column("length [s]", [number(seconds_of(run), 3) for run in runs]),
        Column("total RRE [%]", [(rounded(run.fit.total_relative), "yes") for run in runs]),
    ]
    for place, j in enumerate(measured_rows(runs)):
        cells: list[Cell] = []
        for k, run in enumerate(runs):
            inner = rounded(run.fit.relative_moving[j]) + element("small", rounded(run.fit.rms[j]))
            cells.append(element("a", inner, href="#torques", data_run=str(k), data_joint=str(place)))
        columns.append(Column(escaped(result.rows[j]).replace("_", "_<wbr>"), cells, "name", "go"))
    return columns


def seconds_of(run: Evaluation) -> float:
    """Length of a run, excluding gaps [s]."""
    return sum(float(run.samples.t[stop - 1] - run.samples.t[start]) for start, stop in run.samples.segments)


def torques_section(result: Identification) -> str:
    """Section with measured and predicted torque over time for a selectable joint and run."""
    units, runs = torque_units(result.chain), runs_of(result)
    joints = measured_rows(runs)
    points = max(150, min(1400, _POINTS // (len(runs) * len(joints))))
    views = [
        time_view(
            run.samples.t,
            run.samples.tau[:, j],
            {"predicted": run.prediction[:, j]},
            run.samples.segments,
            ("torque", "residual", units[j]),
            _caption(run.fit, j, units[j]),
            points,
        )
        for run in runs
        for j in joints
    ]
    choices = (("run", run_titles(runs)), ("joint", [result.rows[j] for j in joints]))
    label = "Measured and predicted torque over time, and their difference"
    return section("Torques", "torques", plot(label, views, choices))


def _caption(fit: Fit, joint: int, unit: str) -> str:
    return (
        f"error {rounded(fit.rms[joint])} {unit} RMS, RRE {rounded(fit.relative[joint])} %, "
        f"while moving {rounded(fit.relative_moving[joint])} %"
    )


# -- friction

_MOST = 1200  # maximum number of dots per view
_BINS = 24


@dataclasses.dataclass(frozen=True, eq=False)
class FrictionSamples:
    """Friction versus velocity for all joints.

    Attributes:
        qd: (N, n) velocities of the samples [rad/s or m/s].
        torque: (N, n) measured torque minus predicted torque without friction [N m or N].
        grid: (G, n) velocities of the curve, symmetric about zero and denser near zero [rad/s or m/s].
        curve: (G, n) friction_force of the model on the grid [N m or N].
    """

    qd: Float[np.ndarray, "N n"]
    torque: Float[np.ndarray, "N n"]
    grid: Float[np.ndarray, "G n"]
    curve: Float[np.ndarray, "G n"]


def friction_samples(chain: Chain, evaluations: Sequence[Evaluation], modelled: bool = False) -> FrictionSamples:
    """Samples tau - (prediction - friction_force(qd)), and the curve friction_force over the range of velocities.

    All other fitted torques (rigid body, rotors, further terms) are subtracted from the measured torque, so the samples
    are the fitted curve plus the residual.

    Args:
        modelled: True if the predictions contain a friction model that depends on more than velocity. In that case, the
            torque of the chain without friction is subtracted from the measured torque instead, and the effect of the
            low-pass filter on the friction model is undone, because the curve is not filtered either.
    """
    data = together(evaluations)
    qd, residual = data.qd, data.error
    if modelled:
        residual = data.tau - np.concatenate([model_torque(chain, e.samples) - smoothing(e) for e in evaluations])
    fastest = np.abs(qd).max(axis=0)
    fine = np.sinh(np.linspace(-7, 7, 301)) / np.sinh(7.0)
    grid = fine[:, None] * fastest
    with jax.enable_x64(True):
        model = as_float64(chain)
        torque, curve = np.split(np.asarray(_friction(model, jnp.asarray(np.concatenate([qd, grid])))), [len(qd)])
    return FrictionSamples(qd, torque + residual, grid, curve)


def smoothing(e: Evaluation) -> Float[np.ndarray, "N n"]:
    """What the low-pass filter removes from the predicted friction: unfiltered minus filtered prediction [N m or N]."""
    return np.zeros_like(e.prediction) if e.logged is None else e.logged[1] - e.prediction


@jax.jit
def _friction(chain: Chain, qd):
    return jax.vmap(lambda v: friction_force(chain, v))(qd)


def binned_medians(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], bins: int = _BINS
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Medians of x and y in bins along x with equal numbers of samples, separately for each sign of x."""
    points = []
    for side in (x < 0, x > 0):
        order = np.argsort(x[side])
        if len(order) >= bins:
            points += [
                (np.median(x[side][part]), np.median(y[side][part])) for part in np.array_split(order, bins // 2)
            ]
    return tuple(np.array(points).reshape(-1, 2).T)  # type: ignore[return-value]


def with_friction(chain: Chain, evaluations: Sequence[Evaluation]) -> list[int]:
    """Coordinates whose friction can be shown: those with a drive and a measured torque."""
    return [j for j in measured_rows(evaluations) if with_drive(chain)[j]]


def friction_section(
    chain: Chain, evaluations: Sequence[Evaluation], units: Sequence[str], fit: FrictionFit | None = None
) -> str:
    """Section with samples, medians and fitted curve of a selectable joint, and the parameters of a friction model."""
    data = friction_samples(chain, evaluations, fit is not None)
    turns = turning_joints(chain)[leading_joints(chain)]
    joints = with_friction(chain, evaluations)
    views = [_view(data, j, bool(turns[j]), units[j]) for j in joints]
    return section(
        "Friction",
        "friction",
        plot("Friction versus velocity", views, [("joint", [coordinate_names(chain)[j] for j in joints])], "low"),
        faint(
            "Measured torque minus predicted torque without friction. Dots are samples of the fitted runs, rings are medians "
            "over equal numbers of samples, and the line is the fitted law. Rings off the line indicate a different friction "
            "law: Stribeck friction if friction first falls and then rises with speed, or asymmetric friction if the two "
            "directions differ. Scatter that widens near standstill indicates presliding. Scatter that is wide everywhere "
            "indicates rigid-body model errors or load-dependent friction."
        ),
        _table(fit) if fit else "",
    )


def friction_name(result: Identification) -> str:
    """The fitted friction in words: its terms, with their joints if they do not apply to all."""
    n = result.chain.n
    if result.friction is None:
        words = {"viscous": "viscous", "coulomb": "Coulomb", "offset": "constant"}
        terms = [words[term] for term in result.columns.drive_terms if term in words]
        return f"{', '.join(terms)} friction at every joint" if terms else "none identified"
    terms = []
    for term in result.friction.model.terms:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(term).__name__)
        name = {"Viscous": "viscous", "Offset": "constant"}.get(name, name)
        joints = (
            []
            if term.joints is None or len(term.joints) == n
            else [result.chain.joint_names[j - 1] for j in term.joints]
        )
        terms.append(name + (f" ({', '.join(joints)})" if joints else ""))
    return ", ".join(terms)


def _view(data: FrictionSamples, joint: int, turns: bool, unit: str) -> View:
    x, y = data.qd[:, joint], data.torque[:, joint]
    spread = float(np.std(y - np.interp(x, data.grid[:, joint], data.curve[:, joint])))
    most = rounded(float(np.abs(data.curve[:, joint]).max()))
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST)).round().astype(int))
    low, high = np.percentile(y, [0.2, 99.8])
    low, high = min(low, data.curve[:, joint].min()), max(high, data.curve[:, joint].max())
    room = 0.08 * float(high - low)
    middle = binned_medians(x, y)
    curves = [
        Curve("samples", "measured", y[chosen], x=x[chosen], style="dots"),
        Curve("fitted", "predicted", data.curve[:, joint], x=data.grid[:, joint], width=2.0),
        Curve("medians", "ink", middle[1], x=middle[0], style="rings"),
    ]
    return View(
        "velocity [rad/s]" if turns else "velocity [m/s]",
        [Panel(f"friction [{unit}]", curves, limits=(float(low) - room, float(high) + room))],
        f"up to {most} {unit}, standard deviation about the curve {rounded(spread)}",
    )


def _table(fit: FrictionFit) -> str:
    """Table of linear parameters with their standard deviations, then of widths, velocities and exponents, by joint."""
    names, values, deviations, units = fit.rows()
    units = [unit(text) if text else DASH for text in units]
    columns = [
        Column("friction model", [element("code", escaped(name)) for name in names]),
        *(Column("value", [*map(number, values)]), Column("sd", [*map(rounded, deviations)]), Column("unit", units)),
    ]
    return element(
        "p",
        "In model.eqx and in the predicted torques, a friction model replaces the viscous, Coulomb and constant terms. The "
        "plot shows the nearest dissipative law with only these three terms, which the URDF and MJCF files contain.",
    ) + element("details", element("summary", "Its parameters") + columns_table(columns))


# -- positions

SOON = 0.1  # [s]
_POSITION_POINTS = 42_000  # maximum total number of points in all curves
_FAR = 3.0  # largest distance from the log at which a simulated position is drawn, relative to the range of motion


def positions_section(result: Identification, found: Sequence[Simulated], with_prior: bool) -> str:
    """Section with position errors by joint, and positions over time for a selectable joint and run.

    Args:
        found: runs, each with its re-simulation with the model that was not fitted to them
            (`Identification.validated_model`, `resimulated`).
        with_prior: True to re-simulate the given model as well.
    """
    title = element("h2", "Positions re-simulated", id="positions")
    if result.chain.topology.has_curved_joints:
        return title + element(
            "p", "Robots with a moving base are not simulated: they fall over under the smallest torque error."
        )
    if result.has_unmeasured_forces:
        return title + element("p", "Robots with closed loops or unmeasured contact forces are not simulated.")
    if not found:
        return title + element("p", "The runs are too short to simulate windows of half a second.")
    runs = [run for _, run in found]
    before = [run for _, run in resimulated(TorqueModel(result.prior), [e for e, _ in found])] if with_prior else []
    units = position_units(result.chain)
    which = "held out" if result.validation else "fitted"
    seconds = runs[0].seconds
    span = np.max([np.ptp(e.samples.q, axis=0) for e, _ in found], axis=0)
    count = sum(len(r.windows) for r in runs)
    text = title + faint(
        f"The identified robot is driven only by the measured torques, in {count} windows of {seconds:.2g} s. Each "
        f"window starts from the measured position and velocity of a run that was {which}. Errors are RMS values of measured "
        "minus simulated positions. No controller keeps the robot near the log, because the controller's stiffness would hide "
        "model errors. A constant acceleration error a causes a position error a T² / 2 after a time T. The windows are "
        "short, because over longer times, every model drifts away from the log. Coasting is the prediction without a model: "
        "constant velocity from the start of the window."
    )
    columns = [
        *(names_column("joint", result.rows), Column("unit", units, "text")),
        Column("range of motion", [*map(rounded, span)]),
        Column("over the window", errors_of(lambda r: r.rms, runs)),
        Column(f"after {SOON:g} s", errors_of(lambda r: r.after(SOON), runs)),
        Column(f"after {seconds:.2g} s", errors_of(lambda r: r.growth[-1], runs)),
    ]
    if before:
        columns.append(Column("given model", errors_of(lambda r: r.rms, before), "edge"))
    columns.append(Column("coasting", errors_of(lambda r: r.coasting_rms, runs), "edge"))
    text += columns_table(columns)
    points = max(150, min(1000, _POSITION_POINTS // (len(found) * len(result.rows))))
    views = [_position_view(e, run, j, units[j], points) for e, run in found for j in range(len(result.rows))]
    choices = (("run", run_titles([e for e, _ in found])), ("joint", result.rows))
    label = "Measured and re-simulated position over time, and their difference"
    return text + plot(label, views, choices)


def _position_view(evaluation: Evaluation, run: Resimulation, joint: int, unit: str, points: int) -> View:
    s = evaluation.samples
    q, simulated = s.q[:, joint], run.simulated[:, joint]
    with np.errstate(invalid="ignore"):
        drawn = np.where(np.abs(simulated - q) < _FAR * max(float(np.ptp(q)), 1e-9), simulated, np.nan)
    # curves are interrupted where a window ends and the next starts from the log; pieces without windows are not drawn
    pieces = [(a, b) for a, b in s.segments or ((0, len(s)),) if np.isfinite(drawn[a:b]).any()]
    caption = f"error {errors_of(lambda r: r.rms, [run])[joint]} {unit} RMS"
    if np.any(~np.isfinite(drawn) & (np.isfinite(simulated) | ~np.isfinite(run.rms[joint]))):
        caption += "; not drawn where the simulation diverges"
    return time_view(s.t, q, {"simulated": drawn}, pieces, ("position", "error", unit), caption, points)


def errors_of(error: Callable[[Resimulation], np.ndarray], runs: Sequence[Resimulation]) -> list[str]:
    """RMS error over all runs for each joint, weighted by the number of windows."""
    weights = np.array([len(r.windows) for r in runs], float)
    with np.errstate(over="ignore", invalid="ignore"):
        pooled = np.sqrt(np.tensordot(weights, np.asarray([error(r) for r in runs]) ** 2, 1) / weights.sum())
    return [rounded(float(x)) if np.isfinite(x) and x < 1e6 else "unbounded" for x in pooled]


# -- spectra

_STRETCH = 4.0  # window length [s]


def residual_spectra(
    evaluations: Sequence[Evaluation],
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, "F n"], Float[np.ndarray, "F n"]]:
    """Frequencies [Hz] and power spectral densities of the measured torque and of the residual [(N m)^2/Hz or N^2/Hz].

    Welch's method (1967) is applied to all gap-free pieces of the runs, and the results are averaged with weights
    proportional to length. Hann windows of 4 s overlap by half; windows are shorter if every piece is shorter than 4 s.
    The mean of each piece is removed. The integral of a density over frequency is the variance.
    """
    pieces = [
        (e.samples.tau[a:b], (e.samples.tau - e.prediction)[a:b], e.samples.rate)
        for e in evaluations
        for a, b in (e.samples.segments or ((0, len(e.samples)),))
    ]
    rate = min(p[2] for p in pieces)
    longest = max(len(p[0]) / p[2] for p in pieces)
    stretch = min(_STRETCH, longest)
    grid = np.fft.rfftfreq(max(8, int(stretch * rate)), 1 / rate)
    total, weight = np.zeros((2, len(grid), pieces[0][0].shape[1])), 0
    for measured, residual, own in pieces:
        count = int(stretch * own)
        if len(measured) < count or count < 8:
            continue
        for k, y in enumerate((measured, residual)):
            f, power = signal.welch(y - y.mean(0), own, nperseg=count, axis=0, detrend=False)  # type: ignore[arg-type]
            total[k] += len(y) * np.stack([np.interp(grid, f, column) for column in power.T], axis=1)
        weight += len(measured)
    return grid, *(total / max(weight, 1))


def spectra_section(evaluations: Sequence[Evaluation], joints: Sequence[str], units: Sequence[str]) -> str:
    """Section with spectra of a selectable joint, and the fraction of the residual's power within the motion's band."""
    frequency, measured, residual = residual_spectra(evaluations)
    moved = max(bandwidth(e.samples.q, e.samples.rate) for e in evaluations)
    cutoff = min(e.samples.torque_cutoff for e in evaluations)
    below = residual[frequency <= moved].sum(0) / np.maximum(residual.sum(0), 1e-300)
    shown = (frequency > 0) & (frequency <= 1.5 * cutoff)
    marks = [(x, name) for x, name in ((moved, "motion"), (cutoff, "low-pass")) if x > frequency[1]]
    views, x = [], frequency[shown]
    chosen = measured_rows(evaluations)
    for j in chosen:
        # avoids the logarithm of zero
        powers = [np.maximum(power[shown, j], 1e-300) for power in (measured, residual)]
        curves = [Curve("measured", "measured", powers[0], width=2.2), Curve("residual", "residual", powers[1])]
        top = 3 * float(powers[0].max())
        limits = (max(float(powers[1].min()) / 3, 1e-11 * top), top)
        panel = Panel(f"power [({units[j]})²/Hz]", curves, logarithmic=True, limits=limits)
        caption = f"{rounded(100 * below[j])} % of the residual's power below {rounded(moved)} Hz"
        views.append(View("frequency [Hz]", [panel], caption, x, logarithmic=True, marks=marks))
    return section(
        "Residual spectra",
        "spectra",
        plot("Spectra of measured torque and of the residual", views, [("joint", [joints[j] for j in chosen])], "low"),
        faint(
            "Power spectral densities (Welch's method) up to the low-pass cutoff. A flat residual is noise. A residual "
            f"spectrum that resembles that of the torque below {rounded(moved)} Hz, the band that contains 99 % of the "
            "motion, indicates missing model terms. A residual spectrum that rises with frequency indicates friction at "
            "reversals. Isolated peaks indicate ripple or vibration."
        ),
    )


# -- excitation

_WEAKEST = 3
_NAMED = 0.25  # components above this fraction of the largest are named


@dataclasses.dataclass(frozen=True, eq=False)
class Excitation:
    """Singular values of the weighted base regressor, in units of the noise, in descending order.

    Attributes:
        values: (b,) singular values s_k; the standard deviation of the combination along direction k is 1 / s_k, in
            mixed units.
        scaled: (b,) singular values with columns of unit norm, relative to the largest.
        directions: (b, b) row k contains the direction of scaled[k], with components along the normalised base parameters.
    """

    values: Float[np.ndarray, " b"]
    scaled: Float[np.ndarray, " b"]
    directions: Float[np.ndarray, "b b"]


def excitation(estimate: Estimate) -> Excitation:
    """Singular values of the base regressor W divided by the noise s, computed from the covariance of the estimate.

    For independent residuals, the covariance is C = (W^T W / s^2)^-1. The singular values are the inverse square roots
    of the eigenvalues of C, and the column norms are the square roots of the diagonal of C^-1.
    """
    spread, axes = np.linalg.eigh(estimate.independent_covariance)
    spread = np.maximum(spread, np.finfo(float).eps * spread[-1])
    gram = (axes / spread) @ axes.T
    norms = np.sqrt(np.diag(gram))
    scaled, directions = np.linalg.eigh(gram / norms / norms[:, None])
    scaled = np.sqrt(np.maximum(scaled[::-1], 0))
    return Excitation(1 / np.sqrt(spread), scaled / scaled[0], directions.T[::-1])


def excitation_section(base: BaseParameters, estimate: Estimate) -> str:
    """Section with a picture of the singular values, and the least excited directions in terms of the base parameters."""
    found = excitation(estimate)
    weaker, directions = [], []
    for k in range(base.size - 1, max(-1, base.size - 1 - _WEAKEST), -1):
        part = found.directions[k]
        order = np.argsort(-np.abs(part))
        shown = [i for i in order[:5] if abs(part[i]) >= _NAMED * abs(part[order[0]])]
        sign = np.sign(part[order[0]])
        words = " ".join(
            f"{'' if not n and sign * part[i] > 0 else '+' if sign * part[i] > 0 else '-'} "
            f"{abs(part[i]):.2f} [{base.names[i].split(' ')[0]}{' + ..' if ' ' in base.names[i] else ''}]"
            for n, i in enumerate(shown)
        )
        weaker.append(rounded(found.scaled[0] / found.scaled[k]))
        directions.append(element("code", escaped(words.strip())))
    heading = "direction, in base parameters scaled to equal effect"
    facts = (
        f"{number(estimate.condition, 3)} unscaled and {number(estimate.scaled_condition, 3)} with columns of unit norm"
    )
    return section(
        "Excitation",
        "excitation",
        faint(
            f"Singular values of the base regressor, with the rows of each joint divided by the joint's noise. The condition "
            f"number, the ratio of the largest to the smallest singular value, is {facts}. The second value does not depend on "
            "units. It should be below 30; if it exceeds 100, use another trajectory."
        ),
        element(
            "div",
            _plot(found)
            + element(
                "div",
                element("h3", "Least excited directions")
                + columns_table([Column("times weaker", weaker), Column(heading, directions, "text", "wrap")]),
            ),
            "beside",
        ),
    )


def _plot(found: Excitation) -> str:
    x = np.arange(1.0, len(found.values) + 1)
    given = (
        (found.values / found.values[0], "measured", "unscaled"),
        (found.scaled, "predicted", "columns of unit norm"),
    )
    curves = [Curve(name, colour, np.maximum(y, 1e-300)) for y, colour, name in given]
    panel = Panel("relative to the largest", curves, logarithmic=True)
    return plot("Singular values of the base regressor", [View("number", [panel], x=x)], kind="low")


# -- terms


def terms_section(result: Identification) -> str:
    """Section with the error reduction on held-out blocks and the outcome of each trial; empty if there were no trials."""
    if result.choice is None:
        return ""
    trials = sorted(result.choice.trials, key=lambda trial: (not trial.adopted, trial.joint))
    joints = ("all joints", *result.chain.joint_names)
    columns = [
        names_column("joint", (joints[trial.joint] for trial in trials)),
        Column("kind", [escaped(trial.kind) for trial in trials], "text"),
        Column("best of its kind", [escaped(trial.name) for trial in trials], "text"),
        Column("reduces the error by [%]", [number(trial.gain, 3) for trial in trials]),
        Column("in standard errors", [f"{trial.ratio:.1f}".replace("-", MINUS) for trial in trials]),
        Column("", [("adopted", "yes") if trial.adopted else DASH for trial in trials], "text"),
    ]
    return folded(
        "Terms tried",
        "terms",
        columns_table(columns),
        faint(
            "The fitted runs are divided into blocks, each of which is predicted by a fit to the others. A term is adopted if "
            "it reduces a joint's RMS error by at least 1 %, and if the mean gain over the blocks is significant in a "
            "one-sided t-test at the level of 5 %. The gain of an adopted term is relative "
            "to the model without this term; the gain of a rejected term is relative to the final model."
        ),
    )
