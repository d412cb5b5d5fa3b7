"""Identification results as HTML pages, tables and text."""

from .._exports import publish as _publish
from .comparison import print_comparison as print_comparison, write_comparison as write_comparison
from .files import write_errors as write_errors, write_parameters as write_parameters
from .page import write_report as write_report
from .payloads import write_payload_report as write_payload_report
from .pictures import Ellipsoid as Ellipsoid, equivalent_ellipsoid as equivalent_ellipsoid
from .provenance import (
    InputFile as InputFile,
    Provenance as Provenance,
    collect_provenance as collect_provenance,
)
from .results import print_summary as print_summary, write_all as write_all
from .servos import write_servos as write_servos
from .verdicts import (
    ErrorLimit as ErrorLimit,
    UseVerdict as UseVerdict,
    Verdict as Verdict,
    VerdictCheck as VerdictCheck,
    parse_limit as parse_limit,
    verdict as verdict,
)

_publish(__name__)
