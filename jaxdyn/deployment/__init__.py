"""Export of robot functions to files, and loading of these files without the original code."""

from ._export import export_function as export_function
from ._load import ExportedFunction as ExportedFunction, load_exported as load_exported
from ._write_source import SourceFunction as SourceFunction, write_source as write_source
