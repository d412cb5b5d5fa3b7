"""`Terms`: user-specified torque terms in addition to the links' inertias."""

import dataclasses
import math
from typing import Literal

from ..._summary import Summary
from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.terms import FrictionTerm
from .._regression.columns import DRIVE_TERMS, Columns, ExtraColumns, all_columns

Part = Literal["filter", "friction", "springs", "delays"]
PARTS: tuple[Part, ...] = ("filter", "friction", "springs", "delays")


@dataclasses.dataclass(frozen=True, repr=False)
class Terms(Summary):
    """Torque terms to identify in addition to the ten parameters per link: fixed terms, and kinds of terms to select.

    With `Terms()`, the usual drive terms are identified and further terms are selected from the log (`choose_terms`).
    `Terms(choose=())` is the plain model, which contains only the drive terms and is linear in its parameters.

    Attributes:
        drives: drive terms to identify: any of armature, viscous, coulomb and offset. The parameters of the other drive
            terms are taken from the chain.
        further: additional terms of single joints (`MaxwellSlip`, `Counterbalance`, `Cable`, ...), with initial values;
            their nonlinear parameters are fitted at the log's rate.
        extra: columns that affect several joints or are user-defined (`coupled_drive`, `ExtraColumns`); by default the
            motors of the chain's transmission (`motor_terms`) and its springs.
        choose: kinds of terms to select by cross-validation. "filter" selects the low-pass. The others are selected for
            each joint: "friction" (which replaces viscous, coulomb and offset), "springs", and "delays" of the torque.
        dead_zone: speed |qd_j| below which samples are excluded from the equations of joint j [rad/s or m/s]. Near
            rest, dry friction can take any value up to fc, which the drive terms cannot describe.

    Raises:
        IdentificationError: a drive term or a kind to select is unknown, a further term is not a `FrictionTerm`, or the
            dead zone is negative or not finite.
    """

    drives: tuple[Literal["armature", "viscous", "coulomb", "offset"], ...] = DRIVE_TERMS
    further: tuple[FrictionTerm, ...] = ()
    extra: tuple[ExtraColumns, ...] | None = None
    choose: tuple[Part, ...] = PARTS
    dead_zone: float = 0.0

    def __post_init__(self):
        if unknown := [part for part in self.choose if part not in PARTS]:
            raise IdentificationError(f"{unknown[0]!r} cannot be selected; choose may contain {', '.join(PARTS)}")
        if not 0 <= self.dead_zone < math.inf:
            raise IdentificationError(
                f"the dead zone is {self.dead_zone:g}; it must be a speed of zero or more [rad/s or m/s]"
            )
        Columns(self.drives)  # raises an error for unknown names
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
        chosen = f"; {', '.join(self.choose)} chosen" if self.choose else ""
        zone = f"; dead zone {self.dead_zone:g} rad/s or m/s" if self.dead_zone else ""
        return f"Terms: {', '.join(parts) or 'none'}{chosen}{zone}"

    def columns(self, chain: Chain) -> Columns:
        """The drive terms and the extra columns, as columns of the regressor."""
        return all_columns(chain, self.drives) if self.extra is None else Columns(self.drives, self.extra)
