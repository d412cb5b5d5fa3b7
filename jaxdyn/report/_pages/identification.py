"""The identification report: a self-contained HTML file with plots and pictures, for screen and print."""

import datetime
import os
from collections.abc import Sequence

from ...errors import OutputError
from ...identification._result import Evaluation, Identification
from ...identification._validation.diagnostics import Finding
from ...io._files import write_whole
from .._markup import element
from .._provenance import Provenance, provenance_section
from .._quality import torque_units
from .._sections.bodies import bodies_section
from .._sections.excitation import excitation_section
from .._sections.files import files_section
from .._sections.friction import friction_name, friction_section, with_friction
from .._sections.overview import overview
from .._sections.parameters import parameter_sections
from .._sections.positions import positions_section
from .._sections.prior import has_inertias, prior_section
from .._sections.spectra import spectra_section
from .._sections.terms import terms_section
from .._sections.torques import errors_section, seconds_of, torques_section
from .._verdict import Assessment, ErrorLimit, assess
from .page import facts_list, made_by, notes_section, page, page_head


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
        excitation_section(result.base, result.wls),
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
