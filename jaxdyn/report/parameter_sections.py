"""Section on the correlation of the estimates, which shows which base parameters the motion separates poorly.

Section that compares the identified model with the given one, joint by joint.

Sections on parameters: base parameters, drives, links, and parameters that are not identifiable.

Section with the links drawn as ellipsoids on the robot.

Section on the predictions of each written model file after it is loaded again."""

import base64
import dataclasses
import json
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from ..identification.base import BaseParameters, TotalMass, prior_parameters, with_parameters
from ..identification.columns import DRIVE_NAMES, INERTIAL_NAMES
from ..identification.least_squares import Estimate, SplitHalf
from ..identification.prediction import Fit, fit_quality
from ..identification.preprocessing import Samples
from ..identification.result import Identification, ParameterRow, parameter_rows
from ..identification.torque_model import TorqueModel
from ..model.chain import Chain
from .files import FilePrediction, compared_runs
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
    names,
    names_column,
    number,
    rounded,
    section,
    unit,
    with_deviation,
)
from .pictures import Ellipsoid, equivalent_ellipsoid, line_ends, outstretched, projected, skeleton
from .quality import FAIR, GOOD, determination, together, torque_units

_PAIRS = 8  # number of pairs that are named
_SHADES = 10


def correlation(estimate: Estimate) -> Float[np.ndarray, "b b"]:
    """Correlation matrix cov_ij / (s_i s_j) of the estimates; entries are zero where a standard deviation s is zero."""
    s = estimate.standard_deviations
    inverse = np.divide(1.0, s, out=np.zeros_like(s), where=s > 0)
    return np.clip(estimate.covariance * inverse * inverse[:, None], -1.0, 1.0)


def correlation_section(base: BaseParameters, estimate: Estimate) -> str:
    """Section with a picture of the correlation matrix, and a table of its largest values."""
    found = correlation(estimate)
    rows, columns = np.tril_indices(base.size, -1)
    order = np.argsort(-np.abs(found[rows, columns]))[:_PAIRS]
    pairs = [(int(rows[k]), int(columns[k])) for k in order]
    table = columns_table(
        [
            Column("correlation", [f"{found[i, j]:.2f}".replace("-", MINUS) for i, j in pairs]),
            Column("of", [escaped(base.names[i]) for i, _ in pairs], "text", "text sum"),
            Column("and", [escaped(base.names[j]) for _, j in pairs], "text", "text sum"),
        ]
    )
    return folded(
        "Correlation of the base parameters",
        "correlation",
        faint(
            "Correlation between the errors of the estimates, in the order of the table of base parameters. If the correlation "
            "of two parameters is close to 1 or -1, their difference or sum, respectively, is known much more accurately than "
            "each parameter alone."
        ),
        element("div", _matrix(found, base.names) + table, "beside"),
    )


def _matrix(values: Float[np.ndarray, "b b"], names: tuple[str, ...]) -> str:
    """The lower triangle of the matrix as coloured cells, one path per shade; page.js shows the value under the pointer."""
    b = len(values)
    shades = np.where(np.tri(b, dtype=bool), np.round(_SHADES * values), 0).astype(int)
    cells = "".join(
        element(
            "path",
            "",
            "plus" if shade > 0 else "minus",
            d="".join(f"M{j} {i}h1v1h-1z" for i, j in np.argwhere(shades == shade).tolist()),
            fill_opacity=f"{abs(shade) / _SHADES:g}",
        )
        for shade in (*range(-_SHADES, 0), *range(1, _SHADES + 1))
        if np.any(shades == shade)
    )
    coded = base64.b64encode(np.round(100 * values).astype(np.int8).tobytes()).decode("ascii")
    data = json.dumps({"names": names, "values": coded}, ensure_ascii=False).replace("<", "\\u003c")
    key = "".join(element("span", "", f"key {kind}") + text for kind, text in (("plus", "1"), ("minus", f"{MINUS}1")))
    label = f"Correlation matrix of {b} base parameters"
    svg = (
        f'<svg viewBox="-0.2 -0.2 {b + 0.4} {b + 0.4}" role="img" aria-label="{label}">'
        f'<path class="outline" d="M0 0{"".join("h1v1" for _ in range(b))}H0z"/>{cells}<path class="cursor" d=""/></svg>'
    )
    hint = element("output", "Point at a cell to see its value.")
    held = element("script", data, type="application/json")
    return element("figure", svg + element("figcaption", key + " " + hint) + held, "matrix")


# -- prior


@dataclasses.dataclass(frozen=True)
class AgainstPrior:
    """Errors of the given and the identified model on the same samples, which are held-out samples if there are any.

    Attributes:
        identified: errors of the identified model.
        given: errors of the unchanged given model, including its friction, if any.
        driven: errors of the given inertias with the identified drive terms (friction, armature, offset), which like
            those of the identified model come from a fit without the held-out samples.
        held_out: True if the samples were held out.
    """

    identified: Fit
    given: Fit
    driven: Fit
    held_out: bool


