"""`choose_terms`: selection of torque terms by cross-validation over blocks of logs, and the model that comes of it."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._summary import Summary, lines
from ..errors import IdentificationError, LogError
from ..io.logs import Log
from ..io.tables import STILL
from ..model.chain import Chain, with_leaves
from .base import base_parameters, given_samples_torque
from .columns import Columns, DriveTerm, joint_springs, with_friction_at_joints
from .consistency import Consistency, no_constraints
from .defaults import BLOCKS
from .delay import LATEST, at_shifts
from .factors import RowBlocks, as_float64, contiguous
from .filters import low_pass_before
from .friction_model import FrictionModel
from .friction_terms import (
    FRICTION,
    Coulomb,
    FrictionTerm,
    TemperatureDependent,
    chain_terms,
)
from .prediction import by_chunks, chunk_rows
from .preprocessing import Filters, default_stride, divide, picked, preprocess, split
from .stretches import FullRun, fit_friction_beside, full_run, motion_of
from .term_search import (
    KINDS,
    Candidates,
    Gain,
    Grams,
    Search,
    Trial,
    candidates_of,
    climbed,
    friction_of,
    gain,
    late_by,
    solve_normal,
    system,
    trial_of,
)
from .terms import Terms


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
        errors: (n,) RMS torque error of the selected model on left-out blocks [N m or N]. It is optimistic, because the
            terms were selected for it.
        errors_before: (n,) RMS torque error of the plain model on left-out blocks [N m or N].
        trials: the best trial of each kind at each joint.
        search: the search for the terms, for `nested_errors`; None if there is none.
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
    search: "Search | None" = None

    def nested_errors(self) -> Float[np.ndarray, "2 n"] | None:
        """RMS torque errors on thirds of the blocks, for each of which the selection was repeated without it [N m or N].

        The first row is that of the plain model, the second that of the selected terms. The errors of a model whose terms
        were selected by `errors` are optimistic; these are not. None without a search.

        Cost: three times that of the selection of the terms.
        """
        return None if self.search is None else self.search.nested_errors()

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
            for name in trial.name.split(" and "):  # without the parameters, which differ from joint to joint
                by_name.setdefault(name.partition("(")[0], []).append(trial.joint)
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


# -- blocks

BEFORE = tuple(1.05**k for k in range(-6, 6))  # candidate cutoffs, relative to the one in the torque spectrum
STEPS = 2  # candidate cutoffs of the positions per octave, from the default downwards
LOWEST = 2.0  # lowest candidate, in noise that hides the bandwidth of the motion [Hz]
LONGEST = 0.02  # largest delay, of either sign, beside that of the plain model [s]
SHIFTS = 10  # number of torque shifts on either side of zero
COARSE = 20  # number of torque shifts on either side of zero for the plain model
LEAST_BLOCKS = 6
SECONDS = 1.5  # length of a block, unless this yields too few blocks [s]
MARGINS = 6  # minimum length of a block, as a multiple of the margin left out on either side
PIECE = 100_000  # samples per chunk, at the sample rate of the log


class Reading:
    """Runs from which terms are selected, with the candidate filters, torque shifts and rigid-body columns.

    Attributes:
        tried: candidate filters.
        usual: index of the default filter.
        before: candidate filters if the torques were low-pass filtered before logging.
        shifts: time shifts of the torque to try, beside those of `late` [s].
        late: (n,) delays of the torques that the plain model shows [s].
    """

    def __init__(self, chain: Chain, logs: Sequence[Log], terms: Terms, filters: Filters, share: float):
        chain, self.all = with_friction_at_joints(chain, terms.columns(chain))
        self.chain, self.logs, self.terms, self.filters, self.share = chain, logs, terms, filters, share
        self.model = as_float64(chain)
        self.motion = motion_of(logs, filters)
        self.origins: list[int] = []
        first = preprocess(logs[0], filters.but(stride=1))
        both = lambda q, tau: filters.but(position_cutoff=q, torque_cutoff=tau, stride=1)
        usual, free = (first.position_cutoff, first.torque_cutoff), filters.logged_cutoff is None
        tried, own = [usual[0]], None
        if "filter" in terms.choose and filters.torque_cutoff is None and free:
            own = low_pass_before(logs[0].tau[: int(share * len(logs[0].t))], first.rate)
            if filters.position_cutoff is None:
                lowest = min(LOWEST, usual[0])
                tried = np.geomspace(lowest, usual[0], 1 + int(np.ceil(STEPS * np.log2(usual[0] / lowest)))).tolist()
        self.tried = [both(c, usual[1]) for c in tried]
        self.usual = len(tried) - 1
        cutoffs = [c * own for c in BEFORE] if own is not None and own < min(usual) else []
        self.before = [filters.but(position_cutoff=usual[0], logged_cutoff=c, stride=1) for c in cutoffs]
        self.rate = first.rate
        self.speed = np.maximum(np.quantile(np.abs(first.qd), 0.9, axis=0), STILL)
        self.travel = np.maximum(np.ptp(first.q, axis=0), STILL)
        self.span()
        late = "delays" in terms.choose and filters.delay is None
        self.shifts = np.linspace(-LONGEST, LONGEST, 2 * SHIFTS + 1) if late else np.zeros(1)
        self.late = np.zeros(chain.nv)
        drives: tuple[DriveTerm, ...] = tuple(term for term in terms.drives if term != "coulomb")
        self.columns = dataclasses.replace(self.all, drive_terms=drives)
        self.base = base_parameters(chain, self.columns)

    def narrowed(self, tried: Sequence[Filters], usual: int) -> "Reading":
        """A copy that tries only the given filters."""
        out = copy.copy(self)
        out.tried, out.before, out.usual = list(tried), [], usual
        out.span()
        return out

    def on_time(self) -> "Reading":
        """A copy that tries no delays."""
        out = copy.copy(self)
        out.shifts = np.zeros(1)
        return out

    def span(self) -> None:
        """Set the lowest cutoff, the highest cutoff and the stride from the candidate filters."""
        every = [
            x for f in (*self.tried, *self.before) for x in (f.position_cutoff, f.logged_cutoff or f.torque_cutoff)
        ]
        cutoffs = [x for x in every if x is not None]
        self.lowest, self.highest = min(cutoffs), max(cutoffs)
        self.stride = self.filters.stride or default_stride(self.rate, self.highest)

    @property
    def widths(self) -> Float[np.ndarray, " n"]:
        """Widths of the smooth sign function in the chain's Coulomb friction, by joint [rad/s or m/s]."""
        return np.asarray(self.chain.friction.coulomb_velocity, float)

    def candidates(self, given: Sequence[FrictionTerm], sprung: bool) -> Candidates:
        """The candidates for the runs; arguments as in `candidates_of`."""
        heat = [log.temperature for log in self.logs if log.temperature is not None]
        known = len(heat) == len(self.logs) and not any(isinstance(term, TemperatureDependent) for term in given)
        warmth = round(float(np.concatenate(heat).mean()), 1) if known else None
        return candidates_of(self.terms, self.widths, given, sprung, self.speed, self.travel, warmth)

    @property
    def sprung(self) -> bool:
        """True if the columns include springs."""
        return any(extra.leaf == "springs.stiffness" for extra in self.all.extra)

    def runs(self, filters: Filters) -> list[FullRun]:
        """Filter the runs and divide them into pieces whose sample times are the same for all filters.

        If the runs repeat a motion, `share` is a share of this motion rather than of each run.
        """
        out, self.origins = [], []
        widest = self.filters.but(position_cutoff=self.highest, torque_cutoff=self.highest)
        alike = [filters.but(margin=2 / self.lowest, gap=widest.setting(log).gap) for log in self.logs]
        whole = [preprocess(log, each) for log, each in zip(self.logs, alike, strict=True)]
        for k, run in enumerate(whole):
            if self.share < 1 and self.motion is not None:
                held = self.motion.held(k, run.t, 1 - self.share)
                run = picked(run, divide(run, held, 1 / self.lowest)[0])
            elif self.share < 1:
                run = split(run, self.share, 1 / self.lowest)[0]
            pieces = np.linspace(0, len(run), -(-len(run) // PIECE) + 1).astype(int).tolist()
            out += [full_run(run.part(a, b), self.stride) for a, b in itertools.pairwise(pieces)]
            self.origins += [k] * (len(pieces) - 1)
        return out

    def given(self, runs: Sequence[FullRun]) -> tuple[FrictionTerm, ...]:
        """Fit the nonlinear parameters of the user's further terms together with the plain model, and return the terms."""
        further = self.terms.further
        if not further:
            return ()
        plain = self.candidates(further, True).plain
        drives = tuple(term for term in self.columns.drive_terms if term not in FRICTION)
        columns = dataclasses.replace(self.columns, drive_terms=drives)
        model = friction_of(plain, plain.start(self.chain.n), self.terms, runs[0].samples.torque_cutoff)
        columns = dataclasses.replace(columns, friction=model)
        samples = [run.samples for run in runs]
        found = fit_friction_beside(self.model, columns, base_parameters(self.chain, columns), samples, self.stride)
        return found.model.terms[-len(further) :]

    def plain(self, candidates: Candidates, runs: Sequence[FullRun]) -> Search:
        """A search with the plain model only, over the longest delays if the runs are long enough for them."""
        wide = copy.copy(self)
        if len(self.shifts) > 1:
            wide.shifts = np.linspace(-LATEST, LATEST, 2 * COARSE + 1)
        try:
            grams = wide.grams(candidates.plain, runs, None)
        except LogError:  # gaps leave only pieces shorter than the delays
            grams = self.grams(candidates.plain, runs, None)
        return Search(grams, candidates.plain)

    def delayed(self, late: Float[np.ndarray, " n"]) -> "Reading":
        """A copy that looks for delays about the given ones."""
        out = copy.copy(self)
        out.late = late
        return out

    def load(self, plain: Search) -> Float[np.ndarray, " b"]:
        """Base parameters of the plain fit, with zero friction, from which load-dependent friction computes its load."""
        grams, state = plain.grams, plain.state.but(delay=self.late)
        noise = grams.left_out(state).noise
        h, right = system(grams.parts(state, grams.grams), noise)
        found = solve_normal(h.sum(0), right.sum(0))[: self.base.size]
        return np.where(self.columns.of_friction(self.chain.n)[self.base.kept], 0.0, found)

    def grams(self, candidates: Candidates, runs: Sequence[FullRun], load: Float[np.ndarray, " b"] | None) -> Grams:
        """Compute the inner products of the columns in each block of the runs.

        Neighbouring blocks are separated by a gap of one period of the lowest cutoff frequency, because filters
        correlate neighbouring samples. If the runs repeat a motion, a block is a stretch of it, from all repetitions:
        otherwise, terms could be learnt in one repetition and confirmed in the next.

        Raises:
            LogError: the runs are too short for six cross-validation blocks.
        """
        margin = 0.5 / self.lowest
        seconds = sum(len(run.decimated) / run.decimated.rate for run in runs)
        counted = lambda x: min(BLOCKS, max(LEAST_BLOCKS, int(x / SECONDS)), int(x / (MARGINS * margin)))
        motion, count = self.motion, counted(seconds)
        if motion is not None and counted(self.share * motion.length) >= LEAST_BLOCKS:
            count = counted(self.share * motion.length)
        else:
            motion = None  # nothing is repeated, or the motion is so short that only its repetitions make enough blocks
        if count < LEAST_BLOCKS:
            raise LogError(
                f"the runs last {seconds:.3g} s in total, which is too short for {LEAST_BLOCKS} cross-validation blocks"
            )
        parts = [self.rows(candidates, run, load) for run in runs]
        labels = contiguous([len(known) for _, known, *_ in parts], count)
        if motion is not None:
            times = [part[2] for part in parts]
            held = 1 - self.share
            labels = [motion.groups(k, t, count, held) for k, t in zip(self.origins, times, strict=True)]
        found = RowBlocks(labels, self.chain.n, parts[0][0].shape[2], motion is not None)
        for k, (rows, known, *_) in enumerate(parts):
            aside = int(np.ceil(margin * runs[k].decimated.rate))
            ends = np.flatnonzero(np.diff(labels[k])) + 1
            for a, b in itertools.pairwise([0, *ends.tolist(), len(known)]):
                known[a : a + aside], known[max(b - aside, a) : b] = 0.0, 0.0
            found.absorb(k, 0, rows, known)
        blocks = found.factors
        grams = Grams(blocks if motion is None else blocks.merged(blocks.order_of_groups), self.base.size, self.shifts)
        if len(candidates.listed) == len(candidates.plain.listed):
            return grams
        rows, known, _, velocity = zip(*parts, strict=True)
        return grams.with_regions(rows, known, velocity)

    def rows(
        self, candidates: Candidates, run: FullRun, load: Float[np.ndarray, " b"] | None
    ) -> tuple[Float[np.ndarray, "m n w"], Float[np.ndarray, "m n"], Float[np.ndarray, " m"], Float[np.ndarray, "m n"]]:
        """Rows [W, candidates, torque at each shift] of a run, a mask of the rows to use, their times and velocities."""
        regressor = lambda *x: chunk_rows(self.columns, self.model, *x)[:, :, self.base.kept]
        full, n = run.samples, self.chain.n
        model, loads = FrictionModel(candidates.terms, full.torque_cutoff), None
        if model.needs_load and load is not None:
            loads = by_chunks(lambda *x: regressor(*x) @ load, full.q, full.qd, full.qdd)
        blocks = model.blocks(full, loads) if candidates.terms else np.zeros((len(full), n, 0))
        known = model.known(full) if candidates.terms else np.ones((len(full), n), bool)
        part, torques, inside = at_shifts(
            dataclasses.replace(run.decimated, notes=()), self.late[:, None] + self.shifts
        )
        kept = run.kept[inside]
        given = given_samples_torque(self.model, self.all, run.decimated)[inside]
        spring = (part.q - np.asarray(self.chain.springs.rest_position, float))[:, :, None]
        w = by_chunks(regressor, part.q, part.qd, part.qdd)
        own = [w, blocks[kept], spring[:, :, : int(candidates.sprung)], torques - given[:, :, None]]
        return np.concatenate(own, axis=2), known[kept].astype(float), part.t, part.qd


# -- choose

NEIGHBOURS = 2  # number of neighbours, on either side of the best low-pass before logging, that the search also tries


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
      `Stribeck`), load-dependent friction (`LoadedSlip`, `LoadDependent`), friction that changes with
      temperature (if it is logged), or a spring;
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
        search = found.search
        self.reading = self.reading.delayed(found.late)
        if before:
            self.reading = self.reading.narrowed([filters[k]], 0)
            name = f"logged after {filters[k].logged_cutoff:.3g} Hz low-pass"
            trials.append(trial_of(0, "filter", name, before[k][1], True))
        long = np.flatnonzero(found.late).tolist()
        trials += [
            trial_of(j + 1, "delay", late_by(found.late[j] + search.state.delay[j]), found.worth, True) for j in long
        ]
        trials += [trial for trial in search.trials() if trial.kind != "delay" or trial.joint - 1 not in long]
        return self.outcome(search, filters[k], cutoff is not None, found.before, tuple(trials))

    def searched(self, filters: Filters) -> "_Found":
        """Run the search with the given filters, with and without the long delays that the plain model shows."""
        reading = self.reading
        runs = reading.runs(filters)
        candidates = reading.candidates(reading.given(runs), reading.sprung)
        loaded = any(term.needs_load for term in candidates.terms)
        wide = reading.plain(candidates, runs) if loaded or len(reading.shifts) > 1 else None
        found, errors = [], np.zeros(0)
        for late in self.delays(wide):
            there = reading.delayed(late)
            load = there.load(wide) if wide is not None and loaded else None
            plain = Search(there.grams(candidates, runs, load), candidates)
            self.advance()
            errors = errors if len(errors) else plain.errors
            found.append((climbed(plain), late))
            self.advance()
        search, late = min(found, key=lambda one: one[0].score)
        worth = gain(found[0][0].squares, search.squares)
        return _Found(search, errors, late, worth)

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
                    plain = reading.candidates(reading.given(runs), True).plain
                load = (
                    reading.load(reading.plain(plain, runs)) if any(term.needs_load for term in plain.terms) else None
                )
                squares.append(reading.grams(plain, runs, load).left_out(plain.start(reading.chain.n)).squares)
                self.advance()
        except LogError:
            return []
        return gains_of(squares, usual)

    def outcome(
        self, search: Search, filters: Filters, narrowed: bool, before: np.ndarray, trials: tuple[Trial, ...]
    ) -> TermChoice:
        """Create the result from the final state of the search."""
        reading, state, candidates = self.reading, search.state, search.candidates
        held, beyond = reading.widths.copy(), reading.filters.logged_cutoff != filters.logged_cutoff
        for one in candidates.listed:
            joints = state.has[:, one.columns[0]]
            if one.kind == "dry friction" and isinstance(one.term, Coulomb):
                held[joints] = np.broadcast_to(np.asarray(one.term.width, float), len(held))[joints]
            elif one.kind not in ("given", "spring"):
                beyond = beyond or bool(joints.any())
        sprung = [state.has[:, one.columns[0]] for one in candidates.of_kind("spring")]
        band = filters.logged_cutoff or filters.torque_cutoff or np.inf
        return TermChoice(
            further=friction_of(candidates, state, reading.terms, band).terms if beyond else (),
            springs=tuple((np.flatnonzero(sprung[0]) + 1).tolist()) if sprung else (),
            delay=reading.late + state.delay,
            cutoff=filters.position_cutoff if narrowed else None,
            torque_cutoff=filters.torque_cutoff if narrowed else None,
            logged_cutoff=filters.logged_cutoff,
            coulomb_velocity=held,
            errors=search.errors,
            errors_before=before,
            trials=trials,
            search=search,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """The outcome of a search with one filter.

    Attributes:
        search: the search after its last step.
        before: (n,) errors of the plain model without delays on left-out blocks [N m or N].
        late: (n,) delays about which the search looked for further ones [s].
        worth: gain over the search without these delays.
    """

    search: Search
    before: np.ndarray
    late: np.ndarray
    worth: Gain


def gains_of(squares: Sequence[Float[np.ndarray, "k n"]], usual: int) -> list[Gain]:
    """Gain of each filter over the default one, from the squared errors on left-out blocks, averaged over joints."""
    size = np.maximum(squares[usual].sum(0), 1e-300)
    mean = [(x / size).mean(axis=1, keepdims=True) for x in squares]
    return [gain(mean[usual], x) for x in mean]


# -- setup


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """The model to fit, and the filters of the logs.

    Attributes:
        chain: the robot, with the selected widths of the smooth sign function in its Coulomb friction.
        columns: columns of the regressor.
        filters: filters with the selected cutoff and delays.
        delay: (n,) torque delays [s]; None if delays were neither specified nor selected.
        terms: the requested terms.
        confirmed: numbers of the joints for which friction terms were selected.
    """

    chain: Chain
    columns: Columns
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
        own = names if given is None else given.names
        if given is not None and own is None:  # in the order of the fitted parameters, or of those before the selection
            own = names if given.equal.shape[1] == len(names) else self.names
        if given is not None and own is not None and own != names:
            rows = np.concatenate([given.equal, given.least])
            where = {name: k for k, name in enumerate(names)}
            if rows.shape[1] != len(own):
                raise IdentificationError(
                    f"the constraints refer to {rows.shape[1]} parameters, but there are {len(own)}: {', '.join(own)}"
                )
            if unknown := [name for name in own if name not in where and name not in self.names]:
                raise IdentificationError(
                    f"the constraints refer to {unknown[0]}, which is not a parameter; the parameters are {', '.join(names)}"
                )
            gone = [name for k, name in enumerate(own) if rows[:, k].any() and name not in where]
            if gone:
                raise IdentificationError(
                    f"the constraints refer to {', '.join(gone)}, which the selected friction model replaces",
                    "disable the selection of friction with {terms}",
                    terms="Terms(choose=())",
                )
            moved = np.zeros((len(rows), len(names)))
            for k, name in enumerate(own):
                if name in where:
                    moved[:, where[name]] = rows[:, k]
            blank = no_constraints(len(names))
            equal, least = np.split(moved, [len(given.equal)])
            given = dataclasses.replace(
                blank, equal=equal, equal_to=given.equal_to, least=least, least_of=given.least_of, names=names
            )
            consistent = dataclasses.replace(consistent, constraints=given)
        return consistent.of(names)


def known_friction(chain: Chain, terms: Terms) -> tuple[DriveTerm, ...]:
    """Drive terms of friction that are taken from the chain instead of identified."""
    return tuple(t for t in FRICTION if t not in terms.drives and np.any(np.asarray(getattr(chain.friction, t))))


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
    if known := known_friction(chain, terms):  # a friction model would replace it
        if further:
            raise IdentificationError(
                f"further terms replace the friction of the model, of which {', '.join(known)} is not identified",
                "Add it to the drive terms, or set it to zero in the model",
            )
    elif choice is not None and choice.further:
        friction = choice.further
    elif further or choice is not None:  # as friction terms, viscous and Coulomb friction are filtered like the torques
        width = np.asarray(chain.friction.coulomb_velocity, float)
        friction = (*chain_terms(width, terms.drives), *further) or None
    if friction is not None:
        rest = tuple(term for term in columns.drive_terms if term not in FRICTION)
        columns = dataclasses.replace(columns, drive_terms=rest, friction=FrictionModel(friction))
    filters = filters.but(delay=delay)
    kinds = tuple(kind for kind in KINDS if kind != "spring")
    confirmed = () if choice is None else tuple(sorted({one.joint for one in choice.adopted if one.kind in kinds}))
    return Setup(chain, columns, filters, delay, terms, confirmed)
