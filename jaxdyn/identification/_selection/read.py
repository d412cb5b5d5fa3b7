"""Reading of further terms from a TOML file (`read_terms`)."""

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import IdentificationError
from .._friction.memory import Dahl, LoadedSlip, LuGre, MaxwellSlip
from .._friction.position import Cable, Counterbalance
from .._friction.temperature import TemperatureDependent
from .._friction.terms import Asymmetry, FrictionTerm, GearRipple, LoadDependent, PowerViscous, Stribeck

KINDS: dict[str, type[FrictionTerm]] = {
    kind.__name__: kind
    for kind in (
        *(Counterbalance, Cable, GearRipple, Asymmetry, PowerViscous, Stribeck, LoadDependent, TemperatureDependent),
        *(MaxwellSlip, LoadedSlip, Dahl, LuGre),
    )
}


def read_terms(path: str | os.PathLike[str], joints: Sequence[str]) -> tuple[FrictionTerm, ...]:
    """Read further terms for `Terms(further=...)` from a TOML file with one `[[term]]` table per term.

        [[term]]
        kind = "Counterbalance"
        joints = ["joint2"]
        pivot = 0.8
        crank = 0.2
        angle = 1.658
        fitted = ["reserve"]

    The key `kind` is the class of the term. The key `joints` lists the joints that have the term, by name or by number
    counted from 1; without this key, all joints have it. All other keys are fields of the class, in SI units.

    Args:
        path: the file to read.
        joints: the robot's joint names.

    Raises:
        IdentificationError: the file cannot be read, is not TOML, or contains anything other than `[[term]]` tables.
            The error is also raised if a kind, joint or field is unknown or a value is invalid; the message then names
            the file and the term.
    """
    try:
        held = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise IdentificationError(f"{path}: not a valid file of terms: {error}") from None
    terms = held.get("term")
    if set(held) != {"term"} or not isinstance(terms, list) or not terms:
        raise IdentificationError(f"{path}: a file of terms may contain only [[term]] tables")
    return tuple(term_of(f"{path}: term {k + 1}", said, joints) for k, said in enumerate(terms))


def term_of(place: str, said: Mapping[str, Any], joints: Sequence[str]) -> FrictionTerm:
    """Create a term from one TOML table, with its kind, joints and fields.

    Raises:
        IdentificationError: as for `read_terms`.
    """
    rest = dict(said)
    kind = KINDS.get(rest.pop("kind", ""))
    if kind is None:
        raise IdentificationError(f"{place}: the kind is {said.get('kind')!r}; it must be one of {', '.join(KINDS)}")
    named = rest.pop("joints", None)
    if named is not None:
        rest["joints"] = tuple(
            _joint(place, joint, joints) for joint in (named if isinstance(named, list) else [named])
        )
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := [name for name in rest if name not in fields]:
        own = ", ".join(name for name in fields if name != "joints")
        raise IdentificationError(f"{place}: {kind.__name__} has no field {unknown[0]!r}; its fields are {own}")
    missing = [name for name, f in fields.items() if f.default is dataclasses.MISSING and name not in rest]
    if missing:
        raise IdentificationError(f"{place}: {kind.__name__} needs {', '.join(missing)}")
    for name, value in rest.items():
        if fields[name].metadata.get("static"):
            rest[name] = tuple(value) if isinstance(value, list) else value
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise IdentificationError(f"{place}: {name} is {value!r}; it must be a positive number")
        else:
            rest[name] = float(value)
    try:
        return kind(**rest)
    except IdentificationError as error:
        raise IdentificationError(f"{place}: {error}") from None
    except (TypeError, ValueError) as error:
        raise IdentificationError(f"{place}: {kind.__name__}: {error}") from None


def _joint(place: str, joint: Any, joints: Sequence[str]) -> int:
    if joint in joints:
        return list(joints).index(joint) + 1
    if isinstance(joint, int) and not isinstance(joint, bool) and 1 <= joint <= len(joints):
        return joint
    raise IdentificationError(f"{place}: there is no joint {joint!r}; the joints are {', '.join(joints)}")
