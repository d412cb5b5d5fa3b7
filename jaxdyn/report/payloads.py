"""Payloads and calibrated gains as JSON files, as text for a terminal, and as a page."""

import dataclasses
import datetime
import json
import math
import os
from typing import Any

import numpy as np
from scipy import stats

from ..errors import IdentificationError, OutputError
from ..identification.columns import INERTIAL_NAMES
from ..identification.factors import bounded_intervals
from ..identification.payload import DriveGains, Payload
from ..io.files import write_whole
from ..model.chain import Chain, coordinate_names, torque_units
from .markup import (
    Column,
    columns_table,
    element,
    faint,
    names_column,
    number,
    rounded,
    section,
    tile,
    value_columns,
    with_deviation,
)
from .page import simple_page
from .provenance import Provenance

_DERIVED = ("mass", "com", "com_deviations", "inertia", "inertia_deviations", "standard_deviations")
_IN_FILE = {"inertia": "inertia_about_com", "body": "nearest_consistent", "calibrated": "gains_calibrated"}


def payload_json(payload: Payload) -> str:
    """A payload as JSON text, in SI units and in the axes of its `frame`; numbers that are not determined are null."""
    about = {"units": "SI", "names": list(INERTIAL_NAMES), "mass_deviation": payload.standard_deviations[0]}
    for name in (*(field.name for field in dataclasses.fields(payload)), *_DERIVED):
        about[_IN_FILE.get(name, name)] = getattr(payload, name)
    return json.dumps({name: _plain(x) for name, x in about.items()}, indent=1, allow_nan=False) + "\n"


def _plain(x):
    """Arrays as lists, and NaN and infinity, which JSON lacks, as None."""
    x = x.tolist() if isinstance(x, np.ndarray | np.generic) else x
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def gains_json(gains: DriveGains) -> str:
    """Calibrated gains as JSON text, for `read_gains`."""
    fields = {field.name: np.asarray(getattr(gains, field.name)).tolist() for field in dataclasses.fields(gains)}
    return json.dumps(fields | {"standard_deviations": gains.standard_deviations.tolist()}, indent=1) + "\n"


