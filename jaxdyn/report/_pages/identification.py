"""The report: one HTML file, pictures included, that needs nothing else and can be read on screen and on paper."""

import datetime
import os
from collections.abc import Sequence

from ...errors import OutputError
from ...identification._result import Evaluation, Identification
from ...io._files import write_whole
from .._provenance import Provenance, provenance_section
from .._quality import torque_units
from .._sections.bodies import bodies_section
from .._sections.excitation import excitation_section
from .._sections.friction import friction_section
from .._sections.overview import overview
from .._sections.parameters import parameter_sections
from .._sections.positions import positions_section
from .._sections.prior import against_prior, has_inertias, prior_section
from .._sections.spectra import spectra_section
from .._sections.torques import errors_section, pictures_section
from .._verdict import ErrorLimit, verdict
from .page import made_by, notes_section, page, page_head


def write_report(
    result: Identification,
    path: str | os.PathLike[str],
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
    limits: Sequence[ErrorLimit] = (),
    provenance: Provenance | None = None,
) -> None:
    """Write the report of an identification as one HTML file without any reference outside itself.

    It holds a verdict in plain words; the errors of predicted torques joint by joint, on fitted and on unseen motion and
    beside the given model's; their pictures over time; positions simulated again along the measured torques; spectra of
    what is left; friction over velocity; the base parameters with standard deviations; what the motion excites; the full
    set; the named null space; links drawn as ellipsoids; and what was noticed in the logs. docs/report.md explains each part.

    Args:
        title: heading; the number of joints where None.
        date: shown in the head; now where None.
        notes: further ones, shown with those of the result.
        limits: what errors are good enough (`parse_limit`); the verdict is by them where there are any.
        provenance: input files and settings (`collect_provenance`); versions alone where None.

    Raises:
        OutputError: the file cannot be written; what was there before is untouched.
        IdentificationError: a limit has the wrong number of numbers.

    Cost: some 0.1 s a picture, one a joint and run and three more a joint, and compiling forward dynamics; pictures thin out
    to keep the file under 3 MB.
    """
    write_whole(path, report_html(result, title, date, notes, limits, provenance), OutputError)


def report_html(
    result: Identification,
    title: str | None = None,
    date: datetime.datetime | None = None,
    notes: Sequence[str] = (),
    limits: Sequence[ErrorLimit] = (),
    provenance: Provenance | None = None,
) -> str:
    """The text of `write_report`."""
    title = title or f"Identification of a robot with {result.chain.n} joint{'s' if result.chain.n > 1 else ''}"
    notes = (*notes, *result.notes)
    units, known = torque_units(result.chain), has_inertias(result)
    prior, held = against_prior(result), result.validation or result.fitted
    sections = (
        overview(result, verdict(result, limits, prior)),
        errors_section(result),
        prior_section(result, prior),
        pictures_section(result),
        positions_section(result, known),
        spectra_section(held, result.chain.joint_names, units),
        friction_section(result.chain, result.fitted, units, result.friction),
        parameter_sections(result),
        excitation_section(result.base, result.wls),
        bodies_section(result.chain, result.prior if known else None, result.fitted[0].samples),
        notes_section(notes),
        provenance_section(provenance),
    )
    links = [link for link in _LINKS if known or link[0] != "prior"]
    head = page_head("Identification report", title, [*_facts(result), *made_by(date)], links)
    return page(title, (head, *sections))


_LINKS = (
    ("summary", "Summary"),
    ("errors", "Errors by joint"),
    ("prior", "Against the given model"),
    ("torques", "Torques"),
    ("positions", "Positions"),
    ("spectra", "Spectra"),
    ("friction", "Friction"),
    ("parameters", "Base parameters"),
    ("full", "Full set"),
    ("unknown", "What the data cannot tell"),
    ("excitation", "Excitation"),
    ("bodies", "Bodies"),
    ("notes", "Notes"),
    ("provenance", "Where this comes from"),
)


def _facts(result: Identification) -> list[tuple[str, str]]:
    topology = result.chain.topology
    return [
        ("Robot", f"{result.chain.n} joints from {topology.base_name} to {topology.tip_name}"),
        ("Joints", ", ".join(topology.joint_names)),
        *(("Fitted to", _described(e)) for e in result.fitted),
        *(("Checked on", _described(e)) for e in result.validation),
        ("Identified", f"{', '.join(('ten parameters a link', *result.columns.drive_terms))}"),
        *((k, v) for k, v in [("Delays", _delays(result))] if v),
    ]


def _delays(result: Identification) -> str:
    if result.delay is None:
        return ""
    listed = ", ".join(f"{1e3 * d:.3g}" for d in result.delay)
    return f"torques taken {listed} ms later than logged, joint by joint"


def _described(evaluation: Evaluation) -> str:
    s = evaluation.samples
    title = evaluation.title.removeprefix("fitted: ")
    seconds = sum(float(s.t[stop - 1] - s.t[start]) for start, stop in s.segments)
    pieces = f" in {len(s.segments)} pieces" if len(s.segments) > 1 else ""
    cutoffs = f"low-pass {s.position_cutoff:.3g} Hz on positions, {s.torque_cutoff:.3g} Hz on torques"
    return f"{title} ({len(s.t)} samples at {s.rate:.4g} Hz, {seconds:.3g} s{pieces}; {cutoffs})"
