"""Short text representations of objects, and conversion to pandas tables."""

import html
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._jax_compat import Tracer


class Summary:
    """Base class of objects whose `__repr__` is a short text; notebooks preserve its line breaks."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def lines(title: str, *rows: str) -> str:
    """A title with indented rows below it; empty rows are omitted."""
    return "\n  ".join([title, *(row for row in rows if row)])


def names(found: tuple[str, ...], most: int = 8) -> str:
    """Join names by commas; if there are more than `most`, show only the first `most` and the total number."""
    return ", ".join(found[:most]) + (f", ... ({len(found)} in all)" if len(found) > most else "")


def number(x: Any, unit: str = "", digits: int = 4) -> str:
    """Format a number with its unit; show a batch by its shape, and a traced value as "traced"."""
    if isinstance(x, Tracer):
        return "traced"
    x = np.asarray(x)
    return f"{x.item():.{digits}g}{f' {unit}' if unit else ''}" if x.size == 1 else f"batch of shape {x.shape}"


def data_frame(columns: Mapping[Any, Any], index: Any = None, name: str = "") -> Any:
    """Create a `pandas.DataFrame` from columns, with an index called `name`.

    If `index` is None, the rows are numbered.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
    except ImportError:
        raise ImportError("tables require pandas, which is not installed: pip install pandas") from None
    rows = None if index is None else pandas.Index(np.asarray(index), name=name or None)
    return pandas.DataFrame(dict(columns), index=rows)


def numbered(name: str, block: Any) -> dict[str, np.ndarray]:
    """Columns name1, name2, ... of an array with one row per sample."""
    return {f"{name}{j + 1}": column for j, column in enumerate(np.asarray(block).T)}
