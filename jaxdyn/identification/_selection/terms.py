"""`Terms`: user-specified terms of the torques besides the inertias of the links."""

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
    """Terms of an identification besides ten parameters per link: the fixed ones, and the kinds to choose.

    `Terms()` has the usual drive terms, and chooses the rest from the log (`choose_terms`); `Terms(choose=())` is the plain
    model, linear in its parameters: only the drive terms.

    Attributes:
        drives: which of armature, viscous, coulomb, offset are identified; the rest is taken as the chain has it.
        further: terms of single joints besides (`MaxwellSlip`, `Counterbalance`, `Cable`, ...), with the values to start
            from; those that are not linear are fitted at the log's rate.
        extra: columns across joints, and of your own (`coupled_drive`, `ExtraColumns`); where None, the motors of the chain's
            transmission (`motor_terms`) and the springs that it has.
        choose: what is chosen by the error on blocks left out: the low-pass ("filter"), joint by joint "friction" in place
            of viscous, coulomb and offset, "springs", and "delays" of the torques.
    """

    drives: tuple[Literal["armature", "viscous", "coulomb", "offset"], ...] = DRIVE_TERMS
    further: tuple[FrictionTerm, ...] = ()
    extra: tuple[ExtraColumns, ...] | None = None
    choose: tuple[Part, ...] = PARTS

    def __post_init__(self):
        if unknown := [part for part in self.choose if part not in PARTS]:
            raise IdentificationError(f"{unknown[0]!r} cannot be chosen; there are {', '.join(PARTS)}")
        Columns(self.drives)  # refuses what it does not know
        for term in self.further:
            if not isinstance(term, FrictionTerm):
                raise IdentificationError(
                    f"a further term is {type(term).__name__}; give terms like MaxwellSlip(), and columns as extra"
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
