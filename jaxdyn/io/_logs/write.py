"""Write logs as text files."""

import io
import os

import numpy as np

from ...errors import OutputError
from .._files import write_whole
from .log import Log


def write_log(path: str | os.PathLike[str], log: Log) -> None:
    """Write a log atomically as a CSV table that `read_log` can read.

    The columns are t [s], q1.. [rad or m], tau1.. [N m or N] and, if available, qd1.. [rad/s or m/s] and temperature1.. [°C].
    Numbers have ten significant digits.

    Raises:
        OutputError: the file cannot be written; an existing file is left unchanged.
    """
    blocks = {"q": log.q, "qd": log.qd, "tau": log.tau, "temperature": log.temperature}
    there = {name: block for name, block in blocks.items() if block is not None}
    header = ",".join(["t", *(f"{name}{j + 1}" for name in there for j in range(log.n))])
    text = io.StringIO()
    np.savetxt(text, np.column_stack([log.t, *there.values()]) + 0.0, "%.10g", ",", header=header, comments="")
    write_whole(path, text.getvalue(), OutputError)
