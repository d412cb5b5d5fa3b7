"""`Terms`: user-specified torque terms besides the links' inertias."""

import dataclasses
from typing import Literal

from ..._summary import Summary
from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.terms import FrictionTerm
from .._regression.columns import DRIVE_TERMS, Columns, ExtraColumns, all_columns

Part = Literal["filter", "friction", "springs", "delays"]
PARTS: tuple[Part, ...] = ("filter", "friction", "springs", "delays")
FRICTION = ("viscous", "coulomb", "offset")


@dataclasses.dataclass(frozen=True, repr=False)
class Terms(Summary):
    """Terms of an identification besides ten parameters per link: fixed ones, and kinds to select.

    `Terms()` has the usual drive terms, and selects others from the log (`choose_terms`); `Terms(choose=())` is the
    plain model with the drive terms only, linear in its parameters.

    Attributes:
        drives: the identified ones of armature, viscous, coulomb, offset; the others keep the chain's values.
        further: additional terms of single joints (`MaxwellSlip`, `Counterbalance`, `Cable`, ...), with initial values;
            nonlinear ones are fitted at the log's rate.
        extra: columns across joints, and user-defined ones (`coupled_drive`, `ExtraColumns`); by default the motors of
            the chain's transmission (`motor_terms`) and its springs.
        choose: kinds to select by cross-validation: the low-pass ("filter") and, by joint, "friction" that replaces
            viscous, coulomb and offset, "springs", and torque "delays".
    """

    drives: tuple[Literal["armature", "viscous", "coulomb", "offset"], ...] = DRIVE_TERMS
    further: tuple[FrictionTerm, ...] = ()
    extra: tuple[ExtraColumns, ...] | None = None
    choose: tuple[Part, ...] = PARTS

    def __post_init__(self):
        if unknown := [part for part in self.choose if part not in PARTS]:
            raise IdentificationError(f"{unknown[0]!r} cannot be selected; there are {', '.join(PARTS)}")
        Columns(self.drives)  # refuses unknown names
        for term in self.further:
            if not isinstance(term, FrictionTerm):
                raise IdentificationError(
                    f"a further term is {type(term).__name__}; give terms such as MaxwellSlip(); pass columns as extra"
                )

    def __repr__(self) -> str:
        parts = [
            *self.drives,
            *(type(term).__name__ for term in self.further),
            *(name for e in self.extra or () for name in e.names),
        ]
        chosen = f"; {', '.join(self.choose)} chosen" if self.choose else ""
        return f"Terms: {', '.join(parts) or 'none'}{chosen}"

    def columns(self, chain: Chain) -> Columns:
        """The drive terms and the extra columns, as columns of the regressor."""
        return all_columns(chain, self.drives) if self.extra is None else Columns(self.drives, self.extra)
