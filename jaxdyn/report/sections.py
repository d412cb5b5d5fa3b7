"""Sections of the identification report, from the verdict to the details."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..dynamics import friction_force
from ..identification.base import model_torque
from ..identification.columns import INERTIAL_NAMES, prior_parameters
from ..identification.factors import as_float64
from ..identification.friction_terms import is_of_chain
from ..identification.prediction import MOVING, Fit
from ..identification.result import Evaluation, Identification, model_intervals, parameter_rows
from ..identification.torque_model import TorqueModel
from ..identification.validation import Resimulation
from ..model.chain import Chain, coordinate_names, leading_joints, position_units, torque_units, turning_joints
from .files import compared_runs
from .markup import (
    DASH,
    MINUS,
    Cell,
    Column,
    columns_table,
    element,
    escaped,
    faint,
    names,
    names_column,
    number,
    rounded,
    section,
    table,
    tile,
    unit,
    value_columns,
    with_deviation,
)
from .pictures import Curve, Panel, View, equivalent_ellipsoid, plot, time_view
from .quality import (
    measured_rows,
    pooled,
    pooled_raw,
    resimulated,
    together,
    torque_shares,
    with_drive,
)
from .verdicts import ANSWERS, LIMITS, Verdict, level_of

REFIT = "a fit without the held-out part predicted it; the written model fits all data"
POINTS = 90_000  # maximum total number of points of all torque curves

# -- first screen


def first_screen(result: Identification, judged: Verdict) -> str:
    """Whether the model may be used, for what, how much better it is than the given one, and what is wrong."""
    cards = "".join(
        element(
            "div",
            element("b", escaped(use.use.capitalize()))
            + element("span", ANSWERS[use.level], "answer")
            + element("p", escaped(use.text.partition(". ")[2])),
            f"card {use.level}",
        )
        for use in judged.uses
    )
    limits = element("ul", "".join(element("li", escaped(c.text), c.level) for c in judged.limits), "checks")
    return (
        element("p", element("b", escaped(judged.headline)), f"verdict stamp {judged.level}")
        + (limits if judged.limits else "")
        + element("div", cards, "cards")
        + element("div", _key_figures(result, judged), "tiles")
        + _problems(judged)
    )


def _key_figures(result: Identification, judged: Verdict) -> str:
    """The torque error, that of the worst joint and that of the given model, all relative to the filtered torque."""
    fit, which = pooled(result.validation or result.fitted), "held out" if result.validation else "fitted"
    tiles = [tile(f"{rounded(fit.total_relative)} %", f"torque error, {which}", "of the filtered torque, all joints")]
    moving = np.nan_to_num(fit.relative_moving, nan=-1)
    if moving.max() >= 0 and len(moving) > 1:
        worst = result.rows[int(np.argmax(moving))]
        tiles.append(tile(f"{rounded(moving.max())} %", f"worst joint, {which}", f"{worst}, while it moves"))
    if judged.given:
        times = judged.given.given.total_relative / max(fit.total_relative, 1e-300)
        given = f"{rounded(judged.given.given.total_relative)} %"
        tiles.append(tile(given, "error of the given model", f"{rounded(times)} times as large, same motion"))
    return "".join(tiles)


def _problems(judged: Verdict) -> str:
    """What is wrong: failed checks and suspected faults."""
    title = element("h2", "What is wrong", id="problems")
    lines = [(check.level, check.text) for check in judged.checks]
    lines += [("fair", finding.text[:1].upper() + finding.text[1:]) for finding in judged.findings]
    if not lines:
        return title + element("p", "No fault was found in the logs, the given model or the fit.")
    return title + element("ul", "".join(element("li", escaped(text), level) for level, text in lines), "checks")


# -- torques and their errors


def runs_of(result: Identification) -> tuple[Evaluation, ...]:
    """All evaluations in the order in which the page shows their runs, with held-out runs first."""
    return (*result.validation, *result.fitted)


def run_titles(runs: Sequence[Evaluation]) -> list[str]:
    """Titles for row headings and selection lists."""
    return [run.title[:1].upper() + run.title[1:] for run in runs]


def seconds_of(run: Evaluation) -> float:
    """Length of a run, excluding gaps [s]."""
    return sum(float(run.samples.t[stop - 1] - run.samples.t[start]) for start, stop in run.samples.segments)


def torques_section(result: Identification) -> str:
    """Section with measured and predicted torque over time for a selectable joint and run."""
    units, runs = torque_units(result.chain), runs_of(result)
    joints = measured_rows(runs)
    points = max(150, min(1400, POINTS // (len(runs) * len(joints))))

    def view(run: Evaluation, j: int) -> View:
        s, fit = run.samples, run.fit
        caption = (
            f"error {rounded(fit.rms[j])} {units[j]} RMS, {rounded(fit.relative[j])} % of the torque, while moving "
            f"{rounded(fit.relative_moving[j])} %"
        )
        curves, words = {"predicted": run.prediction[:, j]}, ("torque", "residual", units[j])
        return time_view(s.t, s.tau[:, j], curves, s.segments, words, caption, points)

    choices = (("run", run_titles(runs)), ("joint", [result.rows[j] for j in joints]))
    label = "Measured and predicted torque over time, and their difference"
    return section("Torques", "torques", plot(label, [view(run, j) for run in runs for j in joints], choices))


ErrorRow = tuple[str, Fit | None, int | None]  # title, errors, and the run whose torques a click shows


def errors_table(
    joints: Sequence[int], names: Sequence[str], units: Sequence[str], torque: np.ndarray, rows: Sequence[ErrorRow]
) -> str:
    """Table of torque errors with a row per motion or model and a column per joint, and the RMS torque in the first row."""
    row = lambda title, total, cells: (
        element("th", escaped(title), "wrap")
        + element("td", total, "yes")
        + "".join(element("td", x, "go") for x in cells)
    )
    sizes = [element("small", rounded(torque[j])) for j in joints]
    lines = [row(f"Torque, RMS [{' or '.join(sorted(set(units)))}]", "", sizes)]
    for title, fit, run in rows:
        if fit is not None:
            cells = [rounded(fit.relative_moving[j]) + element("small", rounded(fit.rms[j])) for j in joints]
            if run is not None:
                to = lambda k, run=run: {"href": "#torques", "data_run": f"{run}", "data_joint": f"{k}"}
                cells = [element("a", cell, **to(k)) for k, cell in enumerate(cells)]
            lines.append(row(title, rounded(fit.total_relative), cells))
    heads = "".join(element("th", escaped(names[j]).replace("_", "_<wbr>"), "name") for j in joints)
    return table(element("th", "motion or model", "text") + element("th", "all [%]") + heads, lines) + faint(
        "Each cell contains the error in percent of the torque, over the samples at which the joint moves faster than "
        f"{MOVING:g} rad/s or m/s, and below it the RMS error. A joint with little torque has a large percentage even if the "
        "error is small."
    )


def errors_section(result: Identification, judged: Verdict) -> str:
    """Section with one table of all torque errors: held out, fitted, given model, written files, and as logged.

    All rows but the last ones refer to the filtered torque, so that they can be compared.
    """
    runs, held = runs_of(result), result.validation or result.fitted
    where = "held-out motion" if result.validation else "the fitted motion"
    on_files = "the fitted motion" if compared_runs(result) is result.fitted else "held-out motion"
    rows: list[ErrorRow] = [
        (f"{title}, {number(seconds_of(run), 3)} s", run.fit, k)
        for k, (run, title) in enumerate(zip(runs, run_titles(runs), strict=True))
    ]
    several = (("All held-out motion", result.validation), ("All fitted motion", result.fitted))
    rows += [(title, pooled(some), None) for title, some in several if len(some) > 1]
    if judged.given:
        rows.append((f"Given model, on {where}", judged.given.given, None))
        rows.append((f"Given inertias, identified friction and rotors, on {where}", judged.given.driven, None))
    rows += [(f"{file.name}, on {on_files}", file.fit, None) for file in judged.files]
    rows.append(("As logged, unfiltered: held out", pooled_raw(result.validation), None))
    rows.append(("As logged, unfiltered: fitted", pooled_raw(result.fitted), None))
    size = np.sqrt((together(held).tau ** 2).mean(0))
    return section(
        "Errors",
        "errors",
        errors_table(measured_rows(runs), result.rows, torque_units(result.chain), size, rows),
        faint(
            "Except for the rows “as logged”, errors are relative to the low-pass filtered torque "
            f"({result.fitted[0].samples.torque_cutoff:.3g} Hz), so they can be compared. "
            + (f"{REFIT[0].upper()}{REFIT[1:]}. " if result.validation_refit else "")
            + "Click a cell of a run to see its torques. errors.csv contains further errors of each run."
        ),
    )


# -- friction

_MOST = 1200  # maximum number of dots per view
_BINS = 24


def friction_samples(
    chain: Chain, evaluations: Sequence[Evaluation], modelled: bool = False
) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, "N n"], Float[np.ndarray, "G n"], Float[np.ndarray, "G n"]]:
    """Velocities and samples tau - (prediction - friction_force(qd)), and a grid of velocities with friction_force on it.

    All other fitted torques (rigid body, rotors, further terms) are subtracted from the measured torque, so the samples
    are the fitted curve plus the residual. The grid is symmetric about zero and denser near zero.

    Args:
        modelled: True if the predictions contain a friction model that depends on more than velocity. In that case, the
            torque of the chain without friction is subtracted from the measured torque instead, and the effect of the
            low-pass filter on the friction model is undone, because the curve is not filtered either.
    """
    data = together(evaluations)
    qd, residual = data.qd, data.error
    if modelled:  # filtered minus unfiltered prediction is what the filter removes from the friction
        smooth = lambda e: 0.0 if e.logged is None else e.logged[1] - e.prediction
        residual = data.tau - np.concatenate([model_torque(chain, e.samples) - smooth(e) for e in evaluations])
    grid = (np.sinh(np.linspace(-7, 7, 301)) / np.sinh(7.0))[:, None] * np.abs(qd).max(axis=0)
    with jax.enable_x64(True):
        force = _friction(as_float64(chain), jnp.asarray(np.concatenate([qd, grid])))
    torque, curve = np.split(np.asarray(force), [len(qd)])
    return qd, torque + residual, grid, curve


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


def friction_section(result: Identification) -> str:
    """Section with samples, medians and fitted curve of a selectable joint, and the friction parameters; may be empty."""
    chain, fit = result.chain, result.friction
    joints = [j for j in measured_rows(result.fitted) if with_drive(chain)[j]]
    if not joints:
        return ""
    data, units = friction_samples(chain, result.fitted, fit is not None), torque_units(chain)
    turns = turning_joints(chain)[leading_joints(chain)]
    views = [_friction_view(data, j, "rad/s" if turns[j] else "m/s", units[j]) for j in joints]
    text = (
        "Measured torque minus predicted torque without friction. Dots are samples of the fitted runs, rings are medians over "
        "equal numbers of samples, and the line is viscous, Coulomb and constant friction, as in the URDF and MJCF files."
    )
    if fit and not is_of_chain(fit.model.terms):
        text += f" In model.eqx and in the predicted torques, it is replaced by {escaped(friction_name(result))}."
    return section(
        "Friction",
        "friction",
        plot("Friction versus velocity", views, [("joint", [coordinate_names(chain)[j] for j in joints])], "low"),
        faint(text),
        _drives(result),
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
        some = () if term.joints is None or len(term.joints) == n else term.joints
        joints = ", ".join(result.chain.joint_names[j - 1] for j in some)
        terms.append(name + (f" ({joints})" if joints else ""))
    return ", ".join(terms)


def _friction_view(data: tuple[np.ndarray, ...], joint: int, speed: str, torque: str) -> View:
    x, y, grid, curve = (part[:, joint] for part in data)
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST)).round().astype(int))
    low, high = np.percentile(y, [0.2, 99.8])
    low, high = float(min(low, curve.min())), float(max(high, curve.max()))
    room, middle = 0.08 * (high - low), binned_medians(x, y)
    curves = [
        Curve("samples", "measured", y[chosen], x=x[chosen], style="dots"),
        Curve("fitted", "predicted", curve, x=grid, width=2.0),
        Curve("medians", "ink", middle[1], x=middle[0], style="rings"),
    ]
    spread = rounded(float(np.std(y - np.interp(x, grid, curve))))
    caption = f"up to {rounded(float(np.abs(curve).max()))} {torque}, standard deviation about the curve {spread}"
    return View(
        f"velocity [{speed}]", [Panel(f"friction [{torque}]", curves, limits=(low - room, high + room))], caption
    )


def _drives(result: Identification) -> str:
    """Table of the drive and friction parameters of each joint, with standard deviations and intervals."""
    n, (_, full, nonlinear) = result.chain.n, parameter_rows(result)
    drives, friction = len(result.columns.drive_terms) * n, len(result.columns.friction_names(n))
    rows = (*full[10 * n : 10 * n + drives], *full[len(full) - friction :], *nonlinear)
    joints, cells = result.chain.joint_names, dict[str, dict[str, Cell]]()
    for row in map(dataclasses.asdict, rows):
        label, of = re.sub(r"( of joint )?\d+$", "", row["name"]), row["unit"] and f" [{unit(row['unit'])}]"
        heading = _MEANING.get(label, escaped(label)) + of
        cells.setdefault(heading, dict.fromkeys(joints, DASH))[row["belongs_to"]] = _cell(row)
    columns = [Column(heading, list(own.values()), "name") for heading, own in cells.items()]
    return columns_table([names_column("joint", joints), *columns]) if columns else ""


# -- parameters

_MEANING = {"Ia": "rotor inertia Ia", "fv": "viscous fv", "fc": "Coulomb fc", "off": "offset off"}
_WORDS = {"good": "well", "fair": "fairly", "poor": "poorly"}
_KNOWN = {"yes": "yes", "only in sums": "", "no": "no", "known": "no"}


def parameters_section(result: Identification) -> str:
    """Section with the base parameters of the written model, their intervals, and how much they matter for the torque."""
    rows, (deviations, intervals) = parameter_rows(result)[0], model_intervals(result)
    prior = (result.base.matrix @ prior_parameters(result.prior, result.columns)).tolist()
    given = [with_deviation(value, deviation)[0] for value, deviation in zip(prior, deviations.tolist(), strict=True)]
    torque, unsure = torque_shares(result)
    has_prior = bool(np.any(np.asarray(result.prior.inertia)))
    columns = [
        Column("base parameter", [escaped(row.name) for row in rows], "text", "text sum"),
        *value_columns([row.model_value for row in rows], deviations.tolist(), intervals.tolist()),
        Column("unit", [unit(row.unit) for row in rows], "text"),
        *([Column("given", given, "edge")] if has_prior else []),
        Column("torque / noise", [*map(rounded, torque.tolist())], "name edge"),
        Column("s.d. / noise", [_determined(x) for x in unsure.tolist()], "name"),
    ]
    bounds = LIMITS["parameter"]
    halves = result.split_half
    return section(
        "Parameters",
        "parameters",
        faint(
            "Base parameters are the combinations of parameters that determine the torques; a name is a sum that starts with "
            "its leading parameter, and counts links and joints from the base. Values and intervals belong to the written "
            "model. “Torque / noise” is the parameter's RMS torque relative to the noise of the joints, and “s.d. / noise” "
            f"that of its standard deviation: up to {bounds.good:g}, the parameter is well determined, up to "
            f"{bounds.fair:g} fairly. A small share of the torque does not matter, whatever the relative deviation. The "
            f"condition number of the regressor is {rounded(result.estimate.scaled_condition)} with columns of unit norm"
            + (f"; {escaped(str(halves))}." if halves is not None else ".")
        ),
        columns_table(columns),
    )


def _determined(share: float) -> Cell:
    """How well a parameter is determined, whose standard deviation has this share of the noise."""
    level = level_of(share, "parameter")
    return f"{rounded(share)} {_WORDS[level]}", f"mark {level}"


def _cell(row: Mapping[str, Any], edge: str = "", digits: int = 4) -> tuple[str, str, str]:
    """Value, with its standard deviation; its 95 % interval, the given value and whether it is identifiable on pointing."""
    value, deviation = number(row["value"], digits), row["standard_deviation"]
    known = f"{row['name']}: identifiable {row['identifiable']}"
    known += f"; given {row['prior']:.6g}" if row["prior"] is not None else ""
    if deviation is not None:
        value, unsure = with_deviation(row["value"], deviation)
        value += element("small", f"± {unsure}")
        known += f"; 95 % interval {row['lower']:.4g} to {row['upper']:.4g}"
    return value, f"{_KNOWN[row['identifiable']]} {edge}".strip(), known


# -- details


def details_section(result: Identification, judged: Verdict) -> str:
    """Everything else, folded: positions, bodies, the full set of parameters, and terms tried."""
    parts = (_positions(result, judged), _links(result), _full(result), _terms(result))
    return element("details", element("summary", element("h2", "Details", id="details")) + "".join(parts), "part")


SOON = 0.1  # [s]
_POSITION_POINTS = 42_000  # maximum total number of points in all curves
_FAR = 3.0  # largest distance from the log at which a simulated position is drawn, relative to the range of motion


def _positions(result: Identification, judged: Verdict) -> str:
    """Position errors by joint, and positions over time for a selectable joint and run; empty if nothing is simulated."""
    found = judged.simulated
    if not found:
        return ""
    columns, units = {"": [run for _, run in found]}, position_units(result.chain)
    if judged.given:
        columns["given model"] = [run for _, run in resimulated(TorqueModel(result.prior), [e for e, _ in found])]
    points = max(150, min(1000, _POSITION_POINTS // (len(found) * len(result.rows))))
    views = [_position_view(e, run, j, units[j], points) for e, run in found for j in range(len(result.rows))]
    choices = (("run", run_titles([e for e, _ in found])), ("joint", result.rows))
    return "".join(
        (
            element("h3", "Positions re-simulated", id="positions"),
            *positions_table(result.chain, columns, np.max([np.ptp(e.samples.q, axis=0) for e, _ in found], axis=0)),
            plot("Measured and re-simulated position over time, and their difference", views, choices),
        )
    )


def positions_table(
    chain: Chain, models: Mapping[str, Sequence[Resimulation]], travel: np.ndarray | None = None
) -> tuple[str, str]:
    """A text, and a table of the errors of positions that models simulate in the same windows, beside those of coasting."""
    first = next(iter(models.values()))
    columns = [names_column("joint", coordinate_names(chain)), Column("unit", position_units(chain), "text")]
    if travel is not None:
        columns.append(Column("range of motion", [*map(rounded, travel.tolist())]))
    for name, runs in models.items():
        columns.append(Column(name or "whole window", errors_of(lambda r: r.rms, runs)))
        if not name:
            columns.append(Column(f"after {SOON:g} s", errors_of(lambda r: r.after(SOON), runs)))
            columns.append(Column(f"after {first[0].seconds:.2g} s", errors_of(lambda r: r.growth[-1], runs)))
    columns.append(Column("coasting", errors_of(lambda r: r.coasting_rms, first), "edge"))
    text = (
        f"RMS of measured minus simulated positions. A model is driven only by the measured torques, in "
        f"{sum(len(r.windows) for r in first)} windows of {first[0].seconds:.2g} s, each of which starts from the measured "
        "position and velocity. A constant acceleration error a causes a position error a T² / 2 after a time T. Coasting is "
        "the prediction without a model: constant velocity from the start of the window."
    )
    return faint(text), columns_table(columns)


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


def _links(result: Identification) -> str:
    """Mass, density, centre of mass and size of each link, beside the given model."""
    chain = result.chain
    solids = [[equivalent_ellipsoid(pi) for pi in np.asarray(c.inertia)] for c in (chain, result.prior)]

    def column(heading: str, of: Callable, bodies: Sequence, total: Cell = "", kind: str = "") -> Column:
        return Column(heading, [*(DASH if e is None else of(e) for e in bodies), total], kind)

    size = lambda text: lambda e: text(e) if e.consistent else "inconsistent"
    axes = size(lambda e: ", ".join(f"{1000 * a:.0f}" for a in e.semi_axes[::-1]))
    columns = [names_column("link", (*chain.link_names, "all moving links"))]
    for which, bodies, edge in (("", solids[0], ""), ("given ", solids[1], "edge")):
        total = (number(sum(e.mass for e in bodies if e is not None), 4), f"yes {edge}".strip())
        columns.append(column(f"{which}mass [kg]", lambda e: number(e.mass, 3), bodies, total, edge))
        columns.append(column(f"{which}density [kg/m³]", size(lambda e: rounded(e.density)), bodies))
        if not which:
            centre = lambda e: ", ".join(f"{1000 * x:.0f}".replace("-", MINUS) for x in e.centre)
            columns += [column("centre of mass [mm]", centre, bodies), column("semi-axes [mm]", axes, bodies)]
        if not np.any(np.asarray(result.prior.inertia)):
            break
    mass = element("p", f"Total mass: {escaped(str(result.total_mass))}.") if result.has_free_base else ""
    return (
        element("h3", "Links", id="bodies")
        + faint(
            "Density and semi-axes belong to the solid ellipsoid of uniform density with the link's mass, centre of mass and "
            "inertia. Machines typically have average densities of 500 to 5000 kg/m³, including cavities; a density far "
            "outside this range, or an ellipsoid far larger than the link, shows that the motion does not determine the link. "
            + element("code", "jaxdyn view identified.urdf")
            + " draws the ellipsoids."
        )
        + mass
        + columns_table(columns)
    )


def _full(result: Identification) -> str:
    """All parameters of the written model, with intervals where they are identifiable on their own."""
    chain, rows = result.chain, [dataclasses.asdict(row) for row in parameter_rows(result)[1]]
    known = {row["name"] for row in rows if row["identifiable"] == "known"}
    taken = [f"link {name}" for i, name in enumerate(chain.link_names) if f"m{i + 1}" in known]
    taken += [row["name"] for row in rows[10 * chain.n :] if row["name"] in known]
    # drives and friction have a table of their own
    first, friction = (10 + len(result.columns.drive_terms)) * chain.n, len(result.columns.friction_names(chain.n))
    inertial, extra = rows[: 10 * chain.n], rows[first : len(rows) - friction]
    columns = [names_column("link", chain.link_names)]
    for k, (name, of) in enumerate(zip(INERTIAL_NAMES, ("kg", *["kg m"] * 3, *["kg m²"] * 6), strict=True)):
        edge = "edge" if name in ("mx", "Ixx") else ""
        columns.append(Column(f"{name} [{of}]", [_cell(row, edge=edge, digits=3) for row in inertial[k::10]], edge))
    text = (
        element("h3", "Full set", id="full")
        + faint(
            "Mass, first moments m c, and inertia about the origin of the link frame, all in the axes of this frame. "
            "Parameters in bold are identifiable on their own (± one standard deviation; point at a number to see its "
            "interval), those in plain type only in sums with others, and those in italics affect no torque or are known."
            + (f" Taken from the given model: {names(taken)}." if taken else "")
        )
        + columns_table(columns)
    )
    if extra:
        columns = [names_column("parameter", (row["name"] for row in extra)), Column("value", [*map(_cell, extra)])]
        text += columns_table([*columns, Column("unit", [unit(row["unit"]) for row in extra], "text")])
        if homeless := [name for e in result.columns.extra if e.leaf is None for name in e.names]:
            text += faint(f"identified.urdf lacks {names(homeless)}, which the model cannot represent.")
    return text


def _terms(result: Identification) -> str:
    """The error reduction on left-out blocks and the outcome of each trial; empty if there were no trials."""
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
    return (
        element("h3", "Terms tried", id="terms")
        + columns_table(columns)
        + faint(
            "The fitted runs are divided into blocks, each of which is predicted by a fit to the others. A term is adopted if "
            "it reduces a joint's RMS error by at least 1 %, and if the mean gain over the blocks is significant in a "
            "one-sided t-test at the level of 5 %. The gain of an adopted term is relative to the model without this term; "
            "the gain of a rejected term is relative to the final model."
        )
    )