def has_inertias(result: Identification) -> bool:
    """True if the given model has inertias."""
    return bool(np.any(np.asarray(result.prior.inertia)))


def against_prior(result: Identification) -> AgainstPrior | None:
    """The errors of both models; None if the given model has no inertias."""
    if not has_inertias(result):
        return None
    evaluations = result.validation or result.fitted
    count = 10 * result.chain.n
    model = result.validated_model
    mixed = np.array(prior_parameters(model.chain, result.columns))
    mixed[:count] = np.asarray(result.prior.inertia, float).reshape(-1)
    driven = dataclasses.replace(model, chain=with_parameters(result.prior, result.columns, mixed))
    data = together(evaluations)

    def error(model: TorqueModel) -> Fit:
        return fit_quality(data.tau, np.concatenate([e.predicted_by(model) for e in evaluations]), data.qd)

    identified = fit_quality(data.tau, data.prediction, data.qd)
    given = TorqueModel(result.prior).filtered(result.model.cutoff)
    return AgainstPrior(identified, error(given), error(driven), bool(result.validation))


def prior_section(result: Identification, errors: AgainstPrior | None) -> str:
    """Section with a table of the errors of both models by joint; empty if the given model has no inertias."""
    if errors is None:
        return ""
    units = torque_units(result.chain)
    groups = (
        ("given model", errors.given),
        ("its inertias, identified drives", errors.driven),
        ("identified", errors.identified),
    )
    columns = [names_column("joint", result.rows), Column("unit", units, "text")]
    for _, fit in groups:
        columns += [Column("RMS", [*map(rounded, fit.rms)], "edge"), Column("RRE [%]", [*map(rounded, fit.relative)])]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns.append(Column("ratio", [*map(rounded, errors.given.rms / errors.identified.rms)], "edge"))
    where = "held-out motion" if errors.held_out else "the fitted motion, because none was held out"
    return section(
        "Against the given model",
        "prior",
        columns_table(columns, group_row(2, (name for name, _ in groups), 2) + element("th", "")),
        faint(
            f"Errors relative to the low-pass filtered torque, on {where}, of three models: the given model; its inertias "
            "with the identified friction, armature and offsets, which isolates the effect of the links; and the "
            "identified model. The ratio is the error of the "
            "given model divided by that of the identified model."
        ),
    )


# -- parameters

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
_ESTIMATED = ("standard_deviation", "relative_sd_percent")
_KNOWN = {"yes": "yes", "only in sums": "", "no": "no", "known": "no"}


def parameter_sections(result: Identification) -> str:
    """Sections with the base parameters and their correlation, the full set, and the parameters that are not identifiable."""
    base, full = parameter_rows(result)
    correlated = correlation_section(result.base, result.estimate)
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
            "deviations, noise or missing terms bias the estimate towards inconsistent links. “Prior” is the "
            "value in the given model. Each name is a sum that starts with the "
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
    deviations, relative = (np.array([getattr(row, name) for row in rows], float).tolist() for name in _ESTIMATED)

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


# -- bodies

_VIEWS = (  # rows: the picture's right and up directions
    ("from the front", np.array([[0.0, 1, 0], [0, 0, 1]])),
    ("from the side", np.array([[1.0, 0, 0], [0, 0, 1]])),
)
_UNIT = 1000.0  # picture units per metre


def bodies_section(chain: Chain, prior: Chain | None, samples: Samples, mass: TotalMass | None = None) -> str:
    """Section with two views of the robot and its links' ellipsoids in one posture of the run, and a table of masses and sizes.

    Args:
        chain: the identified robot.
        prior: the given model, if it has inertias; its ellipsoids are drawn as outlines.
        samples: the run.
        mass: total mass of a robot with a free base.
    """
    poses = outstretched(chain, samples)
    lines = line_ends(poses, skeleton(chain))
    found, given = (
        [equivalent_ellipsoid(pi) for pi in np.asarray(c.inertia)] if c else [None] * chain.n for c in (chain, prior)
    )
    solid, outline = (
        [(i, e.moved(poses[i])) for i, e in enumerate(bodies) if e is not None and e.consistent]
        for bodies in (found, given)
    )
    lacking = [link for link, e in zip(chain.link_names, found, strict=True) if e is not None and not e.consistent]
    figures = "".join(
        element(
            "figure", element("figcaption", element("b", name.capitalize())) + _svg(view, name, solid, outline, lines)
        )
        for name, view in _VIEWS
    )
    legend = (
        element("span", "", "key solid")
        + "identified"
        + (element("span", "", "key outline") + "given model" if prior else "")
    )
    text = (
        element("h2", "Bodies", id="bodies")
        + faint(
            "Each link is drawn as the solid ellipsoid of uniform density with the same mass, centre of mass and inertia. "
            "The robot is shown in a posture of the run, with links numbered from the base. "
            f"Legend: {legend}. An ellipsoid far larger than its link, or far away from it, indicates parameters that the "
            "motion does not determine. Machines typically have average densities of 500 to 5000 kg/m³, including cavities. "
            "Drag a picture to rotate it."
        )
        + element("div", figures, "grid")
    )
    if lacking:
        text += element(
            "p",
            f"Not drawn, because {'its inertia is' if len(lacking) == 1 else 'their inertias are'} physically inconsistent: "
            f"{escaped(', '.join(lacking))}.",
        )
    if mass is not None:
        text += element("p", f"Total mass: {escaped(str(mass))}.")
    centres = [DASH if e is None else ", ".join(number(float(round(1000 * x)), 6) for x in e.centre) for e in found]
    columns = [
        Column("", [*(str(i + 1) for i in range(chain.n)), ""]),
        names_column("link", (*chain.link_names, "all moving links")),
        _masses("mass [kg]", found),
        Column("density [kg/m³]", [*map(_density, found), ""]),
        Column("centre of mass [mm]", [*centres, ""]),
        Column("semi-axes [mm]", [*map(_axes, found), ""]),
    ]
    if prior:
        columns += [
            _masses("given mass [kg]", given, "edge"),
            Column("given density [kg/m³]", [*map(_density, given), ""]),
        ]
    return text + columns_table(columns)


