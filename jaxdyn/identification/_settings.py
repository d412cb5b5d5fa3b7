"""What a log is read with, chosen by blocked cross-validation: filter, delays, dry friction and springs."""

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError
from ..io._logs.log import Log
from ..model._chain import Chain, with_leaves
from ._delay import least_by_parabola, shifted_torques
from ._friction.memory import MaxwellSlip
from ._friction.model import FrictionModel
from ._friction.terms import Coulomb, FrictionTerm, Offset, Viscous
from ._preprocessing.samples import Filters, default_stride, preprocess, split
from ._regression.accumulate import accumulate
from ._regression.base_parameters import base_parameters
from ._regression.columns import Columns
from ._regression.completion import given_torque
from ._regression.robot import as_float64
from ._stretches import FullRun, full_run

WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the smooth sign [rad/s or m/s]
SLIPS = (5e-4, 1e-3, 2e-3, 4e-3)  # over which a slipping spring gives way [rad or m]
CUTOFFS = (0.5, 0.625, 0.75, 1.0, 1.25)  # times the usual one
LONGEST = 0.02  # delay, to either side [s]
SHIFTS = 10  # to either side of none
BLOCKS = 6  # stretches that are left out in turn, of all runs together at least
PASSES = 2  # over dry friction, springs and delays
RIDGE = 1e-11  # of columns of unit norm
GAIN = 0.01  # relative fall of a joint's error that a choice has to bring


@dataclasses.dataclass(frozen=True, eq=False)
class Settings:
    """How runs are read, and what stands beside the rigid body; a choice of `choose_settings`.

    Attributes:
        cutoff: low-pass on positions and torques [Hz]; None leaves it as it is given or usual.
        delay: (n,) how much later than the positions each joint's torque was logged [s].
        springs: joints (counted from 1) with a spring.
        friction: a friction model in place of the drive terms viscous, coulomb and offset; None keeps those.
        coulomb_velocity: (n,) width of the smooth sign in those [rad/s or m/s].
        errors: (n,) root mean square of the torque error on stretches left out, with these settings, in the widest band
            tried [N m or N].
        errors_before: (n,) the same with the usual filter and the chain's own widths, without delays and springs.
    """

    cutoff: float | None
    delay: Float[np.ndarray, " n"]
    springs: tuple[int, ...]
    friction: FrictionModel | None
    coulomb_velocity: Float[np.ndarray, " n"]
    errors: Float[np.ndarray, " n"]
    errors_before: Float[np.ndarray, " n"]

    def chain(self, chain: Chain) -> Chain:
        """The chain with the widths chosen."""
        widths = jnp.asarray(self.coulomb_velocity, chain.dtype)
        return with_leaves(chain, {"friction.coulomb_velocity": widths})

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        slips = _slips(self.friction, len(self.delay))
        dry = ", ".join(
            f"{'sign' if np.isnan(z) else 'slip'} {w if np.isnan(z) else z:.3g}"
            for w, z in zip(self.coulomb_velocity, slips, strict=True)
        )
        springs = f"springs at joints {', '.join(map(str, self.springs))}" if self.springs else "no springs"
        delays = ", ".join(f"{1e3 * d:.3g}" for d in self.delay)
        band = "" if self.cutoff is None else f"low-pass {self.cutoff:g} Hz; "
        return f"{band}widths of dry friction {dry}; {springs}; delays {delays} ms"

    def __str__(self) -> str:
        """A line a joint."""
        slips = _slips(self.friction, len(self.delay))
        head = f"{'joint':>5} {'dry friction':>16} {'spring':>6} {'delay [ms]':>10} {'error':>9} {'before':>9}"
        lines = [head if self.cutoff is None else f"{head}   low-pass {self.cutoff:g} Hz"]
        for j, delay in enumerate(self.delay):
            dry = f"tanh {self.coulomb_velocity[j]:.3g}" if np.isnan(slips[j]) else f"slip {slips[j]:.3g}"
            spring = "yes" if j + 1 in self.springs else "no"
            errors = f"{self.errors[j]:9.4f} {self.errors_before[j]:9.4f}"
            lines.append(f"{j + 1:5d} {dry:>16} {spring:>6} {1e3 * delay:10.2f} {errors}")
        return "\n".join(lines)


def _slips(friction: FrictionModel | None, n: int) -> Float[np.ndarray, " n"]:
    """(n,) widths of the slipping springs; NaN where a joint has none."""
    out = np.full(n, np.nan)
    for term in friction.terms if friction is not None else ():
        if isinstance(term, MaxwellSlip):
            where = [j - 1 for j in term.joints] if term.joints else list(range(n))
            out[where] = np.broadcast_to(np.asarray(term.width, float), (n,))[where]
    return out


