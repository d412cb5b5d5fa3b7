"""The identification report: a self-contained HTML file with plots, for screen and print."""

import datetime
import os
from collections.abc import Sequence

from ..errors import OutputError
from ..identification.diagnostics import Finding
from ..identification.result import Evaluation, Identification
from ..io.files import write_whole
from .markup import element, escaped, items, notes_section, page, page_head, section
from .provenance import Provenance, provenance_section
from .sections import (
    details_section,
    errors_section,
    first_screen,
    friction_name,
    friction_section,
    parameters_section,
    seconds_of,
    torques_section,
)
from .verdicts import ErrorLimit, Verdict, verdict


def write_report(
    result: Identification,
    path: str | os.PathLike[str],
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
    limits: Sequence[ErrorLimit] = (),
    provenance: Provenance | None = None,
    findings: Sequence[Finding] | None = None,
    judged: Verdict | None = None,
) -> None:
    """Write the report of an identification as a self-contained HTML file.

    The report states whether the model may be used, for what, how much better it is than the given model, and what is wrong;
    then it shows torques, their errors, friction, parameters, notes, provenance, and folded details. The browser draws the
    plots from data in the file. docs/report.md explains each part.

    Args:
        result: the identification.
        path: the HTML file.
        title: heading; by default, it states the number of joints.
        date: date shown at the top; by default now.
        notes: additional notes, shown with those of the result.
        limits: acceptable errors (`parse_limit`), which determine the verdict if given.
        provenance: input files and settings (`collect_provenance`); by default, only versions are shown.
        findings: suspected faults; by default those of `diagnose_identification`.
        judged: the verdict, which may include predictions of the written model files; by default, a verdict without files
            is computed from `limits` and `findings`.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
        IdentificationError: a limit has neither one value nor one per joint.

    Cost: less than a second, plus compilation of forward dynamics. For many runs and joints, curves are downsampled in a
    way that preserves all peaks, which keeps the file below 1.5 MB.
    """
    judged = judged or verdict(result, limits, findings=findings)
    write_whole(path, report_html(result, judged, title, date, notes, provenance), OutputError)


def report_html(
    result: Identification,
    judged: Verdict,
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
    provenance: Provenance | None = None,
) -> str:
    """The HTML that `write_report` writes."""
    title = title or f"Identification of a robot with {result.chain.n} joint{'s' if result.chain.n > 1 else ''}"
    friction = friction_section(result)
    facts = [("Fitted to", _runs(result.fitted)), ("Checked on", _runs(result.validation))]
    links = ["Torques", "Errors", *(["Friction"] if friction else []), "Parameters", "Notes", "Provenance", "Details"]
    head = page_head(
        "Identification report", title, [fact for fact in facts if fact[1]], date, [(x.lower(), x) for x in links]
    )
    sections = (
        head,
        element("section", first_screen(result, judged)),
        torques_section(result),
        errors_section(result, judged),
        friction,
        parameters_section(result),
        notes_section((*notes, *result.notes)),
        provenance_section(provenance, _facts(result)),
        details_section(result, judged),
    )
    return page(title, sections)


def _runs(evaluations: Sequence[Evaluation]) -> str:
    """Titles and lengths of a few runs, or the number and length of many."""
    if len(evaluations) > 3:
        return f"{len(evaluations)} stretches of logs, {sum(map(seconds_of, evaluations)):.3g} s"
    plain = lambda title: title.removeprefix("fitted: ").removeprefix("validation: ").removeprefix("held out: ")
    return ", ".join(f"{plain(e.title)} ({seconds_of(e):.3g} s)" for e in evaluations)


def _facts(result: Identification) -> list[tuple[str, str]]:
    """What was identified, and how the logs were filtered."""
    topology, s = result.chain.topology, result.fitted[0].samples
    tip = f" to {topology.tip_name}" if topology.tip_name else ""
    facts = [
        ("robot", f"{result.chain.n} joints from {topology.base_name}{tip}: {', '.join(topology.joint_names)}"),
        ("identified", ", ".join(("ten parameters per link", *result.columns.drive_terms))),
        ("friction", friction_name(result)),
        ("filters", f"low-pass {s.position_cutoff:.3g} Hz on positions, {s.torque_cutoff:.3g} Hz on torques"),
        ("samples", f"{sum(len(e.samples) for e in result.fitted)} fitted, at {s.rate:.4g} Hz"),
    ]
    if result.delay is not None:
        listed = ", ".join(f"{1e3 * d:.3g}" for d in result.delay)
        facts.append(("delays", f"torque delays removed, by joint: {listed} ms"))
    return facts


def simple_page(
    title: tuple[str, str],
    facts: Sequence[tuple[str, str]],
    headline: str,
    *sections: str,
    wrong: Sequence[str] | None = None,
    level: str = "",
    notes: Sequence[str] = (),
    date: datetime.datetime | None = None,
    provenance: Provenance | None = None,
) -> str:
    """A page of a kicker and a title, facts, a headline, what is wrong, sections, notes and provenance.

    Args:
        sections: HTML; the first part stands between the headline and what is wrong.
        wrong: faults in plain text; None for a page that does not judge.
    """
    faults = items(wrong) if wrong else element("p", "No fault was found.")
    parts = (
        page_head(*title, facts, date),
        element("p", element("b", escaped(headline)), f"stamp {level}".strip()),
        sections[0],
        "" if wrong is None else section("What is wrong", "problems", faults),
        *sections[1:],
        notes_section(notes),
        provenance_section(provenance),
    )
    return page(title[1], parts)