def _masses(heading: str, bodies: Sequence[Ellipsoid | None], kind: str = "") -> Column:
    """The mass of each link, and the total in the last row."""
    total = sum(e.mass for e in bodies if e is not None)
    cells: list[Cell] = [DASH if e is None else number(e.mass, 3) for e in bodies]
    return Column(heading, [*cells, (number(total, 4), f"yes {kind}".strip())], kind)


def _density(e: Ellipsoid | None) -> str:
    if e is None or not e.consistent:
        return DASH if e is None else "inconsistent"
    return rounded(e.density) if e.density < 1e6 else number(e.density, 2)


def _axes(e: Ellipsoid | None) -> str:
    if e is None:
        return DASH
    return ", ".join(f"{1000 * a:.0f}" for a in e.semi_axes[::-1]) if e.consistent else "inconsistent"


def _svg(
    view: np.ndarray,
    name: str,
    solid: Sequence[tuple[int, Ellipsoid]],
    outline: Sequence[tuple[int, Ellipsoid]],
    lines: Float[np.ndarray, "k 2 3"],
) -> str:
    """SVG in millimetres, with z upwards; data attributes contain what page.js needs to rotate the picture."""
    centre = np.concatenate(lines).mean(axis=0)
    # equal space in all directions, because the picture can be rotated; ellipsoids beyond 5 times the arm's size are clipped
    arm = max(float(np.linalg.norm(np.concatenate(lines) - centre, axis=1).max()), 1e-3)
    sizes = [float(np.linalg.norm(e.centre - centre) + e.semi_axes[-1]) for _, e in (*solid, *outline)]
    reach = max(arm, min(max(sizes, default=0.0), 5 * arm))
    reach *= 1.05 * _UNIT
    shapes = "".join(_ellipse(e, view, centre, "body") for _, e in solid)
    shapes += "".join(_ellipse(e, view, centre, "prior") for _, e in outline)
    for line in lines:
        (x1, y1), (x2, y2) = (_flat(view, p - centre) for p in line)
        shapes += element("line", "", "bone", x1=x1, y1=y1, x2=x2, y2=y2, data_p=_list(line - centre))
    for line in lines:
        x, y = _flat(view, line[0] - centre)
        shapes += element("circle", "", "joint", cx=x, cy=y, r=f"{reach / 70:.1f}", data_p=_list(line[0] - centre))
    for i, e in solid:
        x, y = _flat(view, e.centre - centre)
        size = f"{reach / 13:.0f}"
        shapes += element("text", str(i + 1), "", x=x, y=y, font_size=size, data_p=_list(e.centre - centre))
    box = f"{-reach:.0f} {-reach:.0f} {2 * reach:.0f} {2 * reach:.0f}"
    label = f"Ellipsoids of the links {name}"
    return (
        f'<svg class="bodies" viewBox="{box}" role="img" aria-label="{label}" data-view="{_list(view)}">{shapes}</svg>'
    )


def _ellipse(e: Ellipsoid, view: np.ndarray, centre: np.ndarray, kind: str) -> str:
    shifted = Ellipsoid(e.mass, e.centre - centre, e.shape)
    at, (a, b), angle = projected(shifted, view)
    turn = f"translate({_UNIT * at[0]:.1f} {-_UNIT * at[1]:.1f}) rotate({-np.degrees(angle):.2f})"
    return element(
        "ellipse",
        "",
        kind,
        rx=f"{_UNIT * a:.1f}",
        ry=f"{_UNIT * b:.1f}",
        transform=turn,
        data_p=_list(shifted.centre),
        data_a=_list(e.shape, 6),
    )


def _flat(view: np.ndarray, p: np.ndarray) -> tuple[str, str]:
    u = _UNIT * (view @ p)
    return f"{float(u[0]):.1f}", f"{float(-u[1]):.1f}"


def _list(x: np.ndarray, digits: int = 4) -> str:
    return " ".join(f"{v:.{digits}g}" for v in np.asarray(x).reshape(-1))


# -- files


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