def choose_settings(
    chain: Chain,
    runs: Log | Sequence[Log],
    columns: Columns | None = None,
    filters: Filters | None = None,
    *,
    share: float = 1.0,
    slips: bool = True,
    springs: bool = True,
    delays: bool = True,
    cutoffs: bool = True,
) -> Settings:
    """Choose the filter and, joint by joint, dry friction, springs and delays by blocked cross-validation.

    The runs are cut into stretches, each predicted by a weighted least-squares fit to the others; what a joint gets is what
    predicts its torque best. Dry friction is a smooth sign of one of six widths, or a slipping spring (`MaxwellSlip`) of one
    of four, in which friction builds up over a way after each reversal; a spring must take 1 % off the error; a
    delay comes from a parabola through the three least errors. Joints share the rigid body, so all of them are tried at
    once, and one kind after the other, twice. The low-pass is chosen last, between a half and 1.25 of the usual cutoff:
    whichever it is, predictions are held against the torque behind the widest, so that no filter wins by
    leaving out what is hard to predict.

    Everything is chosen from inner products of the stretches' columns, those of all kinds of friction and the torques at all
    shifts among them: no sample is touched twice.

    Args:
        chain: the robot.
        runs: what is to be fitted, one or several; nothing that is to be held out.
        columns: as for `identify`; without the drive term "coulomb" no dry friction is chosen.
        filters: as in `preprocess`, without a delay; where a cutoff is given, no other is tried.
        share: use this first share of each run only.
        slips: whether slipping springs are tried.
        springs: whether springs are tried.
        delays: whether delays are tried.
        cutoffs: whether other cutoffs are tried.

    Raises:
        IdentificationError: the runs do not fit the chain, or are too short to be cut into stretches; a delay is given.

    Cost: some 10 s for 20 000 rows of 7 joints.
    """
    logs = [runs] if isinstance(runs, Log) else list(runs)
    if not logs:
        raise IdentificationError("there is no run to choose settings from")
    for log in logs:
        if log.n != chain.n:
            raise IdentificationError(f"{log.source}: the log has {log.n} joints, the model has {chain.n}")
    columns, filters = columns or Columns(), filters or Filters()
    if filters.delay is not None:
        raise IdentificationError("settings hold the delays: give delay or settings, not both")
    usual = preprocess(logs[0], filters.but(stride=1))
    free = cutoffs and filters.position_cutoff is None and filters.torque_cutoff is None
    pairs = [(usual.position_cutoff, usual.torque_cutoff)]
    if free:
        usual_cutoff = pairs[0][0]
        pairs = [(c * usual_cutoff, c * usual_cutoff) for c in CUTOFFS if c * usual_cutoff < usual.rate / 4]
    lowest, highest = min(min(p) for p in pairs), max(max(p) for p in pairs)
    by = filters.stride or default_stride(usual.rate, highest)

    def read(pair: tuple[float, float]) -> list[FullRun]:
        parts = []
        for log in logs:
            run = preprocess(
                log, filters.but(position_cutoff=pair[0], torque_cutoff=pair[1], margin=2 / lowest, stride=1)
            )
            parts.append(full_run(run if share == 1.0 else split(run, share, 1 / lowest)[0], by))
        return parts

    with jax.enable_x64(True):
        search = _Search(chain, columns, slips)
        bands = [search.products(read(pair), lowest) for pair in pairs]
        middle = pairs.index((usual.position_cutoff, usual.torque_cutoff))
        n = chain.n
        state = _State(np.zeros(n), np.zeros(n, int), np.zeros(n, bool))
        errors = lambda state, k=middle: search.errors(state, bands[k], bands[-1])
        before = now = errors(state)
        for _ in range(PASSES):
            if "coulomb" in columns.drive_terms:
                tried = np.array([errors(state.but(dry=np.full(n, k))) for k in range(search.kinds)])
                state, now = _better(errors, state, now, state.but(dry=np.argmin(tried, axis=0)), GAIN)
            if springs:
                for spring in (~state.spring, np.zeros(n, bool)):
                    state, now = _better(errors, state, now, state.but(spring=spring), GAIN)
            if delays:
                tried = np.array([errors(state.but(delay=np.full(n, d))) for d in search.shifts])
                seconds, _, inside = least_by_parabola(search.shifts, tried**2)
                state, now = _better(errors, state, now, state.but(delay=np.where(inside, seconds, 0.0)), GAIN)
        sizes = [float(np.log(errors(state, k)).mean()) for k in range(len(pairs))]
        best = int(np.argmin(sizes))
        cutoff = pairs[best][0] if free else None
        return search.settings(state, cutoff, pairs[best][1], errors(state, best), before)


