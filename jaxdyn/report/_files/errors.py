"""File with a table of torque prediction errors, one row per run and joint."""

import csv
import io
import os

import numpy as np

from ...errors import OutputError
from ...identification._result import Identification
from ...io._files import write_whole
from .._quality import torque_units

COLUMNS = ("run", "fitted", "joint", "unit", "samples", "torque_rms", "rms", "rre_percent", "rre_moving_percent")
RAW = ("raw_rms", "raw_rre_percent", "raw_rre_moving_percent")


def errors_csv(result: Identification) -> str:
    """The text that `write_errors` writes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *RAW))
    units = torque_units(result.chain)
    for run, fitted in (*((e, "no") for e in result.validation), *((e, "yes") for e in result.fitted)):
        size, fit, raw = np.sqrt((run.samples.tau**2).mean(0)), run.fit, run.raw
        for j, joint in enumerate(result.rows):
            numbers = (size[j], *(x[j] for f in (fit, raw) if f for x in (f.rms, f.relative, f.relative_moving)))
            numbers += (np.nan,) * (len(RAW) if raw is None else 0)
            cells = ("" if np.isnan(x) else repr(float(x)) for x in numbers)
            writer.writerow([run.title, fitted, joint, units[j], fit.samples, *cells])
    return text.getvalue()


def write_errors(result: Identification, path: str | os.PathLike[str]) -> None:
    """Write the torque errors of the report as a CSV file with one row per run and joint.

    The columns are:

    - run, fitted (yes or no), joint, unit (of the torque), samples;
    - torque_rms: RMS of the measured torque;
    - rms: RMS of the measured minus the predicted torque;
    - rre_percent: rms as a percentage of torque_rms;
    - rre_moving_percent: rre_percent over only the samples at which the joint moves; empty if it never moves;
    - raw_rms, raw_rre_percent and raw_rre_moving_percent: rms, rre_percent and rre_moving_percent relative to the torque
      as logged, without filtering; empty if unknown.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    write_whole(path, errors_csv(result), OutputError)