def read_gains(path: str | os.PathLike[str]) -> DriveGains:
    """Read calibrated gains from a file written by `jaxdyn payload --mass`.

    Raises:
        IdentificationError: the file cannot be read or does not contain gains.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        n, notes = len(content["factors"]), content["notes"]
        shapes = {"covariance": (n, n), "payload": (10,), "common": (), "common_deviation": ()}
        names = [field.name for field in dataclasses.fields(DriveGains) if field.name != "notes"]
        found = {name: np.array(content[name], bool if name == "determined" else float) for name in names}
        for name, x in found.items():
            if x.shape != shapes.get(name, (n,)) or not (name == "covariance" or np.all(np.isfinite(x))):
                raise ValueError(f"{name} (shape {x.shape}) has the wrong shape or is not finite")
        if not (found["factors"] > 0).all():
            raise ValueError("a factor is not positive")
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            raise ValueError("its notes are not a list of strings")
        fields: dict[str, Any] = {name: x if x.ndim else float(x) for name, x in found.items()}
        return DriveGains(**fields, notes=tuple(notes))
    except OSError as error:
        raise IdentificationError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IdentificationError(
            f"{os.fspath(path)}: this is not a file with calibrated gains, as written by --mass: {error}"
        ) from None


def payload_lines(payload: Payload, chain: Chain) -> list[str]:
    """A payload as a few lines for the terminal: its summary, the inertia about the centre of mass, and held-out errors."""
    entries = (("Ixx", 0, 0), ("Ixy", 0, 1), ("Iyy", 1, 1), ("Ixz", 0, 2), ("Iyz", 1, 2), ("Izz", 2, 2))
    inertia, deviation = payload.inertia, payload.inertia_deviations
    each = ", ".join(f"{name} {inertia[a, b]:.3g} +- {deviation[a, b]:.2g}" for name, a, b in entries)
    lines = [*str(payload).splitlines()[:2], f"  inertia about the centre of mass: {each} kg m^2"]
    if payload.held_out is not None:
        of_joints = zip(coordinate_names(chain), payload.held_out.tolist(), torque_units(chain), strict=True)
        each = ", ".join(f"{name} {rounded(error)} {unit}" for name, error, unit in of_joints)
        lines.append(f"  held-out torque errors of the joints, RMS: {each}")
    return [*lines, *(f"note: {note}" for note in payload.notes)]


def gains_lines(gains: DriveGains, chain: Chain) -> list[str]:
    """Calibrated gains as lines for the terminal, one per joint."""
    lines = [f"gains from the known payload; common factor {gains.common:.4f} +- {gains.common_deviation:.4f}"]
    joints, units = coordinate_names(chain), torque_units(chain)
    width = max(map(len, joints))
    for j, name in enumerate(joints):
        caveat = "" if gains.determined[j] else "  (not determined; ratio to the other gains unchanged)"
        lines.append(
            f"  {name:{width}s}  {gains.gains[j]:9.4f} +- {gains.standard_deviations[j]:.4f}  factor "
            f"{gains.factors[j]:.4f}  payload torque {gains.payload_torque[j]:.3g} {units[j]} RMS{caveat}"
        )
    return [*lines, *(f"note: {note}" for note in gains.notes)]


# -- page


def write_payload_report(
    payload: Payload,
    chain: Chain,
    path: str | os.PathLike[str],
    date: datetime.datetime | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a payload as a self-contained HTML file: parameters with intervals, torques and errors of the joints, notes.

    Args:
        payload: result of `identify_payload`.
        chain: the arm that carries the payload.
        path: the HTML file.
        date: date shown at the top; by default now.
        provenance: input files and settings (`collect_provenance`).

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    mass, deviation = with_deviation(payload.mass, float(payload.standard_deviations[0]))
    tiles = tile(f"{mass} kg", f"mass, ± {deviation} kg", "one standard deviation")
    for axis, *centre in zip("xyz", payload.com.tolist(), payload.com_deviations.tolist(), strict=True):
        place, unsure = with_deviation(*(1000 * x for x in centre))
        tiles += tile(f"{place} mm", f"centre of mass, {axis}", f"± {unsure} mm")
    unknown = [name for name, sure in zip(INERTIAL_NAMES, payload.determined, strict=True) if not sure]
    wrong = [f"The runs do not determine {', '.join(unknown)}."] if unknown else []
    wrong += [] if payload.consistent else ["The estimate is not physically consistent: use the consistent body."]
    values, deviations = payload.parameters.tolist(), payload.standard_deviations.tolist()
    reach = float(stats.t.ppf(0.975, payload.degrees)) * payload.standard_deviations
    bounds = [[0.0 if name in ("m", "Ixx", "Iyy", "Izz") else -np.inf, np.inf] for name in INERTIAL_NAMES]
    intervals = bounded_intervals(payload.parameters, reach, np.array(bounds))
    units = ["kg", *["kg m"] * 3, *["kg m²"] * 6]
    parameters = [
        names_column("parameter", INERTIAL_NAMES),
        *value_columns(values, deviations, intervals.tolist()),
        Column("unit", units, "text"),
        Column("consistent body", [*map(number, payload.body.tolist())], "edge"),
    ]
    held = np.full(chain.nv, np.nan) if payload.held_out is None else payload.held_out
    joints = [
        *(names_column("joint", coordinate_names(chain)), Column("unit", torque_units(chain), "text")),
        Column("payload torque, RMS", [*map(rounded, payload.payload_torque.tolist())]),
        Column("noise", [*map(rounded, payload.noise.tolist())]),
        Column("held-out error, RMS", [*map(rounded, held.tolist())]),
    ]
    about = "Mass, first moments m c, and inertia about the frame's origin, in the axes of the frame."
    text = simple_page(
        ("Payload report", f"Payload at {payload.frame}"),
        [],
        f"The payload at {payload.frame} has a mass of {mass} ± {deviation} kg{payload.scale_caveat}.",
        element("div", tiles, "tiles"),
        section("Torques and errors", "errors", columns_table(joints)),
        section("Parameters", "parameters", faint(about), columns_table(parameters)),
        wrong=wrong,
        level="fair" if wrong or not payload.calibrated else "good",
        notes=payload.notes,
        date=date,
        provenance=provenance,
    )
    write_whole(path, text, OutputError)
