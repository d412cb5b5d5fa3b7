"""`choose_terms`: the torque terms of a log, selected by cross-validation over blocks."""

import copy
from collections.abc import Callable, Sequence

import jax
import numpy as np

from ...errors import IdentificationError, LogError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._friction.terms import Coulomb
from .._preprocessing.samples import Filters
from .blocks import Reading
from .candidates import FURTHER_KINDS, Candidates, candidates_of, friction_of
from .outcome import TermChoice, Trial, trial_of, trials_of
from .search import Search, gain
from .terms import Terms

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
    """Choose the filter and, joint by joint, friction, springs and delays by cross-validation over blocks.

    The runs are cut into six to sixteen blocks, each predicted by a weighted least-squares fit to the others. A
    candidate is adopted if it reduces the RMS error of the joint by at least 1 %, and if the mean gain over the
    blocks exceeds two standard errors (one, if the joints' gains together exceed two): terms that help in one block
    and harm in others are rejected. Each joint starts with the drive terms, and gets the best of

    - dry friction: a smooth sign of one of six widths, or a slipping spring (`MaxwellSlip`) of one of five, in which
      friction builds up over a distance after each reversal;
    - further terms, one at a time: a second slip, friction nonlinear in speed (`PowerViscous`, `Stribeck`),
    load-dependent friction (`LoadedSlip`, `LoadDependent`), a spring;
    - a torque delay of up to 20 ms, of either sign, from a parabola through the three least errors.

    Joints share the rigid body, so all of them are tried at once. Terms that no longer help after later ones were
    adopted are dropped. The low-pass is selected last, between 0.5 and 1.25 times the default cutoff: predictions are
    compared with the torque filtered by the widest, so that no filter wins by removing what is hard to predict.

    The selection uses triangular factors of the blocks, with the columns of all candidates and the torque at all
    shifts, so samples are read only once. Loads are those of the plain fit.

    Args:
        chain: the robot.
        runs: one or several runs to fit, without held-out data.
        terms: the fixed terms, and the kinds to select.
        filters: as in `preprocess`; a given cutoff or delay is kept.
        share: use only this first share of each run.
        progress: called with (stage, done, total).

    Returns:
        The selection; None if the runs are too short for six blocks, joints are coupled, or nothing is to be selected.

    Raises:
        IdentificationError: the runs do not match the chain.

    Cost: some 3 s for 20 000 rows of 7 joints.
    """
    logs, terms, filters = [runs] if isinstance(runs, Log) else list(runs), terms or Terms(), filters or Filters()
    if not logs:
        raise IdentificationError("there is no run to choose terms from")
    for log in logs:
        if log.n != chain.nv:
            raise IdentificationError(f"{log.source}: the log has {log.n} joints, the model has {chain.nv}")
    if not terms.choose or chain.coupling is not None:
        return None
    with jax.enable_x64(True):
        reading = Reading(chain, logs, terms, filters, share)
        return _Choosing(reading, progress or (lambda stage, done, total: None)).choice()


class _Choosing:
    """The selection, step by step."""

    def __init__(self, reading: Reading, report: Callable[[str, int, int], None]):
        self.reading, self.done, self.steps = reading, 0, 2 + len(reading.pairs)
        self.report = report

    def advance(self) -> None:
        self.done += 1
        self.report("choosing terms", min(self.done, self.steps), self.steps)

    def choice(self) -> TermChoice | None:
        """The whole selection; None if the runs are too short."""
        reading = self.reading
        self.report("choosing terms", 0, self.steps)
        try:
            runs = reading.runs(reading.pairs[reading.usual])
            candidates = candidates_of(reading.terms, reading.widths, reading.given(runs), reading.sprung)
            load = reading.load(candidates, runs) if any(term.needs_load for term in candidates.terms) else None
            grams = reading.grams(candidates, runs, load)
        except LogError:
            return None
        self.advance()
        plain = Search(grams, candidates.start(reading.chain.n))
        search = self.search(plain, candidates)
        self.advance()
        trials = list(trials_of(search, candidates))
        best = self.filter(search, candidates, load, trials)
        return self.outcome(search, candidates, best, plain.errors, tuple(trials))

    def search(self, plain: Search, candidates: Candidates) -> Search:
        """The better of two searches, with springs and delays after further friction or, if anything was adopted, before it."""
        late, early = copy.copy(plain), copy.copy(plain)
        self.go(late, candidates, False)
        if late.state.same(plain.state) or not (plain.grams.shifts[1:].any() or candidates.spring):
            return late
        self.go(early, candidates, True)
        return min(late, early, key=lambda search: float(np.log(np.maximum(search.errors, 1e-300)).sum()))

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
        search.pruned(columns)

    def filter(self, search: Search, candidates: Candidates, load: np.ndarray | None, trials: list[Trial]) -> int:
        """The filter that best predicts the torque filtered by the widest; the default one unless the gain is confirmed."""
        reading = self.reading
        if len(reading.pairs) == 1:
            return reading.usual
        bands = []
        for k, pair in enumerate(reading.pairs):
            bands.append(search.grams if k == reading.usual else reading.grams(candidates, reading.runs(pair), load))
            self.advance()
        squares = [band.left_out(search.state, bands[-1])[0] for band in bands]
        size = np.maximum(squares[reading.usual].sum(0), 1e-300)
        mean = [(x / size).mean(axis=1, keepdims=True) for x in squares]  # of the joints' shares
        gains = [gain(mean[reading.usual], x) for x in mean]
        best = int(np.argmax([g.share[0] for g in gains]))
        if best == reading.usual:
            return best
        adopted = bool(gains[best].confirmed[0])
        trials.append(trial_of(0, "filter", f"low-pass {reading.pairs[best][0]:g} Hz", gains[best], adopted))
        return best if adopted else reading.usual

    def outcome(
        self, search: Search, candidates: Candidates, best: int, before: np.ndarray, trials: tuple[Trial, ...]
    ) -> TermChoice:
        """The selection for a state of the search."""
        reading, state, n = self.reading, search.state, self.reading.chain.n
        signs = sum(isinstance(term, Coulomb) for term in candidates.dry)
        widths = [np.broadcast_to(np.asarray(term.width, float), n) for term in candidates.dry[:signs]]  # type: ignore[attr-defined]
        held = np.array(
            [widths[k][j] if 0 <= k < signs else reading.widths[j] for j, k in enumerate(state.dry.tolist())]
        )
        beyond = bool(np.any(state.dry >= signs)) or bool(state.more[:, len(candidates.dry) : candidates.last].any())
        cutoff = reading.pairs[best][0] if best != reading.usual else None
        return TermChoice(
            further=friction_of(candidates, state, reading.terms, reading.pairs[best][1]).terms if beyond else (),
            springs=tuple((np.flatnonzero(state.more[:, candidates.last]) + 1).tolist()) if candidates.spring else (),
            delay=state.delay,
            cutoff=cutoff,
            coulomb_velocity=held,
            errors=search.errors,
            errors_before=before,
            trials=trials,
        )
