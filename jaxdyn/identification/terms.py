"""`Terms`: the torque terms that `identify` fits beside the links' inertias, and terms from tables of a settings file."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .._summary import Summary
from ..errors import IdentificationError
from ..model.chain import Chain
from .columns import DRIVE_TERMS, Columns, ExtraColumns, all_columns
from .friction_terms import FrictionTerm, term_kinds

PartName = Literal["filter", "friction", "springs", "delays"]
PARTS: tuple[PartName, ...] = ("filter", "friction", "springs", "delays")


@dataclasses.dataclass(frozen=True, repr=False)
class Terms(Summary):
    """Torque terms to identify in addition to the ten inertial parameters per link.

    Terms are either specified by the user or selected from the log by cross-validation (`choose_terms`). By default,
    `Terms()` contains the usual drive terms and allows all kinds of terms to be selected. `Terms(choose=())` is the
    plain model, which contains only the drive terms and is linear in its parameters.

    Attributes:
        drives: the drive terms to identify, any of armature, viscous, coulomb and offset. The parameters of the other
            drive terms are taken from the chain; if they contain friction, no friction is selected.
        further: additional terms of single joints (`MaxwellSlip`, `Counterbalance`, `Cable`, ...), with initial values.
            Their nonlinear parameters are fitted at the sample rate of the log.
        extra: regressor columns that affect several joints (`coupled_drive`) or are user-defined (`ExtraColumns`). The
            default is the chain's springs and the motors of its transmission (`motor_terms`).
        choose: kinds of terms to select by cross-validation. "filter" selects the cutoff of the low-pass. The other
            kinds are selected for each joint: "friction" (which replaces viscous, coulomb and offset), "springs", and
            "delays" of the torque.
        dead_zone: speed |qd_j| below which samples are excluded from the equations of joint j [rad/s or m/s]. Near
            standstill, dry friction can take any value up to fc in magnitude, which the drive terms cannot describe.

    Raises:
        IdentificationError: a drive term or a kind in `choose` is unknown, an element of `further` is not a
            `FrictionTerm`, or the dead zone is negative or not finite.
    """

    drives: tuple[Literal["armature", "viscous", "coulomb", "offset"], ...] = DRIVE_TERMS
    further: tuple[FrictionTerm, ...] = ()
    extra: tuple[ExtraColumns, ...] | None = None
    choose: tuple[PartName, ...] = PARTS
    dead_zone: float = 0.0

    def __post_init__(self):
        if unknown := [part for part in self.choose if part not in PARTS]:
            raise IdentificationError(f"{unknown[0]!r} cannot be selected; choose may contain {', '.join(PARTS)}")
        if not 0 <= self.dead_zone < math.inf:
            raise IdentificationError(
                f"the dead zone is {self.dead_zone:g}; it must be a speed of zero or more [rad/s or m/s]"
            )
        Columns(self.drives)  # raises an error for unknown drive terms
        for term in self.further:
            if not isinstance(term, FrictionTerm):
                raise IdentificationError(
                    f"further contains {type(term).__name__}; it must contain terms such as MaxwellSlip(). Pass "
                    "columns as extra"
                )

    def __repr__(self) -> str:
        parts = [
            *self.drives,
            *(type(term).__name__ for term in self.further),
            *(name for e in self.extra or () for name in e.names),
        ]
        chosen = f"; selected from the log: {', '.join(self.choose)}" if self.choose else ""
        zone = f"; dead zone {self.dead_zone:g} rad/s or m/s" if self.dead_zone else ""
        return f"Terms: {', '.join(parts) or 'none'}{chosen}{zone}"

    def columns(self, chain: Chain) -> Columns:
        """Columns of the regressor for the drive terms and the extra columns."""
        return all_columns(chain, self.drives) if self.extra is None else Columns(self.drives, self.extra)


def term_of(place: str, said: Mapping[str, Any], joints: Sequence[str]) -> FrictionTerm:
    """Create a term from a [[term]] table of TOML, such as {kind = "Cable", joints = ["joint2"], powers = [1, 3]}.

    The kind is the class of the term. Joints are named or counted from 1; by default, all joints have the term. All other
    keys are fields of the class, in SI units.

    Raises:
        IdentificationError: the kind, a joint or a field is unknown, or a value is invalid.
    """
    rest = dict(said)
    kinds = term_kinds()
    kind = kinds.get(rest.pop("kind", ""))
    if kind is None:
        raise IdentificationError(f"{place}: the kind is {said.get('kind')!r}; it must be one of {', '.join(kinds)}")
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
