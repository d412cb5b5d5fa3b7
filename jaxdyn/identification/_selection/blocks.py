"""Cross-validation blocks of runs, with the columns of all candidate terms and the torque at all time shifts."""

import copy
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...errors import LogError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._delay import LATEST, at_shifts
from .._friction.fit import base_with_friction
from .._friction.model import FrictionModel
from .._friction.terms import FRICTION, Coulomb, FrictionTerm
from .._preprocessing.filters import low_pass_before
from .._preprocessing.samples import Filters, default_stride, divide, picked, preprocess, split
from .._regression.base_parameters import base_parameters
from .._regression.blocks import BLOCKS, RowBlocks, contiguous
from .._regression.columns import DriveTerm, with_friction_at_joints
from .._regression.completion import given_samples_torque
from .._regression.robot import as_float64
from .._regression.rows import by_chunks, chunk_rows
from .._stretches import FullRun, fit_friction_beside, full_run, motion_of
from .candidates import Candidates, friction_of
from .search import Grams, Search, solve, system
from .terms import Terms

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
        dry = (Coulomb(width=self.widths),) if "coulomb" in self.terms.drives else ()
        plain = Candidates(dry, further, (), False)
        drives = tuple(term for term in self.columns.drive_terms if term not in FRICTION)
        columns = dataclasses.replace(self.columns, drive_terms=drives)
        model = friction_of(plain, plain.start(self.chain.n), self.terms, runs[0].samples.torque_cutoff)
        base = base_with_friction(self.chain, columns, model)
        samples = [run.samples for run in runs]
        found = fit_friction_beside(self.model, columns, base, samples, model, self.stride)
        return found.model.terms[-len(further) :]

    def plain(self, candidates: Candidates, runs: Sequence[FullRun]) -> Search:
        """A search with the plain model only, over the longest delays if the runs are long enough for them."""
        found = dataclasses.replace(candidates, dry=candidates.dry[:1], further=(), spring=False)
        wide = copy.copy(self)
        if len(self.shifts) > 1:
            wide.shifts = np.linspace(-LATEST, LATEST, 2 * COARSE + 1)
        try:
            grams = wide.grams(found, runs, None)
        except LogError:  # gaps leave only pieces shorter than the delays
            grams = self.grams(found, runs, None)
        start = candidates.start(self.chain.n)
        return Search(grams, start.but(more=start.more[:, : grams.own]))

    def delayed(self, late: Float[np.ndarray, " n"]) -> "Reading":
        """A copy that looks for delays about the given ones."""
        out = copy.copy(self)
        out.late = late
        return out

    def load(self, plain: Search) -> Float[np.ndarray, " b"]:
        """Base parameters of the plain fit, with zero friction, from which load-dependent friction computes its load."""
        grams, state = plain.grams, plain.state.but(delay=self.late)
        noise = grams.left_out(state).noise
        h, right = system(grams.parts(state), noise)
        found = solve(h.sum(0), right.sum(0))[: self.base.size]
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
        if not candidates.further and not candidates.spring:
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
        own = [w, blocks[kept], spring[:, :, : int(candidates.spring)], torques - given[:, :, None]]
        return np.concatenate(own, axis=2), known[kept].astype(float), part.t, part.qd
