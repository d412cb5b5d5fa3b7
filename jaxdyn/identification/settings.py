"""What a log is read with, chosen by blocked cross-validation: delays, widths of the smooth sign, springs."""

import dataclasses
import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError
from ..io.log import Log
from ..model.chain import Chain
from .accumulate import accumulate
from .base_parameters import as_float64, base_parameters
from .columns import DRIVE_TERMS, Columns, DriveTerm, ExtraColumns
from .completion import given_torque
from .delay import least_by_parabola, shifted_torques
from .preprocessing import Samples, _part, preprocess, split

WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the smooth sign [rad/s or m/s]
LONGEST = 0.02  # delay, to either side [s]
SHIFTS = 10  # to either side of none
BLOCKS = 6  # stretches that are left out in turn, of all runs together at least
PASSES = 3  # over delays, widths and springs
RIDGE = 1e-11  # of columns of unit norm
GAIN = 0.01  # relative fall of a joint's error that a choice has to bring


@dataclasses.dataclass(frozen=True, eq=False)
class Settings:
    """How runs are read, and what stands beside the rigid body; a choice of `choose_settings`.

    Attributes:
        delay: (n,) how much later than the positions each joint's torque was logged [s].
        coulomb_velocity: (n,) width of the smooth sign in Coulomb friction [rad/s or m/s].
        springs: joints (counted from 1) with a spring.
        errors: (n,) root mean square of the torque error on stretches left out, with these settings [N m or N].
        errors_before: (n,) the same with the chain's own widths, without delays and springs.
    """

    delay: Float[np.ndarray, " n"]
    coulomb_velocity: Float[np.ndarray, " n"]
    springs: tuple[int, ...]
    errors: Float[np.ndarray, " n"]
    errors_before: Float[np.ndarray, " n"]

    def chain(self, chain: Chain) -> Chain:
        """The chain with the widths chosen."""
        widths = jnp.asarray(self.coulomb_velocity, chain.dtype)
        return eqx.tree_at(lambda c: c.coulomb_velocity, chain, widths)

    def __str__(self) -> str:
        lines = [f"{'joint':>5} {'delay [ms]':>10} {'width':>6} {'spring':>6} {'error':>9} {'before':>9}"]
        for j, (d, w, e, b) in enumerate(
            zip(self.delay, self.coulomb_velocity, self.errors, self.errors_before, strict=True), 1
        ):
            spring = "yes" if j in self.springs else "no"
            lines.append(f"{j:5d} {1e3 * d:10.2f} {w:6.3g} {spring:>6} {e:9.4f} {b:9.4f}")
        return "\n".join(lines)


def choose_settings(
    chain: Chain,
    runs: Log | Samples | Sequence[Log | Samples],
    *,
    drive_terms: Sequence[DriveTerm] = DRIVE_TERMS,
    extra: Sequence[ExtraColumns] = (),
    springs: bool = True,
    position_cutoff: float | None = None,
    torque_cutoff: float | None = None,
    stride: int | None = None,
    share: float = 1.0,
) -> Settings:
    """Choose each joint's delay, width of the smooth sign, and whether it has a spring, by blocked cross-validation.

    The runs are cut into stretches. Each is predicted by a weighted least-squares fit to the others, and what a joint gets
    is what predicts its torque best: its delay by a parabola through the three least errors, a width, and a spring where
    that takes 1 % off the error. Joints share the rigid body, so all of them are tried at once and in turn, three
    times. Everything is chosen from triangular factors of the stretches, which hold the columns of all widths and the
    torques at all shifts: no sample is touched twice.

    Args:
        chain: the robot.
        runs: what is to be fitted, one or several; nothing that is to be held out.
        drive_terms: as for `identify`; without "coulomb" no width is chosen.
        extra: as for `identify`.
        springs: whether springs are tried.
        position_cutoff, torque_cutoff, stride: as in `preprocess`; chosen from the first run, for all, where None.
        share: use this first share of each run only.

    Raises:
        IdentificationError: the runs do not fit the chain, or are too short to be cut into stretches.

    Cost: some 5 s for 2000 samples of 7 joints.
    """
    listed = [runs] if isinstance(runs, Log | Samples) else list(runs)
    samples: list[Samples] = []
    for run in listed:
        if isinstance(run, Log):
            run = preprocess(run, position_cutoff=position_cutoff, torque_cutoff=torque_cutoff, stride=stride)
            position_cutoff, torque_cutoff = run.position_cutoff, run.torque_cutoff
        if run.n != chain.n:
            raise IdentificationError(f"{run.source}: the log has {run.n} joints, the model has {chain.n}")
        samples.append(run if share == 1.0 else split(run, share)[0])
    if not samples:
        raise IdentificationError("there is no run to choose settings from")
    with jax.enable_x64(True):
        return _Search(chain, samples, tuple(drive_terms), tuple(extra), springs).settings()


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    """One setting a joint: delay [s], width by its number, spring."""

    delay: np.ndarray
    width: np.ndarray
    spring: np.ndarray

    def but(self, **changes: np.ndarray) -> "_State":
        return dataclasses.replace(self, **changes)


