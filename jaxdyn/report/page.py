"""Parts shared by all pages: style, script, heading, links and notes.

The identification report: a self-contained HTML file with plots and pictures, for screen and print."""

import datetime
import importlib.resources
import os
from collections.abc import Sequence

from .._version import version_of
from ..errors import OutputError
from ..identification.diagnostics import Finding
from ..identification.result import Evaluation, Identification
from ..io.files import write_whole
from .fit_sections import (
    errors_section,
    excitation_section,
    friction_name,
    friction_section,
    overview,
    positions_section,
    seconds_of,
    spectra_section,
    terms_section,
    torques_section,
    with_friction,
)
from .markup import element, escaped, items, section
from .parameter_sections import bodies_section, files_section, has_inertias, parameter_sections, prior_section
from .provenance import Provenance, provenance_section
from .quality import torque_units
from .verdicts import Assessment, ErrorLimit, assess


def page(title: str, sections: Sequence[str]) -> str:
    """A complete HTML file, including style and script, around sections in HTML."""
    style, script = (
        (importlib.resources.files("jaxdyn.report") / name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    footer = element("footer", "SI units and radians throughout. Made by jaxdyn.")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join((*sections, footer))
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def page_head(
    kicker: str, title: str, facts: Sequence[tuple[str, str]], links: Sequence[tuple[str, str]] = (), more: str = ""
) -> str:
    """The top of a page: heading, facts, and links to sections.

    Args:
        facts: pairs of plain texts.
        links: id and title of each section.
        more: further facts as HTML.
    """
    return element(
        "header",
        element("p", escaped(kicker), "kicker")
        + element("h1", escaped(title))
        + facts_list(facts)
        + more
        + (element("nav", "".join(element("a", text, href=f"#{key}") for key, text in links)) if links else ""),
    )


def facts_list(facts: Sequence[tuple[str, str]]) -> str:
    """Pairs of plain texts, one below the other."""
    return element("dl", "".join(element("dt", a) + element("dd", escaped(b)) for a, b in facts), "about")


def made_by(date: datetime.datetime | None) -> list[tuple[str, str]]:
    """Date (by default now) and version, the last facts at the top of a page."""
    date = date or datetime.datetime.now().astimezone()
    return [("Date", date.strftime("%Y-%m-%d %H:%M %Z").strip()), ("Made by", f"jaxdyn {version_of()}")]


SHOWN = 4  # number of notes shown; the others are collapsed


def notes_section(notes: Sequence[str]) -> str:
    """Section with notes on the logs; if there are many, all but the first four are collapsed."""
    each = list(dict.fromkeys(notes))
    more = ""
    if len(each) > SHOWN + 2:
        more = element("details", element("summary", f"{len(each) - SHOWN} more") + items(each[SHOWN:]))
        each = each[:SHOWN]
    return section("Notes on the data", "notes", items(each) if each else element("p", "None."), more)


# -- identification


def write_report(
    result: Identification,
    path: str | os.PathLike[str],
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
    limits: Sequence[ErrorLimit] = (),
    provenance: Provenance | None = None,
    findings: Sequence[Finding] | None = None,
    assessed: Assessment | None = None,
) -> None:
    """Write the report of an identification as a self-contained HTML file.

    The report contains:

    - a verdict in plain words;
    - errors of predicted torques by joint and by run, on fitted and held-out motion, compared with the given model;
    - plots of torques over time, of positions re-simulated from the measured torques, of friction versus velocity, and
      of residual spectra;
    - base parameters with standard deviations and correlations, the full parameter set, and the null space;
    - the excitation of the base parameters;
    - links drawn as ellipsoids, with masses and densities;
    - notes on the logs, and the provenance of the result.

    The browser draws the plots from data in the file. docs/report.md explains each part.

    Args:
        result: the identification.
        path: the HTML file.
        title: heading; by default, it states the number of joints.
        date: date shown at the top; by default now.
        notes: additional notes, shown with those of the result.
        limits: acceptable errors (`parse_limit`), which determine the verdict if given.
        provenance: input files and settings (`collect_provenance`); by default, only versions are shown.
        findings: suspected faults, for the summary and the verdict; by default those of `diagnose_identification`.
        assessed: the assessment, including predictions of the written model files; by default, an assessment without
            files is computed.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
        IdentificationError: a limit has neither one value nor one per joint.

    Cost: less than a second, plus compilation of forward dynamics. For many runs and joints, curves are downsampled in a
    way that preserves all peaks, which keeps the file below 1.5 MB.
    """
    report = report_html(result, title, date, notes, limits, provenance, findings, assessed)
    write_whole(path, report, OutputError)


def report_html(
    result: Identification,
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
    limits: Sequence[ErrorLimit] = (),
    provenance: Provenance | None = None,
    findings: Sequence[Finding] | None = None,
    assessed: Assessment | None = None,
) -> str:
    """The HTML that `write_report` writes."""
    title = title or f"Identification of a robot with {result.chain.n} joint{'s' if result.chain.n > 1 else ''}"
    notes = (*notes, *result.notes)
    units, known = torque_units(result.chain), has_inertias(result)
    assessed = assessed or assess(result, limits, findings=findings)
    prior, files, held = assessed.prior, assessed.files, result.validation or result.fitted
    rubs = bool(with_friction(result.chain, result.fitted))
    sections = (
        overview(result, assessed.verdict, assessed.findings),
        errors_section(result),
        terms_section(result),
        files_section(result, files),
        prior_section(result, prior),
        torques_section(result),
        positions_section(result, assessed.simulated, known),
        element(
            "div",
            (element("section", friction_section(result.chain, result.fitted, units, result.friction)) if rubs else "")
            + element("section", spectra_section(held, result.rows, units)),
            "pair",
        ),
        parameter_sections(result),
        excitation_section(result.base, result.estimate),
        bodies_section(
            result.chain,
            result.prior if known else None,
            result.fitted[0].samples,
            result.total_mass if result.has_free_base else None,
        ),
        notes_section(notes),
        provenance_section(provenance),
    )
    shown = (("friction", rubs), ("prior", known), ("files", files), ("terms", result.choice))
    missing = {name for name, there in shown if not there}
    links = [link for link in _LINKS if link[0] not in missing]
    head = page_head("Identification report", title, [*_facts(result), *made_by(date)], links, _runs(result))
    return page(title, (head, *sections))


_LINKS = (
    ("summary", "Summary"),
    ("errors", "Errors by joint"),
    ("terms", "Terms tried"),
    ("files", "What each file predicts"),
    ("prior", "Against the given model"),
    ("torques", "Torques"),
    ("positions", "Positions"),
    ("friction", "Friction"),
    ("spectra", "Spectra"),
    ("parameters", "Base parameters"),
    ("correlation", "Correlation"),
    ("full", "Full set"),
    ("unknown", "Not identifiable"),
    ("excitation", "Excitation"),
    ("bodies", "Bodies"),
    ("notes", "Notes"),
    ("provenance", "Provenance"),
)


def _facts(result: Identification) -> list[tuple[str, str]]:
    topology = result.chain.topology
    tip = f" to {topology.tip_name}" if topology.tip_name else ""
    return [
        ("Robot", f"{result.chain.n} joints from {topology.base_name}{tip}"),
        ("Joints", ", ".join(topology.joint_names)),
        ("Identified", f"{', '.join(('ten parameters per link', *result.columns.drive_terms))}"),
        ("Friction", friction_name(result)),
        *((k, v) for k, v in [("Delays", _delays(result))] if v),
    ]


def _runs(result: Identification) -> str:
    """List of the fitted and the held-out runs, collapsed if there are many."""
    runs = [("Fitted to", e) for e in result.fitted] + [("Checked on", e) for e in result.validation]
    listed = facts_list([(role, _described(e)) for role, e in runs])
    if len(runs) < 4:
        return listed
    counts = f"Fitted to {len(result.fitted)} and checked on {len(result.validation)} stretches of logs"
    return element("details", element("summary", counts) + listed)


def _delays(result: Identification) -> str:
    if result.delay is None:
        return ""
    listed = ", ".join(f"{1e3 * d:.3g}" for d in result.delay)
    return f"torque delays removed, by joint: {listed} ms"


def _described(evaluation: Evaluation) -> str:
    s = evaluation.samples
    title = evaluation.title.removeprefix("fitted: ")
    seconds = seconds_of(evaluation)
    pieces = f" in {len(s.segments)} pieces" if len(s.segments) > 1 else ""
    cutoffs = f"low-pass {s.position_cutoff:.3g} Hz on positions, {s.torque_cutoff:.3g} Hz on torques"
    return f"{title} ({len(s.t)} samples at {s.rate:.4g} Hz, {seconds:.3g} s{pieces}; {cutoffs})"
