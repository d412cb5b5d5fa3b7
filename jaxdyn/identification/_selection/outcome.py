"""Outcome of a term selection: the trials at each joint, the adopted terms, and their gains."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ..._summary import Summary, lines
from ...model._chain import Chain, with_leaves
from .._friction.terms import FrictionTerm
from .candidates import FURTHER_KINDS, Candidates
from .search import Gain, Search, State, gain


@dataclasses.dataclass(frozen=True)
class Trial:
    """Trial of one kind of term at one joint.

    Attributes:
        joint: number of the joint, counted from 1; 0 for all joints.
        kind: "dry friction", "second slip", "speed", "load", "spring", "delay" or "filter".
        name: description of the best term of the kind.
        gain: reduction of the RMS error on left-out blocks, with all other adopted terms included [%].
        ratio: mean gain over the blocks, in standard errors.
        adopted: True if the selected model includes the term.
    """

    joint: int
    kind: str
    name: str
    gain: float
    ratio: float
    adopted: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TermChoice(Summary):
    """The selected terms, and the trials that led to the selection.

    Attributes:
        further: friction terms that replace the drive terms viscous, coulomb and offset; empty if these drive terms
            suffice.
        springs: numbers of the joints for which a spring was selected, counted from 1.
        delay: (n,) delay of each joint's logged torque relative to the positions [s].
        cutoff: selected low-pass cutoff of the positions [Hz]; None if it is unchanged.
        logged_cutoff: cutoff of the low-pass that was applied to the torques before logging [Hz]
            (`Filters.logged_cutoff`); None if none was detected.
        torque_cutoff: cutoff of the torques if `cutoff` was selected [Hz], which is the default one.
        coulomb_velocity: (n,) width of the smooth sign function in the drive term coulomb [rad/s or m/s].
        errors: (n,) RMS torque error of the selected model on left-out blocks [N m or N].
        errors_before: (n,) RMS torque error of the plain model on left-out blocks [N m or N].
        trials: the best trial of each kind at each joint.
    """

    further: tuple[FrictionTerm, ...]
    springs: tuple[int, ...]
    delay: Float[np.ndarray, " n"]
    cutoff: float | None
    coulomb_velocity: Float[np.ndarray, " n"]
    errors: Float[np.ndarray, " n"]
    errors_before: Float[np.ndarray, " n"]
    trials: tuple[Trial, ...]
    logged_cutoff: float | None = None
    torque_cutoff: float | None = None

    @property
    def adopted(self) -> tuple[Trial, ...]:
        """The adopted trials."""
        return tuple(trial for trial in self.trials if trial.adopted)

    def chain(self, chain: Chain) -> Chain:
        """The chain with the selected widths of the smooth sign function in its Coulomb friction."""
        widths = jnp.asarray(self.coulomb_velocity, chain.dtype)
        return with_leaves(chain, {"friction.coulomb_velocity": widths})

    @property
    def sentence(self) -> str:
        """The adopted terms, in one line."""
        by_name: dict[str, list[int]] = {}
        for trial in self.adopted:
            by_name.setdefault(trial.name, []).append(trial.joint)
        said = [f"{name} ({', '.join(map(str, at))})" if at != [0] else name for name, at in by_name.items()]
        return f"adopted, by joint: {', '.join(said)}" if said else "nothing beyond the plain model was adopted"

    def __repr__(self) -> str:
        """One line per trial."""
        rows = [
            f"{trial.joint or 'all':>5} {trial.kind:13s} {trial.name:30s} {trial.gain:6.1f} % {trial.ratio:6.1f} se "
            f"{'adopted' if trial.adopted else ''}".rstrip()
            for trial in self.trials
        ]
        return lines(f"TermChoice: {self.sentence}", *rows)


def trials_of(search: Search, candidates: Candidates, removed: Float[np.ndarray, " n"], worth: Gain) -> Iterator[Trial]:
    """The best trial of each kind at each joint, with its gain when all other adopted terms are included.

    Args:
        removed: delay of each joint that was removed before the search, and to which the search's delays are added [s].
        worth: gain of their removal.
    """
    now, name = search.state, candidates.name
    n, kinds = len(now.dry), len(candidates.dry)
    if kinds > 1:
        states = [now.but(dry=np.full(n, k)) for k in range(kinds)]
        own = [name(k) for k in now.dry.tolist()]
        yield from _of_kind("dry friction", search, states, now.dry != 0, [name(k) for k in range(kinds)], own)
    for kind in FURTHER_KINDS:
        if not (columns := candidates.of_kind(kind)):
            continue
        states = [
            now.but(more=_set(now.more, columns, False)),
            *(now.but(more=_set(now.more, [k], True)) for k in columns),
        ]
        own = [" and ".join(name(k) for k in columns if now.more[j, k]) for j in range(n)]
        names = ["", *map(name, columns)]
        yield from _of_kind(kind, search, states, np.any(now.more[:, columns], axis=1), names, own)
    if len(search.grams.shifts) > 1:
        states = [now.but(delay=np.zeros(n)), search.with_delays(now)]
        late = lambda d: f"torque {1e3 * abs(d):.2g} ms {'late' if d >= 0 else 'early'}"
        best, own = ([late(d) for d in removed + state.delay] for state in (states[1], now))
        long = [trial_of(j + 1, "delay", own[j], worth, True) for j in np.flatnonzero(removed).tolist()]
        short = _of_kind("delay", search, states, now.delay != 0, ["", best], own)
        yield from sorted([*long, *(trial for trial in short if not removed[trial.joint - 1])], key=lambda x: x.joint)


def _set(more: Bool[np.ndarray, "n k"], columns: Sequence[int], value: bool) -> Bool[np.ndarray, "n k"]:
    out = more.copy()
    out[:, columns] = value
    return out


def _of_kind(
    kind: str,
    search: Search,
    states: Sequence[State],
    has: Bool[np.ndarray, " n"],
    names: Sequence[str | Sequence[str]],
    own: Sequence[str],
) -> Iterator[Trial]:
    """Trials of one kind of term at all joints.

    If a joint has adopted a term of this kind, the gain compares the selection with the same selection without that
    term. Otherwise, the gain is that of adding the best candidate to the selection.
    """
    squares = [search.tried(state).squares for state in states]
    without, others = gain(squares[0], search.squares), [gain(search.squares, x) for x in squares[1:]]
    for j, there in enumerate(has.tolist()):
        k = int(np.argmax([g.share[j] for g in others]))
        best = names[k + 1]
        name = own[j] if there else best if isinstance(best, str) else best[j]
        yield trial_of(j + 1, kind, name, without if there else others[k], there)


def trial_of(joint: int, kind: str, name: str, found: Gain, adopted: bool) -> Trial:
    """Create a trial, converting its gain from squared errors to RMS errors."""
    j = max(joint - 1, 0)
    left = np.sqrt(max(1 - float(found.share[j]), 0.0))
    return Trial(joint, kind, name, 100 * (1 - float(left)), float(found.ratio[j]), adopted)
