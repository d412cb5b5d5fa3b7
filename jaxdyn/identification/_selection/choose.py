"""`choose_terms`: selection of torque terms by cross-validation over blocks of a log."""

import copy
import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError, LogError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._friction.terms import Coulomb
from .._preprocessing.samples import Filters
from .blocks import LONGEST, Reading
from .candidates import FURTHER_KINDS, Candidates, candidates_of, friction_of
from .outcome import TermChoice, Trial, trial_of, trials_of
from .search import Gain, Search, gain
from .terms import Terms

NEIGHBOURS = 2  # number of neighbours, on either side of the best low-pass before logging, that the search also tries
PASSES = 3  # maximum number of passes over dry friction, further terms and delays


def choose_terms(
    chain: Chain,
    runs: Log | Sequence[Log],
    terms: Terms | None = None,
    filters: Filters | None = None,
    *,
    share: float = 1.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> TermChoice | None:
    """Select the filter and, for each joint, friction, springs and delays by cross-validation over blocks.

    The runs are divided into six to sixteen blocks, each of which is predicted by a weighted least-squares fit to the
    others. A joint adopts the best candidate that reduces its RMS error by at least 1 %, provided that the mean gain over
    the blocks is significant: a one-sided t-test at the level of 5 %, with the variance of Nadeau and Bengio (2003) for
    fits that share data. The mean gain must exceed 2.5 standard errors on 16 blocks, and 3 on six blocks.
    Two are sufficient for a filter and for a delay common to all joints, which add no parameters to single joints.
    Terms that improve one block but worsen others are therefore rejected. If the runs repeat a motion, a block is one
    stretch of the motion, from all repetitions.

    Each joint starts with the drive terms. The candidates are:

    - dry friction: a smooth sign function with one of six widths, or a slipping spring (`MaxwellSlip`) with one of five
      widths, whose friction builds up over a distance after each reversal;
    - further terms, added one at a time: a second slipping spring, friction that is nonlinear in speed (`PowerViscous`,
      `Stribeck`), load-dependent friction (`LoadedSlip`, `LoadDependent`), or a spring;
    - a torque delay of up to 20 ms, of either sign, at the minimum of a parabola through the three smallest errors.

    A longer delay, up to 200 ms, which all joints have in common, is looked for with the plain model first. If there is
    one, all candidates are tried both with the torques as logged and with this delay removed, and the better selection is
    used. In this way, a long delay is not mistaken for friction with memory, nor friction of one joint for a long delay.

    Finally, each joint's samples are divided into four operating regions by velocity, from fast backwards to fast forwards.
    A joint whose selection predicts regions that are left out of the fit worse than the plain model does keeps the plain
    model: blocks of time show the same kind of motion as the data that are fitted, and cannot tell.

    Because joints share the rigid-body parameters, each candidate is tried at all joints simultaneously. A term is
    dropped if it no longer helps after other terms have been adopted.

    The low-pass cutoff of the positions is selected first, with the plain model, in steps of up to half an octave from
    the default down to 2 Hz, or as far as the runs are long enough. All candidates predict the same torque. Encoder noise
    that a high cutoff lets pass therefore counts as an error, and so does motion that a low cutoff removes.

    The spectrum of the torques may indicate that they were low-pass filtered before logging (`Filters.logged_cutoff`).
    In this case, candidates for the filter before logging are compared first, by how well they predict the torque as
    logged. If the best candidate improves the plain model, the search is run with this candidate and with its
    neighbours. The best result is used.

    The samples are read only once for each filter, because candidates are evaluated from triangular factors of the
    blocks. These factors contain the columns of all candidates and the torque at all shifts. Load-dependent friction
    uses the load from a fit of the plain model.

    Args:
        chain: the robot.
        runs: one or more runs to fit, without data that are held out for validation.
        terms: the fixed terms, and the kinds of terms to select.
        filters: as in `preprocess`. Cutoffs and delays that are specified here are not selected.
        share: fraction of each run to use, counted from its start; if the runs repeat a motion, fraction of the motion.
        progress: called with (stage, done, total).

    Returns:
        The selection. None if the runs are too short for six blocks, if joints are coupled, or if `terms.choose` is
        empty.

    Raises:
        IdentificationError: there are no runs, or the number of joints in a run differs from that of the chain.

    Cost: about 3 s for 20 000 samples of 7 joints.
    """
    logs, terms, filters = [runs] if isinstance(runs, Log) else list(runs), terms or Terms(), filters or Filters()
    if not logs:
        raise IdentificationError("no run was given to select terms from; pass at least one")
    for log in logs:
        if log.n != chain.nv:
            raise IdentificationError(f"{log.source}: the log has {log.n} joints, but the model has {chain.nv}")
    if not terms.choose or chain.coupling is not None:
        return None
    with jax.enable_x64(True):
        reading = Reading(chain, logs, terms, filters, share)
        return _Choosing(reading, progress or (lambda stage, done, total: None)).choice()


class _Choosing:
    """Selection of terms, step by step, with reports of progress."""

    def __init__(self, reading: Reading, report: Callable[[str, int, int], None]):
        before = len(reading.before)
        self.reading, self.done = reading, 0
        self.steps = 2 + len(reading.tried) + before + (before and 1 + 4 * NEIGHBOURS)
        self.report = report

    def advance(self) -> None:
        self.done += 1
        self.report("choosing terms", min(self.done, self.steps), self.steps)

    def choice(self) -> TermChoice | None:
        """Select the filter and all terms; return None if the runs are too short."""
        trials: list[Trial] = []
        self.report("choosing terms", 0, self.steps)
        reading = self.reading
        before = self.low_pass_before()
        likely = max(before, key=lambda one: one[1].share[0])[0].logged_cutoff if before else None
        cutoff = self.cutoff(trials, likely)
        filters = [each for each, _ in before] or [reading.tried[reading.usual]]
        if cutoff is not None:
            filters = [each.but(position_cutoff=cutoff) for each in filters]
        try:
            self.reading = reading.narrowed(filters, 0)
            searched = [self.searched(each) for each in filters]
        except LogError:
            return None
        k = int(np.argmin([found.search.score for found in searched]))
        found = searched[k]
        search, candidates = found.search, found.candidates
        self.reading = self.reading.delayed(found.late)
        if before:
            self.reading = self.reading.narrowed([filters[k]], 0)
            name = f"logged after {filters[k].logged_cutoff:.3g} Hz low-pass"
            trials.append(trial_of(0, "filter", name, before[k][1], True))
        trials += trials_of(search, candidates, found.late, found.worth)
        return self.outcome(search, candidates, filters[k], cutoff is not None, found.before, tuple(trials))

    def searched(self, filters: Filters) -> "_Found":
        """Run the search with the given filters, with and without the long delays that the plain model shows."""
        reading = self.reading
        runs = reading.runs(filters)
        candidates = candidates_of(reading.terms, reading.widths, reading.given(runs), reading.sprung)
        loaded = any(term.needs_load for term in candidates.terms)
        wide = reading.plain(candidates, runs) if loaded or len(reading.shifts) > 1 else None
        found, errors = [], np.zeros(0)
        for late in self.delays(wide):
            there = reading.delayed(late)
            load = there.load(wide) if wide is not None and loaded else None
            start = candidates.start(reading.chain.n)
            plain = Search(there.grams(candidates, runs, load), start, candidates.positive)
            self.advance()
            errors = errors if len(errors) else plain.errors
            found.append((self.search(plain, candidates), late))
            self.advance()
        search, late = min(found, key=lambda one: one[0].score)
        worth = gain(found[0][0].squares, search.squares)
        return _Found(search, errors, candidates, late, worth)

    def delays(self, wide: Search | None) -> list[np.ndarray]:
        """No delay, and the plain model's common delay of all joints if it is longer than those that the search tries."""
        none = np.zeros(self.reading.chain.nv)
        if wide is None or len(wide.grams.shifts) == 1:
            return [none]
        seconds, found = wide.common_delay()
        if abs(seconds) <= LONGEST or not gains_of([wide.squares, found.squares], 0)[1].better[0]:
            return [none]
        return [none, none + seconds]

    def low_pass_before(self) -> list[tuple[Filters, Gain]]:
        """Find filters that may have been applied to the torques before logging, with their gains for the plain model.

        The list contains the best candidate and its neighbours, which the search tries in turn. If the best candidate is not
        significantly better, or the runs are too short for the cutoffs, the list is empty.
        """
        reading = self.reading
        if not reading.before:
            return []
        gains = self.compared([reading.tried[reading.usual], *reading.before], 0)[1:]
        if not gains:
            return []
        best = int(np.argmax([g.share[0] for g in gains]))
        near = slice(max(best - NEIGHBOURS, 0), best + NEIGHBOURS + 1)
        return list(zip(reading.before[near], gains[near], strict=True)) if gains[best].better[0] else []

    def cutoff(self, trials: list[Trial], logged: float | None) -> float | None:
        """The cutoff of the positions whose plain model best predicts the torque, which was low-passed with `logged`.

        None if no gain over the default is confirmed.

        The candidates filter the positions, and all of them predict the same torque. Noise in the regressor that a high
        cutoff lets pass therefore counts as an error of the prediction, and so does motion that a low cutoff removes.
        """
        reading = self.reading
        gains, tried, usual = [], reading.tried, reading.usual
        if logged is not None:
            tried = [each.but(torque_cutoff=None, logged_cutoff=logged) for each in tried]
        while not gains and len(tried) > 1:  # low cutoffs need longer runs: leave out those for which these are short
            self.reading = reading.narrowed(tried, usual)
            gains = self.compared(tried, usual)
            if not gains:
                tried, usual = tried[1:], usual - 1
        best = int(np.argmax([g.share[0] for g in gains])) if gains else usual
        if best == usual:
            return None
        adopted, found = bool(gains[best].better[0]), tried[best].position_cutoff
        trials.append(trial_of(0, "filter", f"positions low-passed at {found:.3g} Hz", gains[best], adopted))
        return found if adopted else None

    def compared(self, filters: Sequence[Filters], usual: int) -> list[Gain]:
        """Gain of each filter over the default one for the plain model, averaged over joints; empty for short runs."""
        reading, squares, plain = self.reading.on_time(), [], None
        try:
            for each in filters:
                runs = reading.runs(each)
                if plain is None:
                    found = candidates_of(reading.terms, reading.widths, reading.given(runs), True)
                    plain = dataclasses.replace(found, dry=found.dry[:1], further=())
                load = (
                    reading.load(reading.plain(plain, runs)) if any(term.needs_load for term in plain.terms) else None
                )
                squares.append(reading.grams(plain, runs, load).left_out(plain.start(reading.chain.n)).squares)
                self.advance()
        except LogError:
            return []
        return gains_of(squares, usual)

    def search(self, plain: Search, candidates: Candidates) -> Search:
        """Run one search that tries springs and delays before further friction, and one after it; return the better."""
        late, early = copy.copy(plain), copy.copy(plain)
        self.go(late, candidates, False)
        if late.state.same_at(plain.state).all() or not (plain.grams.shifts[1:].any() or candidates.spring):
            return late
        self.go(early, candidates, True)
        found = min(late, early, key=lambda search: search.score)
        found.no_worse_than(plain)
        return found

    def go(self, search: Search, candidates: Candidates, early: bool) -> None:
        """Select friction, springs and delays until nothing more is confirmed."""
        kinds, spring = len(candidates.dry), candidates.of_kind("spring")
        columns = [k for kind in FURTHER_KINDS for k in candidates.of_kind(kind)]
        for _ in range(PASSES):
            changed = kinds > 1 and search.dry_friction(kinds)
            if early:
                changed = (bool(spring) and search.further(spring)) or changed
                changed = search.delays() or changed
                changed = search.dry_friction_and_delays(kinds) or changed
            for _ in range(len(FURTHER_KINDS)):
                if not (columns and search.further(columns)):
                    break
                changed = True
            changed = search.delays() or changed
            changed = search.dry_friction_and_delays(kinds) or changed
            if not changed:
                break
        while search.pruned(columns):
            pass

    def outcome(
        self,
        search: Search,
        candidates: Candidates,
        filters: Filters,
        narrowed: bool,
        before: np.ndarray,
        trials: tuple[Trial, ...],
    ) -> TermChoice:
        """Create the result from the final state of the search."""
        reading, state, n = self.reading, search.state, self.reading.chain.n
        signs = sum(isinstance(term, Coulomb) for term in candidates.dry)
        widths = [np.broadcast_to(np.asarray(term.width, float), n) for term in candidates.dry[:signs]]  # type: ignore[attr-defined]
        held = np.array(
            [widths[k][j] if 0 <= k < signs else reading.widths[j] for j, k in enumerate(state.dry.tolist())]
        )
        beyond = bool(np.any(state.dry >= signs)) or bool(state.more[:, len(candidates.dry) : candidates.last].any())
        beyond = beyond or reading.filters.logged_cutoff != filters.logged_cutoff
        band = filters.logged_cutoff or filters.torque_cutoff or np.inf
        return TermChoice(
            further=friction_of(candidates, state, reading.terms, band).terms if beyond else (),
            springs=tuple((np.flatnonzero(state.more[:, candidates.last]) + 1).tolist()) if candidates.spring else (),
            delay=reading.late + state.delay,
            cutoff=filters.position_cutoff if narrowed else None,
            torque_cutoff=filters.torque_cutoff if narrowed else None,
            logged_cutoff=filters.logged_cutoff,
            coulomb_velocity=held,
            errors=search.errors,
            errors_before=before,
            trials=trials,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """The outcome of a search with one filter.

    Attributes:
        search: the search after its last step.
        before: (n,) errors of the plain model without delays on left-out blocks [N m or N].
        candidates: the candidates.
        late: (n,) delays about which the search looked for further ones [s].
        worth: gain over the search without these delays.
    """

    search: Search
    before: np.ndarray
    candidates: Candidates
    late: np.ndarray
    worth: Gain


def gains_of(squares: Sequence[Float[np.ndarray, "k n"]], usual: int) -> list[Gain]:
    """Gain of each filter over the default one, from the squared errors on left-out blocks, averaged over joints."""
    size = np.maximum(squares[usual].sum(0), 1e-300)
    mean = [(x / size).mean(axis=1, keepdims=True) for x in squares]
    return [gain(mean[usual], x) for x in mean]