def known_or_estimated_delay(
    chain: Chain,
    logs: Sequence[Log],
    columns: Columns,
    filters: Filters,
    share: float = 1.0,
) -> Float[np.ndarray, " n"]:
    """One delay a joint [s]: as the filters give it, or "estimated": that of `choose_settings` with the usual filter.

    It is found beside friction that builds up over a way and beside springs, which would otherwise be taken for delays; a joint
    whose torque no shift explains clearly better keeps its own time.

    Raises:
        IdentificationError: not one finite delay or one a joint; another word than "estimated".
    """
    delay = filters.delay
    if isinstance(delay, str):
        if delay != "estimated":
            raise IdentificationError(
                f'the delay is {delay!r}; give seconds, one number or one a joint, or "estimated"'
            )
        return choose_settings(chain, logs, columns, filters.but(delay=None), share=share, cutoffs=False).delay
    seconds = np.asarray(delay, float)
    if seconds.shape not in ((), (chain.n,)) or not np.all(np.isfinite(seconds)):
        raise IdentificationError(
            f"the delay is {delay}; give a finite number of seconds, one or one a joint ({chain.n})"
        )
    return np.broadcast_to(seconds, (chain.n,)).copy()


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    """One setting a joint: delay [s], dry friction by its number, spring."""

    delay: np.ndarray
    dry: np.ndarray
    spring: np.ndarray

    def but(self, **changes: np.ndarray) -> "_State":
        return dataclasses.replace(self, **changes)


def _better(errors, state: _State, now: np.ndarray, new: _State, gain: float) -> tuple[_State, np.ndarray]:
    """Of a new state what makes a joint's error less, by the gain where it is more elaborate; nothing if it is worse in all."""
    least = np.where(state.spring & ~new.spring, -gain, gain)
    taken = errors(new) < (1 - least) * now
    fields = (f.name for f in dataclasses.fields(_State))
    chosen = _State(*(np.where(taken, getattr(new, name), getattr(state, name)) for name in fields))
    then = errors(chosen)
    return (chosen, then) if np.log(then / now).sum() < gain * taken.sum() else (state, now)


@dataclasses.dataclass(frozen=True, eq=False)
class _Products:
    """Inner products of the columns of each stretch, and how many rows it has."""

    stretches: Float[np.ndarray, "b n w w"]
    counts: Float[np.ndarray, " b"]


