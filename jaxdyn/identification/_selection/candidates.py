"""Candidate terms for each joint, and the friction model that consists of the selected terms."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from .._friction.memory import LoadedSlip, MaxwellSlip
from .._friction.model import FrictionModel
from .._friction.terms import Coulomb, FrictionTerm, LoadDependent, PowerViscous, Stribeck, chain_terms
from .search import State
from .terms import Terms

WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # widths of the smooth sign function [rad/s or m/s]
SLIPS = (1e-4, 5e-4, 1e-3, 2e-3, 4e-3)  # widths of slipping springs [rad or m]
FURTHER_KINDS = ("second slip", "speed", "load", "spring")


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate columns of each joint, in the same order as in the factors.

    Attributes:
        dry: candidates for dry friction, of which each joint has exactly one. The first has the width of the chain's
            smooth sign function.
        given: the user's further terms, which are always included, with one column per label.
        further: pairs (kind, term) of optional terms, with one column each.
        spring: True if the last column is that of a spring.

    Raises:
        IdentificationError: a candidate has several columns, so it could be selected in part, and others in its place.
    """

    dry: tuple[FrictionTerm, ...]
    given: tuple[FrictionTerm, ...]
    further: tuple[tuple[str, FrictionTerm], ...]
    spring: bool

    def __post_init__(self) -> None:
        for term in (*self.dry, *(term for _, term in self.further)):
            if len(term.labels) != 1:
                raise IdentificationError(
                    f"{type(term).__name__} has {len(term.labels)} linear parameters ({', '.join(term.labels)}), but a "
                    "candidate for selection must have one; pass it as a further term, which is always fitted"
                )

    @property
    def terms(self) -> tuple[FrictionTerm, ...]:
        """All terms except the spring."""
        return (*self.dry, *self.given, *(term for _, term in self.further))

    @property
    def first(self) -> int:
        """Index of the first column of an optional term."""
        return len(self.dry) + sum(len(term.labels) for term in self.given)

    @property
    def last(self) -> int:
        """Number of columns without that of the spring, which comes last if present."""
        return self.first + len(self.further)

    def of_kind(self, kind: str) -> list[int]:
        """Indices of the optional columns of a kind."""
        if kind == "spring":
            return [self.last] * self.spring
        return [self.first + k for k, (other, _) in enumerate(self.further) if other == kind]

    @property
    def positive(self) -> list[int]:
        """Indices of the optional columns whose coefficient must be positive: stiffness, and friction that dissipates."""
        return [k for kind in ("second slip", "load", "spring") for k in self.of_kind(kind)]

    def name(self, column: int) -> str:
        """Description of a column: the class of its term, with parameters."""
        if column == self.last:
            return "spring"
        term = self.dry[column] if column < len(self.dry) else self.further[column - self.first][1]
        numbers = [float(np.asarray(x).ravel()[0]) for x in jax.tree.leaves(term)]
        return f"{type(term).__name__}({', '.join(f'{x:g}' for x in numbers)})"

    def start(self, n: int) -> State:
        """The initial selection of all joints: the first candidate for dry friction, the user's terms, and no delay."""
        more = np.zeros((n, self.last + self.spring), bool)
        more[:, len(self.dry) : self.first] = FrictionModel(self.given).chosen(n) if self.given else False
        dry = np.zeros(n, int) if self.dry else np.full(n, -1)
        return State(dry, more, np.zeros(n))


def further_terms() -> tuple[tuple[str, FrictionTerm], ...]:
    """Pairs (kind, term) of the optional terms that a joint can have besides dry friction, with one column each."""
    return (
        *(("second slip", MaxwellSlip(width=width)) for width in SLIPS),
        *(("speed", PowerViscous(exponent=exponent)) for exponent in (0.5, 1.5)),
        *(("speed", Stribeck(velocity=velocity)) for velocity in (0.05, 0.2)),
        *(("load", LoadedSlip(width=width)) for width in (1e-4, 1e-3)),
        *(("load", LoadDependent(width=width)) for width in (0.02, 0.1)),
    )


def candidates_of(
    terms: Terms, own: Float[np.ndarray, " n"], given: Sequence[FrictionTerm], sprung: bool
) -> Candidates:
    """The candidates for the kinds of terms that `terms` allows to be selected.

    Args:
        own: width of the smooth sign function in the chain's Coulomb friction, for each joint [rad/s or m/s].
        given: the user's further terms, with their fitted nonlinear parameters.
        sprung: True if the regressor's columns already include springs.
    """
    dry: list[FrictionTerm] = [Coulomb(width=own)] if "coulomb" in terms.drives else []
    free = "friction" in terms.choose and bool(dry)
    if free:
        dry += [*(Coulomb(width=width) for width in WIDTHS), *(MaxwellSlip(width=width) for width in SLIPS)]
    return Candidates(
        tuple(dry), tuple(given), further_terms() if free else (), "springs" in terms.choose and not sprung
    )


def friction_of(candidates: Candidates, state: State, terms: Terms, cutoff: float) -> FrictionModel:
    """The friction model of a selection, including the user's terms; terms of different joints are merged if
    they differ only in parameters."""
    n = len(state.dry)
    found = [term for term in chain_terms(1.0, terms.drives) if not isinstance(term, Coulomb)]
    own = [
        [
            *([candidates.dry[state.dry[j]]] if state.dry[j] >= 0 else []),
            *(term for k, (_, term) in enumerate(candidates.further) if state.more[j, candidates.first + k]),
        ]
        for j in range(n)
    ]
    slots: dict[tuple[Any, int], dict[int, FrictionTerm]] = {}
    for j, mine in enumerate(own):
        kinds = [jax.tree.structure(dataclasses.replace(term, joints=None)) for term in mine]  # with all static fields
        for k, (kind, term) in enumerate(zip(kinds, mine, strict=True)):
            slots.setdefault((kind, kinds[:k].count(kind)), {})[j] = term
    found += [_together(by_joint, n) for by_joint in slots.values()]
    return FrictionModel((*found, *candidates.given), cutoff)


def _together(by_joint: dict[int, FrictionTerm], n: int) -> FrictionTerm:
    """Merge terms that differ only in parameters at several joints into one term with one value per joint."""
    some = next(iter(by_joint.values()))
    leaves, tree = jax.tree.flatten(some)
    each = []
    for k, leaf in enumerate(leaves):
        numbers = np.array(np.broadcast_to(np.asarray(leaf, float), n))
        for j, term in by_joint.items():
            numbers[j] = np.broadcast_to(np.asarray(jax.tree.leaves(term)[k], float), n)[j]
        each.append(numbers)
    joints = None if len(by_joint) == n else tuple(j + 1 for j in by_joint)
    return dataclasses.replace(jax.tree.unflatten(tree, each), joints=joints)
