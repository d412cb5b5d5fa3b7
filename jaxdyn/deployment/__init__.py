"""Functions of a robot as files: exported here, loaded and called without the code that made them."""

from ._export import export_function as export_function
from ._load import ExportedFunction as ExportedFunction, load_exported as load_exported