class _Search:
    """The columns among which a state picks, and the errors of a state on each stretch, fitted to the others."""

    def __init__(self, chain: Chain, columns: Columns, slips: bool):
        self.chain, self.all, self.terms = chain, columns, columns.drive_terms
        self.shifts = np.linspace(-LONGEST, LONGEST, 2 * SHIFTS + 1)
        own = np.asarray(chain.friction.coulomb_velocity, float)
        dry: list[FrictionTerm] = [Coulomb(width=own), *(Coulomb(width=w) for w in WIDTHS)]
        self.widths = np.concatenate([own[None], np.broadcast_to(np.array(WIDTHS)[:, None], (len(WIDTHS), chain.n))])
        self.dry = (*dry, *((MaxwellSlip(width=w) for w in SLIPS) if slips else ()))
        self.kinds = len(self.dry)
        self.columns = Columns(tuple(t for t in self.terms if t != "coulomb"), columns.extra)
        self.kept = base_parameters(chain, self.columns).kept
        self.size = len(self.kept)

    def products(self, runs: Sequence[FullRun], lowest: float) -> _Products:
        """Of the stretches of all runs, a period of the lowest cutoff apart: neighbours share what the filter spread."""
        chain, found, counts = self.chain, [], []
        model, rest = as_float64(chain), np.asarray(chain.springs.rest_position, float)
        whole = len(self.columns.names(chain.n))
        for run in runs:
            dry = FrictionModel(self.dry, run.samples.torque_cutoff).blocks(run.samples)[run.kept]
            s = dataclasses.replace(run.thinned, notes=())
            margin = int(np.ceil(0.5 / lowest * s.rate))
            edges = np.linspace(0, len(s), -(-BLOCKS // len(runs)) + 1).astype(int).tolist()
            for a, b in itertools.pairwise(edges):
                if b - a <= 4 * margin:
                    continue
                part, torques, inside = shifted_torques(s.part(a + margin, b - margin), self.shifts)
                given = given_torque(chain, self.all, part.qd, part.qdd)
                own = [dry[a + margin : b - margin][inside], (part.q - rest)[:, :, None], torques - given[:, :, None]]
                signals = np.concatenate(own, axis=2)
                r = accumulate(self.columns, model, part.q, part.qd, part.qdd, part.tau, signals=signals).r
                r = r[:, :, [*self.kept.tolist(), *range(whole, r.shape[2] - 1)]]
                found.append(r.transpose(0, 2, 1) @ r)
                counts.append(len(part))
        if len(found) < 2:
            raise IdentificationError("the runs are too short to be cut into stretches that are left out in turn")
        return _Products(np.stack(found), np.array(counts, float))

    def settings(
        self, state: _State, cutoff: float | None, torque_cutoff: float, errors: np.ndarray, before: np.ndarray
    ) -> Settings:
        """What a state stands for."""
        n, smooth = self.chain.n, len(self.widths)
        slipping = state.dry >= smooth
        widths = self.widths[np.where(slipping, 0, state.dry), np.arange(n)]
        friction = None
        if slipping.any():
            over = np.array([*SLIPS, SLIPS[0]])[np.where(slipping, state.dry - smooth, -1)]
            numbers = lambda which: tuple((np.flatnonzero(which) + 1).tolist())
            usual: dict[str, FrictionTerm] = {"viscous": Viscous(), "offset": Offset()}
            terms = [term for name, term in usual.items() if name in self.terms]
            terms.append(MaxwellSlip(width=over, joints=None if slipping.all() else numbers(slipping)))
            if not slipping.all():
                terms.append(Coulomb(width=widths, joints=numbers(~slipping)))
            friction = FrictionModel(tuple(terms), torque_cutoff)
        springs = tuple((np.flatnonzero(state.spring) + 1).tolist())
        return Settings(cutoff, state.delay, springs, friction, widths, errors, before)

    def errors(self, state: _State, fitted: _Products, tested: _Products) -> Float[np.ndarray, " n"]:
        """(n,) root mean square over all stretches of `tested`, each predicted by a fit to the others of `fitted` [N m]."""
        n, squares, total = self.chain.n, np.zeros(self.chain.n), fitted.stretches.sum(axis=0)
        chosen, place = self._columns(state)
        noise = np.ones(n)
        for k, mine in enumerate(tested.stretches):
            others, count = total - fitted.stretches[k], fitted.counts.sum() - fitted.counts[k]
            x = np.zeros(0)
            for _ in range(3 if k else 5):
                x = _solve(others, chosen, place, 1 / np.maximum(noise, 1e-12) ** 2)
                noise = np.sqrt(_left(others, chosen, place, x) / count)
            squares += _left(mine, chosen, place, x)
        return np.sqrt(squares / tested.counts.sum())

    def _columns(self, state: _State) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each joint the columns of the system and the torque by those of the stretches, and where they stand in it."""
        b, kinds, n = self.size, self.kinds, self.chain.n
        chosen, place, end = [], [], b
        for j in range(n):
            own = [b + int(state.dry[j])] * ("coulomb" in self.terms) + [b + kinds] * int(state.spring[j])
            pick = np.zeros((b + kinds + 1 + len(self.shifts), b + len(own) + 1))
            pick[[*range(b), *own], range(b + len(own))] = 1
            pick[b + kinds + 1 :, -1] = _between(self.shifts, state.delay[j])
            chosen.append(pick)
            place.append(np.array([*range(b), *range(end, end + len(own))]))
            end += len(own)
        return chosen, place


def _solve(grams: np.ndarray, chosen: list[np.ndarray], place: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Weighted least squares over all joints by normal equations, in columns of unit norm; what nothing tells stays zero."""
    size = max(int(at.max()) for at in place) + 1
    h, right = np.zeros((size, size)), np.zeros(size)
    for gram, pick, at, weight in zip(grams, chosen, place, weights, strict=True):
        own = weight * (pick.T @ gram @ pick)
        h[np.ix_(at, at)] += own[:-1, :-1]
        right[at] += own[:-1, -1]
    norms = np.sqrt(np.diag(h))
    norms[norms == 0] = 1.0
    scaled = h / norms[:, None] / norms + RIDGE * np.eye(size)
    return np.linalg.solve(scaled, right / norms) / norms


def _left(grams: np.ndarray, chosen: list[np.ndarray], place: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """(n,) sums of squares that a solution leaves of each joint's torques."""
    out = []
    for gram, pick, at in zip(grams, chosen, place, strict=True):
        along = pick @ np.append(-x[at], 1.0)
        out.append(max(float(along @ gram @ along), 0.0))
    return np.array(out)


def _between(shifts: np.ndarray, d: float) -> np.ndarray:
    """Weights of the shifts whose sum is a cubic's value at d (Lagrange, on the four nearest)."""
    step = shifts[1] - shifts[0]
    first = int(np.clip(np.floor((d - shifts[0]) / step) - 1, 0, len(shifts) - 4))
    at = (d - shifts[first]) / step
    weights = np.zeros(len(shifts))
    for i in range(4):
        weights[first + i] = np.prod([(at - k) / (i - k) for k in range(4) if k != i])
    return weights
