"""Identification results as HTML pages, tables and text."""

from ._files.errors import write_errors as write_errors
from ._files.parameters import write_parameters as write_parameters
from ._files.results import write_all as write_all
from ._pages.comparison import write_comparison as write_comparison
from ._pages.identification import write_report as write_report
from ._pictures.ellipsoids import Ellipsoid as Ellipsoid, equivalent_ellipsoid as equivalent_ellipsoid
from ._provenance import InputFile as InputFile, Provenance as Provenance, collect_provenance as collect_provenance
from ._terminal.comparison import print_comparison as print_comparison
from ._terminal.identification import print_summary as print_summary
from ._uses import UseVerdict as UseVerdict
from ._verdict import (
    ErrorLimit as ErrorLimit,
    Verdict as Verdict,
    VerdictCheck as VerdictCheck,
    parse_limit as parse_limit,
    verdict as verdict,
)
