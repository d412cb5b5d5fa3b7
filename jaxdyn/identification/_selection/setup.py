"""Inputs to a fit after the selection of terms: robot, columns, friction model and filters."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._consistency.constraints import Consistency, no_constraints
from .._friction.model import FrictionModel
from .._friction.terms import FRICTION, chain_terms
from .._preprocessing.samples import Filters
from .._regression.columns import Columns, joint_springs, with_friction_at_joints
from .candidates import FURTHER_KINDS
from .outcome import TermChoice
from .terms import Terms


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """The model to fit, and the filters of the logs.

    Attributes:
        chain: the robot, with the selected widths of the smooth sign function in its Coulomb friction.
        columns: columns of the regressor.
        friction: friction terms that replace viscous, coulomb and offset and are fitted at the sample rate of the log;
            None if there are none.
        filters: filters with the selected cutoff and delays.
        delay: (n,) torque delays [s]; None if delays were neither specified nor selected.
        terms: the requested terms.
        confirmed: numbers of the joints for which friction terms were selected.
    """

    chain: Chain
    columns: Columns
    friction: FrictionModel | None
    filters: Filters
    delay: Float[np.ndarray, " n"] | None
    terms: Terms
    confirmed: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parameters before the selection of terms; constraints refer to these parameters."""
        return self.terms.columns(self.chain).names(self.chain.n)

    @property
    def fitted_joints(self) -> tuple[int, ...] | None:
        """Numbers of the joints whose widths and exponents of friction are fitted; None if those of all joints are.

        A joint whose plain friction was kept also keeps its width: no left-out block has confirmed another one.
        """
        return None if self.terms.further else self.confirmed

    def known(self, consistent: Consistency, names: tuple[str, ...]) -> Consistency:
        """Map the constraints of the prior knowledge to the parameters with the given names.

        Raises:
            IdentificationError: the constraints have the wrong number of parameters, or refer to a parameter that is
                not fitted.
        """
        given = consistent.constraints
        if given is not None and given.equal.shape[1] != len(names):
            rows = np.concatenate([given.equal, given.least])
            where = {name: k for k, name in enumerate(names)}
            if rows.shape[1] != len(self.names):
                raise IdentificationError(
                    f"the constraints refer to {rows.shape[1]} parameters, but there are {len(self.names)}: "
                    f"{', '.join(self.names)}"
                )
            gone = [name for k, name in enumerate(self.names) if rows[:, k].any() and name not in where]
            if gone:
                raise IdentificationError(
                    f"the constraints refer to {', '.join(gone)}, which the selected friction model replaces",
                    "disable the selection of friction with {terms}",
                    terms="Terms(choose=())",
                )
            moved = np.zeros((len(rows), len(names)))
            for k, name in enumerate(self.names):
                if name in where:
                    moved[:, where[name]] = rows[:, k]
            blank = no_constraints(len(names))
            equal, least = np.split(moved, [len(given.equal)])
            given = dataclasses.replace(
                blank, equal=equal, equal_to=given.equal_to, least=least, least_of=given.least_of
            )
            consistent = dataclasses.replace(consistent, constraints=given)
        return consistent.of(names)


def setup_of(chain: Chain, terms: Terms, filters: Filters, choice: TermChoice | None) -> Setup:
    """Create the setup from the requested terms and the result of their selection.

    Raises:
        IdentificationError: the delay is neither one finite number nor one finite number per joint.
    """
    delay, columns, further = filters.delay, terms.columns(chain), terms.further
    if delay is not None:
        seconds = np.asarray(delay, float)
        if seconds.shape not in ((), (chain.nv,)) or not np.all(np.isfinite(seconds)):
            raise IdentificationError(
                f"the delay is {delay}; specify one finite number of seconds, or one per joint ({chain.nv})"
            )
        delay = np.broadcast_to(seconds, (chain.nv,)).copy()
    if choice is not None or further:
        chain, columns = with_friction_at_joints(chain, columns)
    if choice is not None:
        chain = choice.chain(chain)
        if choice.cutoff is not None:
            filters = filters.but(position_cutoff=choice.cutoff, torque_cutoff=choice.torque_cutoff)
        if choice.logged_cutoff is not None:
            filters = filters.but(logged_cutoff=choice.logged_cutoff)
        if delay is None and choice.delay.any():
            delay = choice.delay
        if choice.springs:
            springs = dataclasses.replace(joint_springs(chain, choice.springs), positive=True)
            columns = dataclasses.replace(columns, extra=(*columns.extra, springs))
    friction = None
    if choice is not None and choice.further:
        friction = choice.further
    elif further or choice is not None:  # as friction terms, viscous and Coulomb friction are filtered like the torques
        width = np.asarray(chain.friction.coulomb_velocity, float)
        friction = (*chain_terms(width, terms.drives), *further) or None
    if friction is not None:
        rest = tuple(term for term in columns.drive_terms if term not in FRICTION)
        columns = dataclasses.replace(columns, drive_terms=rest)
    filters = filters.but(delay=delay)
    kinds = ("dry friction", *(kind for kind in FURTHER_KINDS if kind != "spring"))
    confirmed = () if choice is None else tuple(sorted({one.joint for one in choice.adopted if one.kind in kinds}))
    model = None if friction is None else FrictionModel(friction)
    return Setup(chain, columns, model, filters, delay, terms, confirmed)
