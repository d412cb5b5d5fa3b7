"""The report: one HTML file, pictures included, that needs nothing else and can be read on screen and on paper."""

import datetime
import importlib.metadata
import importlib.resources
import os
from collections.abc import Sequence

import numpy as np

from ..identification.identify import Evaluation, Identification
from ..identification.validation import MOVING, Fit
from .files import write_output
from .markup import element, escaped, items, number, rounded, table, tile
from .parameter_sections import impossible_section, parameter_sections
from .plots import torque_svg
from .quality import FAIR, GOOD, pooled, torque_units

MOST_PICTURES = 100
_CURVES = 2_000_000  # bytes that all curves of all pictures may take
_POINT = 13 * 3  # bytes a point of three curves

REFIT = "the held-out part was predicted by a fit without it; the written model was then fitted to everything"


def write_report(
    result: Identification,
    path: str | os.PathLike[str],
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write the report of an identification as one HTML file without any reference outside itself.

    It holds the errors of predicted torques joint by joint, on fitted and on unseen motion; their pictures over time;
    the base parameters with standard deviations; the full set; what is not identifiable; links that no body can be; and
    what was noticed in the logs.

    Args:
        title: heading; the number of joints where None.
        date: shown in the head; now where None.
        notes: further ones, shown with those of the result.

    Raises:
        OutputError: the file cannot be written; what was there before is untouched.

    Cost: some 0.2 s a picture, one a joint and run; pictures thin out to keep the file under 3 MB.
    """
    write_output(path, report_html(result, title, date, notes))


def report_html(
    result: Identification,
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The text of `write_report`."""
    title = title or f"Identification of a robot with {result.chain.n} joint{'s' if result.chain.n > 1 else ''}"
    notes = (*notes, *result.notes)
    style, script = (
        (importlib.resources.files("jaxdyn.report") / name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    sections = (
        _head(result, title, date or datetime.datetime.now().astimezone()),
        _summary(result),
        _errors(result),
        _pictures(result),
        parameter_sections(result),
        element("h2", "Notes on the data", id="notes") + (items(notes) if notes else element("p", "None.")),
        element("footer", "SI units and radians throughout. Made by jaxdyn."),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _head(result: Identification, title: str, date: datetime.datetime) -> str:
    topology = result.chain.topology
    facts = [
        ("Robot", f"{result.chain.n} joints from {topology.base_name} to {topology.tip_name}"),
        ("Joints", ", ".join(topology.joint_names)),
        *(("Fitted to", _described(e)) for e in result.fitted),
        *(("Checked on", _described(e)) for e in result.validation),
        ("Identified", f"{', '.join(('ten parameters a link', *result.columns.drive_terms))}"),
        ("Date", date.strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("Made by", f"jaxdyn {_version()}"),
    ]
    links = (
        ("summary", "Summary"),
        ("errors", "Errors by joint"),
        ("torques", "Torques"),
        ("parameters", "Base parameters"),
        ("full", "Full set"),
        ("unknown", "What the data cannot tell"),
        ("notes", "Notes"),
    )
    return element(
        "header",
        element("p", "Identification report", "kicker")
        + element("h1", escaped(title))
        + element("dl", "".join(element("dt", a) + element("dd", escaped(b)) for a, b in facts), "about")
        + element("nav", "".join(element("a", text, href=f"#{key}") for key, text in links)),
    )


def _version() -> str:
    try:
        return importlib.metadata.version("jaxdyn")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _described(evaluation: Evaluation) -> str:
    s = evaluation.samples
    title = evaluation.title.removeprefix("fitted: ")
    seconds = sum(float(s.t[stop - 1] - s.t[start]) for start, stop in s.segments)
    pieces = f" in {len(s.segments)} pieces" if len(s.segments) > 1 else ""
    cutoffs = f"low-pass {s.position_cutoff:.3g} Hz on positions, {s.torque_cutoff:.3g} Hz on torques"
    return f"{title} ({len(s.t)} samples at {s.rate:.4g} Hz, {seconds:.3g} s{pieces}; {cutoffs})"


def _summary(result: Identification) -> str:
    fitted, unseen = pooled(result.fitted), pooled(result.validation)
    assert fitted is not None
    best = unseen or fitted
    moving = np.where(np.isnan(best.relative_moving), -1, best.relative_moving)
    worst = int(np.argmax(moving))
    if unseen:
        text = (
            f"Torques of motion that was not fitted are predicted with a total relative error of "
            f"{rounded(unseen.total_relative)} %; those of the fitted motion with {rounded(fitted.total_relative)} %."
        )
    else:
        text = (
            "Torques of the fitted motion are predicted with a total relative error of "
            f"{rounded(fitted.total_relative)} %; none were held out."
        )
    if moving[worst] >= 0 and result.chain.n > 1:
        text += (
            f" The worst joint is {result.chain.joint_names[worst]}, with {rounded(moving[worst])} % while it moves."
        )
    if unseen and unseen.total_relative > 2 * fitted.total_relative:
        text += (
            " Unseen motion is predicted much worse than the fitted one: it goes where the fitted data did not, or the"
            " model follows their noise. Fit richer motion or fewer terms."
        )
    relative = np.nan_to_num(result.wls.relative_standard_deviations, nan=np.inf)
    size, links = result.base.size, len(result.impossible)
    tiles = [
        tile(f"{rounded(unseen.total_relative)} %", "torque error, not fitted", f"{unseen.samples} samples")
        if unseen
        else "",
        tile(f"{rounded(fitted.total_relative)} %", "torque error, fitted", f"{fitted.samples} samples"),
        tile(str(size), "base parameters", f"of {len(result.names)} parameters"),
        tile(
            f"{int((relative <= GOOD).sum())} of {size}",
            "well determined",
            f"s.d. up to {GOOD:g} %; {int(((relative > GOOD) & (relative <= FAIR)).sum())} more up to {FAIR:g} %",
        ),
        tile(
            number(result.wls.condition, 3),
            "condition number",
            f"weighted; {number(result.wls.scaled_condition, 3)} with unit columns",
        ),
        tile(str(links), "impossible links", f"of {result.chain.n}", "warn" if links else ""),
    ]
    refit = element("p", REFIT[0].upper() + REFIT[1:] + ".") if result.validation_refit and unseen else ""
    return (
        element("h2", "Summary", id="summary")
        + element("p", escaped(text), "verdict")
        + element("div", "".join(tiles), "tiles")
        + refit
        + impossible_section(result)
    )


def _errors(result: Identification) -> str:
    groups = [
        (name, fit)
        for name, fit in (("not fitted", pooled(result.validation)), ("fitted", pooled(result.fitted)))
        if fit
    ]
    units = torque_units(result.chain)
    tau = np.concatenate([e.samples.tau for e in (*result.fitted, *result.validation)])
    size = np.sqrt((tau**2).mean(0))
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
            "has a large RRE with a small error.",
            "faint",
        )
    )


def _pictures(result: Identification) -> str:
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