class _Search:
    """Inner products of the stretches' columns, and the errors of a state on each, fitted to the others."""

    def __init__(
        self,
        chain: Chain,
        samples: Sequence[Samples],
        terms: tuple[DriveTerm, ...],
        extra: tuple[ExtraColumns, ...],
        springs: bool,
    ):
        self.chain, self.springs, self.coulomb = chain, springs, "coulomb" in terms
        self.shifts = np.linspace(-LONGEST, LONGEST, 2 * SHIFTS + 1)
        own = np.asarray(chain.coulomb_velocity, float)
        self.widths = np.concatenate([own[None], np.broadcast_to(np.array(WIDTHS)[:, None], (len(WIDTHS), chain.n))])
        columns = Columns(tuple(t for t in terms if t != "coulomb"), extra)
        kept = base_parameters(chain, columns).kept
        whole = len(columns.names(chain.n))
        self.size = len(kept)
        model, rest = as_float64(chain), np.asarray(chain.rest_position, float)
        stretches, counts = [], []
        for run in samples:
            for part in _stretches(run, -(-BLOCKS // len(samples))):
                part, torques = shifted_torques(part, self.shifts)
                given = given_torque(chain, Columns(terms, extra), part.qd, part.qdd)
                signals = np.concatenate(
                    [
                        np.stack([np.tanh(part.qd / width) for width in self.widths], axis=2),
                        (part.q - rest)[:, :, None],
                        torques - given[:, :, None],
                    ],
                    axis=2,
                )
                r = accumulate(columns, model, part.q, part.qd, part.qdd, part.tau, signals=signals).r
                r = r[:, :, [*kept.tolist(), *range(whole, r.shape[2] - 1)]]
                stretches.append(r.transpose(0, 2, 1) @ r)
                counts.append(len(part))
        if len(stretches) < 2:
            raise IdentificationError("the runs are too short to be cut into stretches that are left out in turn")
        self.stretches, self.counts = np.stack(stretches), np.array(counts)
        self.noise = np.ones((len(stretches), chain.n))

    def settings(self) -> Settings:
        """Delays, widths and springs in turn."""
        n = self.chain.n
        state = _State(np.zeros(n), np.zeros(n, int), np.zeros(n, bool))
        before = now = self.errors(state)
        for _ in range(PASSES):
            tried = np.array([self.errors(state.but(delay=np.full(n, d))) for d in self.shifts])
            state, now = self._better(state, now, state.but(delay=_least(self.shifts, tried)), 0.0)
            if self.coulomb:
                tried = np.array([self.errors(state.but(width=np.full(n, k))) for k in range(len(self.widths))])
                state, now = self._better(state, now, state.but(width=np.argmin(tried, axis=0)), GAIN)
            if self.springs:
                for spring in (~state.spring, np.zeros(n, bool)):
                    state, now = self._better(state, now, state.but(spring=spring), GAIN)
        return Settings(
            delay=state.delay,
            coulomb_velocity=self.widths[state.width, np.arange(n)],
            springs=tuple((np.flatnonzero(state.spring) + 1).tolist()),
            errors=now,
            errors_before=before,
        )

    def _better(self, state: _State, now: np.ndarray, new: _State, gain: float) -> tuple[_State, np.ndarray]:
        """Of a new state what makes a joint's error less, by the gain where it is more elaborate."""
        least = np.where(state.spring & ~new.spring, -gain, gain)
        taken = self.errors(new) < (1 - least) * now
        chosen = _State(
            *(np.where(taken, getattr(new, f.name), getattr(state, f.name)) for f in dataclasses.fields(_State))
        )
        return chosen, self.errors(chosen)

    def errors(self, state: _State) -> Float[np.ndarray, " n"]:
        """(n,) root mean square over all stretches, each predicted by a fit to the others [N m]."""
        squares, total = np.zeros(self.chain.n), self.stretches.sum(axis=0)
        chosen, place = self._columns(state)
        for k, mine in enumerate(self.stretches):
            others, count = total - mine, self.counts.sum() - self.counts[k]
            x = np.zeros(0)
            for _ in range(3):
                x = _solve(others, chosen, place, 1 / np.maximum(self.noise[k], 1e-12) ** 2)
                self.noise[k] = np.sqrt(_left(others, chosen, place, x) / count)
            squares += _left(mine, chosen, place, x)
        return np.sqrt(squares / self.counts.sum())

    def _columns(self, state: _State) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each joint the columns of the system and the torque by those of the stretches, and where they stand in it."""
        b, widths, n = self.size, len(self.widths), self.chain.n
        chosen, place, end = [], [], b
        for j in range(n):
            own = [b + int(state.width[j])] * self.coulomb + [b + widths] * int(state.spring[j])
            pick = np.zeros((b + widths + 1 + len(self.shifts), b + len(own) + 1))
            pick[[*range(b), *own], range(b + len(own))] = 1
            pick[b + widths + 1 :, -1] = _between(self.shifts, state.delay[j])
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


def _stretches(samples: Samples, count: int) -> list[Samples]:
    """A run in so many parts, a period of the lower cutoff apart: neighbours share what the filter spread over them."""
    guard = 0.5 / min(samples.position_cutoff, samples.torque_cutoff)
    margin = int(np.ceil(guard * samples.rate))
    edges = np.linspace(0, len(samples), count + 1).astype(int).tolist()
    return [_part(samples, a + margin, b - margin) for a, b in itertools.pairwise(edges) if b - a > 4 * margin]


def _between(shifts: np.ndarray, d: float) -> np.ndarray:
    """Weights of the shifts whose sum is a cubic's value at d (Lagrange, on the four nearest)."""
    step = shifts[1] - shifts[0]
    first = int(np.clip(np.floor((d - shifts[0]) / step) - 1, 0, len(shifts) - 4))
    at = (d - shifts[first]) / step
    weights = np.zeros(len(shifts))
    for i in range(4):
        weights[first + i] = np.prod([(at - k) / (i - k) for k in range(4) if k != i])
    return weights


def _least(shifts: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Where each column of squared errors is least, by a parabola through its three least; zero at an end."""
    seconds, _, inside = least_by_parabola(shifts, errors**2)
    return np.where(inside, seconds, 0.0)
