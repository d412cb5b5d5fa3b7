"""Export of robot functions to files, and loading of these files without the original code."""

from .._exports import publish as _publish
from .export import (
    ExportedFunction as ExportedFunction,
    export_function as export_function,
    load_exported as load_exported,
)
from .source_files import SourceFunction as SourceFunction, write_source as write_source

_publish(__name__)
