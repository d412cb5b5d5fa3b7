"""Cross-validated search for regressor columns, from factors of blocks that are accumulated only once.

All joints share the rigid-body columns, and each joint has further columns from which to select. The factors of the
blocks contain all columns and the torque at several time shifts. A selection can therefore be fitted to all blocks but
one, and tested on that block, without reading the log again.

Torque terms that the user specifies in addition to the links' inertias (`Terms`).

Terms from the tables of a settings file (`term_of`).

Candidate terms for each joint, and the friction model that consists of the selected terms."""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from .._summary import Summary
from ..errors import IdentificationError
from ..model.chain import Chain
from .columns import DRIVE_TERMS, Columns, ExtraColumns, all_columns
from .delay import least_by_parabola
from .factors import BlockFactors
from .friction_model import FrictionModel
from .friction_terms import (
    Asymmetry,
    Cable,
    Coulomb,
    Counterbalance,
    Dahl,
    FrictionTerm,
    GearRipple,
    LoadDependent,
    LoadedSlip,
    LuGre,
    MaxwellSlip,
    PowerViscous,
    Stribeck,
    TemperatureDependent,
    chain_terms,
)

RIDGE = 1e-11  # added to the diagonal of the normal equations after scaling columns to unit norm
LEVEL = 0.05  # of the one-sided test of a gain on left-out blocks
SURE = 2.0  # standard errors by which a coefficient must be positive: 95 % of a normal distribution, two-sided
REGIONS = 4  # operating regions of each joint: quarters of its samples, from fast backwards to fast forwards
LEAST = 0.01  # minimum relative reduction of a joint's RMS error


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """The selections of all joints.

    Attributes:
        dry: index of each joint's dry-friction column.
        more: mask of each joint's further columns.
        delay: torque delay of each joint [s].
    """

    dry: Int[np.ndarray, " n"]
    more: Bool[np.ndarray, "n k"]
    delay: Float[np.ndarray, " n"]

    def but(self, **changes: np.ndarray) -> "State":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def taken(self, joints: Bool[np.ndarray, " n"], other: "State") -> "State":
        """A copy in which some joints have the selections of another state."""
        pick = lambda a, b: np.where(joints.reshape(-1, *[1] * (a.ndim - 1)), b, a)
        return State(*(pick(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)))

    def same_at(self, other: "State") -> Bool[np.ndarray, " n"]:
        """Mask of the joints at which both selections are equal."""
        return (self.dry == other.dry) & (self.delay == other.delay) & (self.more == other.more).all(axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Gain:
    """Reduction of each joint's squared error on left-out blocks.

    Attributes:
        share: (n,) reduction of the squared error, relative to its previous value.
        ratio: (n,) mean over the blocks of (before - after) / (before + after), divided by the standard error of this
            mean. Here, before and after are the squared errors of a block. The ratio measures how consistently the
            blocks improve, whatever the size of their errors.
        blocks: number of blocks.
    """

    share: Float[np.ndarray, " n"]
    ratio: Float[np.ndarray, " n"]
    blocks: int

    @property
    def confirmed(self) -> Bool[np.ndarray, " n"]:
        """Mask of the joints whose gain is significant and reduces the RMS error by at least 1 %.

        Significant means the one-sided test of the mean gain at the level of 5 %, by Student's distribution with k - 1
        degrees of freedom for k blocks: a short log must confirm a change more clearly than a long one. The fits to all
        blocks but one share most of their data, so the errors of different blocks are correlated. For this, the variance
        of the mean is s^2 (1 / k + 1 / (k - 1)) instead of s^2 / k, where 1 / (k - 1) is the ratio of left-out to fitted
        data (Nadeau and Bengio, Inference for the Generalization Error, 2003).
        """
        k = self.blocks
        least = stdtrit(k - 1, 1 - LEVEL) * np.sqrt(1 + k / (k - 1))
        return (self.ratio > least) & (self.share > 1 - (1 - LEAST) ** 2)

    @property
    def better(self) -> Bool[np.ndarray, " n"]:
        """Mask of the joints whose gain exceeds two standard errors and reduces the RMS error by at least 1 %.

        This suffices for a choice that adds no parameter, such as that of a filter.
        """
        return (self.ratio > SURE) & (self.share > 1 - (1 - LEAST) ** 2)

    @property
    def loss(self) -> Bool[np.ndarray, " n"]:
        """Mask of the joints whose RMS error increases by at least 1 % and by more than one standard error.

        This is the one-standard-error rule (Breiman et al. 1984), which prefers the simpler of two models.
        """
        return (self.ratio < -1.0) & (self.share < 1 - (1 + LEAST) ** 2)


def gain(before: Float[np.ndarray, "k n"], after: Float[np.ndarray, "k n"]) -> Gain:
    """Compute the gain from the squared errors of each block and joint, before and after a change."""
    share = (before - after).sum(0) / np.maximum(before.sum(0), 1e-300)
    falls = (before - after) / np.maximum(before + after, 1e-300)
    error = falls.std(axis=0, ddof=1) / np.sqrt(len(falls))
    return Gain(share, falls.mean(0) / np.maximum(error, 1e-9), len(falls))


class Grams:
    """Inner products, in each block, of the columns [rigid body, candidates, torque at each shift].

    Attributes:
        size: number of rigid-body columns.
        shifts: time shifts of the torque [s].
        regions: the same inner products in each operating region instead of each block; None if they are not known.
    """

    regions: "Grams | None" = None

    def __init__(self, blocks: BlockFactors, size: int, shifts: Float[np.ndarray, " s"]):
        self.grams = np.swapaxes(blocks.r, 2, 3) @ blocks.r
        self.counts, self.size, self.shifts = blocks.counts, size, shifts
        self.own = self.grams.shape[2] - size - len(shifts)

    def with_regions(
        self,
        rows: Sequence[Float[np.ndarray, "_ n w"]],
        known: Sequence[Float[np.ndarray, "_ n"]],
        velocity: Sequence[Float[np.ndarray, "_ n"]],
    ) -> "Grams":
        """A copy with the operating regions of the runs: each joint's quarters of its samples, sorted by velocity."""
        out, found, n = copy.copy(self), copy.copy(self), self.grams.shape[1]
        at = np.arange(1, REGIONS) / REGIONS
        joints = zip(np.concatenate(known).T, np.concatenate(velocity).T, strict=True)
        bounds = [
            np.quantile(qd[used != 0], at) if used.any() else at for used, qd in joints
        ]  # unused joints have no rows
        found.grams, found.counts = np.zeros((REGIONS, *self.grams.shape[1:])), np.zeros((REGIONS, n), int)
        for own, used, qd in zip(rows, known, velocity, strict=True):
            for j in range(n):
                label = np.where(used[:, j] != 0, np.searchsorted(bounds[j], qd[:, j]), -1)
                for k in range(REGIONS):
                    part = own[label == k, j]
                    found.grams[k, j] += part.T @ part
                    found.counts[k, j] += len(part)
        out.regions = found
        return out

    def parts(self, state: State) -> list["Part"]:
        """The normal equations of each joint in each block."""
        b, parts, end = self.size, [], self.size
        for j in range(len(state.dry)):
            own = np.union1d([state.dry[j]], np.flatnonzero(state.more[j])).astype(int)
            columns = np.concatenate([np.arange(b), b + own[own >= 0]])
            between = weights_between(self.shifts, state.delay[j])
            at = b + self.own + np.flatnonzero(between)
            between, gram = between[between != 0], self.grams[:, j]
            a = gram[:, columns[:, None], columns]
            c = gram[:, columns[:, None], at] @ between
            y = between @ gram[:, at[:, None], at] @ between
            place = np.concatenate([np.arange(b), np.arange(end, end + len(columns) - b)])
            end += len(columns) - b
            parts.append(Part(place, a, c, y))
        return parts

    def left_out(self, state: State, noise: np.ndarray | None = None) -> "LeftOut":
        """Fit the columns of a selection to all blocks but one, for each block.

        Args:
            noise: noise of the joints for a similar selection, with which the weights of the joints start.
        """
        count = np.maximum(self.counts.sum(0), 1)
        rounds = 4 if noise is None else 2
        sizes = np.ones(len(state.dry)) if noise is None else noise
        parts = self.parts(state)
        whole = [part.total for part in parts]
        for _ in range(rounds):
            h, right = system(whole, sizes)
            x = solve(h, right)
            squares = [max(part.left(x[:, part.place])[0], 0.0) for part in whole]
            sizes = np.sqrt(np.array(squares) / count)
        h, right = system(parts, sizes)
        x = solve(h.sum(0) - h, right.sum(0) - right)
        squares = np.stack([np.maximum(part.left(x[:, part.place]), 0.0) for part in parts], axis=1)
        k, ratio = len(x), np.full((len(parts), self.own), np.inf)
        for j, part in enumerate(parts):
            own = x[:, part.place[self.size :]]
            error = np.sqrt((k - 1) / k * ((own - own.mean(0)) ** 2).sum(0))  # of the jackknife
            chosen = np.union1d([state.dry[j]], np.flatnonzero(state.more[j])).astype(int)
            ratio[j, chosen[chosen >= 0]] = own.mean(0) / np.maximum(error, 1e-300)
        return LeftOut(squares, sizes, ratio)


class LeftOut(NamedTuple):
    """Fits that leave out one block each.

    Attributes:
        squares: (k, n) squared error of each block and joint in the fit to all other blocks.
        noise: (n,) RMS error of each joint in the fit to all blocks.
        ratio: (n, c) each joint's coefficients of the c candidates, divided by their standard errors; infinite for
            candidates that are not selected.
    """

    squares: Float[np.ndarray, "k n"]
    noise: Float[np.ndarray, " n"]
    ratio: Float[np.ndarray, "n c"]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Normal equations of one joint for each of k blocks.

    Attributes:
        place: indices of the joint's columns among the columns of all joints.
        a: inner products of the columns.
        c: inner products of the columns with the torque.
        y: inner product of the torque with itself.
    """

    place: Int[np.ndarray, " m"]
    a: Float[np.ndarray, "k m m"]
    c: Float[np.ndarray, "k m"]
    y: Float[np.ndarray, " k"]

    @property
    def total(self) -> "Part":
        """The normal equations of all blocks together."""
        return Part(self.place, *(x.sum(0)[None] for x in (self.a, self.c, self.y)))

    def left(self, x: Float[np.ndarray, "k m"]) -> Float[np.ndarray, " k"]:
        """Squared residual torque of each block, given a solution for each block."""
        return self.y + (x * ((self.a @ x[:, :, None])[:, :, 0] - 2 * self.c)).sum(1)


def system(parts: Sequence[Part], noise: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
    """Combine the normal equations of all joints for each block, weighted according to the noise of the joints."""
    blocks, end = len(parts[0].y), 1 + max(int(part.place.max(initial=-1)) for part in parts)
    h, right = np.zeros((blocks, end, end)), np.zeros((blocks, end))
    for sigma, part in zip(noise, parts, strict=True):
        weight = 1 / max(sigma, 1e-12) ** 2
        h[:, part.place[:, None], part.place] += weight * part.a
        right[:, part.place] += weight * part.c
    return h, right


def solve(h: Float[np.ndarray, "*k m m"], right: Float[np.ndarray, "*k m"]) -> Float[np.ndarray, "*k m"]:
    """Solve normal equations after scaling columns to unit norm; the parameters of zero columns are zero."""
    norms = np.sqrt(np.maximum(np.diagonal(h, axis1=-2, axis2=-1), 0))
    norms = np.where(norms > 0, norms, 1.0)
    scaled = h / norms[..., :, None] / norms[..., None, :] + RIDGE * np.eye(h.shape[-1])
    return np.linalg.solve(scaled, (right / norms)[..., None])[..., 0] / norms


def weights_between(shifts: Float[np.ndarray, " s"], d: float) -> Float[np.ndarray, " s"]:
    """Weights of the torque shifts for cubic Lagrange interpolation at the shift d, from the four nearest ones."""
    weights = np.zeros(len(shifts))
    if len(shifts) == 1:
        return np.ones(1)
    step = shifts[1] - shifts[0]
    first = int(np.clip(np.floor((d - shifts[0]) / step) - 1, 0, len(shifts) - 4))
    at = (d - shifts[first]) / step
    for i in range(4):
        weights[first + i] = np.prod([(at - k) / (i - k) for k in range(4) if k != i])
    weights[np.abs(weights) < 1e-12] = 0
    return weights


class Search:
    """Stepwise improvement of a selection, with every step confirmed on left-out blocks.

    Attributes:
        state: the current selection.
        squares: (k, n) squared errors of the current selection on left-out blocks.
    """

    def __init__(self, grams: Grams, start: State, positive: Sequence[int] = ()):
        """Start with a selection.

        Args:
            positive: candidates that are selected only if their coefficient is significantly positive.
        """
        self.grams, self.positive = grams, list(positive)
        self.use(start, grams.left_out(start))

    def use(self, state: State, found: LeftOut) -> None:
        """Make a selection the current one."""
        self.state, self.squares, self.noise = state, found.squares, found.noise

    def tried(self, state: State) -> LeftOut:
        """Left-out errors of another selection."""
        return self.grams.left_out(state, self.noise)

    @property
    def errors(self) -> Float[np.ndarray, " n"]:
        """RMS error of each joint on left-out blocks [N m or N]."""
        return np.sqrt(self.squares.sum(0) / np.maximum(self.grams.counts.sum(0), 1))

    @property
    def score(self) -> float:
        """Sum of the logarithms of the joints' errors."""
        return float(np.log(np.maximum(self.errors, 1e-300)).sum())

    def confirmed(self, found: LeftOut) -> tuple[Gain, Bool[np.ndarray, " n"]]:
        """Gain of a selection over the current one, and the joints where it is confirmed and its terms have a valid sign."""
        gained = gain(self.squares, found.squares)
        return gained, gained.confirmed & (found.ratio[:, self.positive] > SURE).all(axis=1)

    def better(self, moves: Sequence[State]) -> bool:
        """Change each joint to the best selection that has a confirmed gain; return True if any joint changed.

        All joints are changed simultaneously, because they share the rigid-body parameters. The change of a joint is
        undone if its gain is not confirmed together with the changes of the other joints.
        """
        gains, valid = zip(*(self.confirmed(self.tried(move)) for move in moves), strict=True)
        shares = np.array([np.where(ok, g.share, -np.inf) for g, ok in zip(gains, valid, strict=True)])
        best, joints = np.argmax(shares, axis=0), np.isfinite(shares.max(axis=0))
        for _ in range(3):
            if not joints.any():
                return False
            state = self._moved(joints, best, moves)
            found = self.tried(state)
            ok = self.confirmed(found)[1]
            kept = joints & ok
            if np.array_equal(kept, joints):
                self.use(state, found)
                return True
            joints = kept
        return False

    def _moved(self, joints: Bool[np.ndarray, " n"], best: Int[np.ndarray, " n"], moves: Sequence[State]) -> State:
        state = self.state
        for k in np.unique(best[joints]).tolist():
            state = state.taken(joints & (best == k), moves[k])
        return state

    def no_worse_than(self, plain: "Search") -> None:
        """Return joints to the plain selection whose total gain is not confirmed, or until no joint is worse than with it."""
        n = len(self.state.dry)
        elsewhere = self.errors_elsewhere(plain.state)
        for _ in range(n + 1):
            gained = gain(plain.squares, self.squares)
            changed = ~self.state.same_at(plain.state)
            lost = changed & ~(gained.confirmed & (self.errors_elsewhere(self.state) <= elsewhere))
            if not lost.any():
                if not gained.loss.any():
                    return
                lost = changed & (gained.share <= gained.share[changed].min()) if changed.any() else changed
            if not lost.any():
                return
            state = self.state.taken(lost, plain.state)
            self.use(state, self.tried(state))

    def errors_elsewhere(self, state: State) -> Float[np.ndarray, " n"]:
        """Squared error of each joint in operating regions left out; 0 if the regions are not known.

        Blocks of time show the same kind of motion as the data that are fitted. A term whose coefficient holds for these
        speeds only may predict them better and another motion worse.
        """
        regions = self.grams.regions
        return np.zeros(len(state.dry)) if regions is None else regions.left_out(state).squares.sum(0)

    def dry_friction(self, kinds: int) -> bool:
        """Try to replace each joint's dry friction by another one of the first `kinds` columns."""
        n = len(self.state.dry)
        return self.better(self._also_on_time([self.state.but(dry=np.full(n, k)) for k in range(kinds)]))

    def further(self, columns: Sequence[int]) -> bool:
        """Try to add one further column to each joint."""
        return self.better(self._also_on_time([self._with(k) for k in columns]))

    def _also_on_time(self, states: list[State]) -> list[State]:
        """The states and copies of them without delays, since a delay may have taken the place of presliding friction."""
        if not self.state.delay.any():
            return states
        return [*states, *(state.but(delay=np.zeros_like(state.delay)) for state in states)]

    def delays(self) -> bool:
        """Try to change each joint's torque delay."""
        return len(self.grams.shifts) > 1 and self.better([self.with_delays(self.state)])

    def common_delay(self) -> tuple[float, LeftOut]:
        """The delay of all joints together that predicts their torques best, and the left-out errors with it."""
        n, shifts = len(self.state.dry), self.grams.shifts
        at = lambda d: self.tried(self.state.but(delay=np.full(n, d)))
        tried = np.stack([at(d).squares.sum(0) for d in shifts])
        size = np.maximum(self.squares.sum(0), 1e-300)
        seconds, _, inside = least_by_parabola(shifts, (tried / size).mean(axis=1, keepdims=True))
        common = float(seconds[0]) if inside[0] else 0.0
        return common, at(common)

    def dry_friction_and_delays(self, kinds: int) -> bool:
        """Try to change dry friction and delays together, since a wide smooth sign function and a delay act alike."""
        if not self.state.delay.any():
            return False
        n = len(self.state.dry)
        return self.better([self.with_delays(self.state.but(dry=np.full(n, k))) for k in range(kinds)])

    def with_delays(self, choice: State) -> State:
        """A copy of a selection with the best delay of each joint, from a parabola through its three smallest errors."""
        n, shifts = len(choice.dry), self.grams.shifts
        each = (choice.but(delay=np.full(n, d)) for d in shifts)
        tried = np.stack([self.tried(state).squares.sum(0) for state in each])
        seconds, _, inside = least_by_parabola(shifts, tried)
        return choice.but(delay=np.where(inside, seconds, 0.0))

    def _with(self, column: int) -> State:
        more = self.state.more.copy()
        more[:, column] = True
        return self.state.but(more=more)

    def pruned(self, columns: Sequence[int]) -> bool:
        """Drop terms whose gain is no longer significant once other terms have been adopted; True if any was dropped."""
        dropped = False
        for column in [k for k in columns if self.state.more[:, k].any()]:
            more = self.state.more.copy()
            more[:, column] = False
            dropped = self._without(self.state.but(more=more), self.state.more[:, column]) or dropped
        none = np.zeros_like(self.state.delay)
        dropped = self._without(self.state.but(delay=none), self.state.delay != 0) or dropped
        return self._without(self.state.but(dry=np.minimum(self.state.dry, 0)), self.state.dry > 0) or dropped

    def _without(self, without: State, joints: Bool[np.ndarray, " n"]) -> bool:
        """Use a simpler selection at those joints where the current one has no confirmed gain over the simpler one."""
        idle = joints & ~gain(self.tried(without).squares, self.squares).confirmed
        if idle.any():
            state = self.state.taken(idle, without)
            self.use(state, self.tried(state))
        return bool(idle.any())


# -- terms

PartName = Literal["filter", "friction", "springs", "delays"]
PARTS: tuple[PartName, ...] = ("filter", "friction", "springs", "delays")


@dataclasses.dataclass(frozen=True, repr=False)
class Terms(Summary):
    """Torque terms to identify in addition to the ten inertial parameters per link.

    Terms are either specified by the user or selected from the log by cross-validation (`choose_terms`). By default,
    `Terms()` contains the usual drive terms and allows all kinds of terms to be selected. `Terms(choose=())` is the
    plain model, which contains only the drive terms and is linear in its parameters.

    Attributes:
        drives: the drive terms to identify, any of armature, viscous, coulomb and offset. The parameters of the other
            drive terms are taken from the chain.
        further: additional terms of single joints (`MaxwellSlip`, `Counterbalance`, `Cable`, ...), with initial values.
            Their nonlinear parameters are fitted at the sample rate of the log.
        extra: regressor columns that affect several joints (`coupled_drive`) or are user-defined (`ExtraColumns`). The
            default is the chain's springs and the motors of its transmission (`motor_terms`).
        choose: kinds of terms to select by cross-validation. "filter" selects the cutoff of the low-pass. The other
            kinds are selected for each joint: "friction" (which replaces viscous, coulomb and offset), "springs", and
            "delays" of the torque.
        dead_zone: speed |qd_j| below which samples are excluded from the equations of joint j [rad/s or m/s]. Near
            standstill, dry friction can take any value up to fc in magnitude, which the drive terms cannot describe.

    Raises:
        IdentificationError: a drive term or a kind in `choose` is unknown, an element of `further` is not a
            `FrictionTerm`, or the dead zone is negative or not finite.
    """

    drives: tuple[Literal["armature", "viscous", "coulomb", "offset"], ...] = DRIVE_TERMS
    further: tuple[FrictionTerm, ...] = ()
    extra: tuple[ExtraColumns, ...] | None = None
    choose: tuple[PartName, ...] = PARTS
    dead_zone: float = 0.0

    def __post_init__(self):
        if unknown := [part for part in self.choose if part not in PARTS]:
            raise IdentificationError(f"{unknown[0]!r} cannot be selected; choose may contain {', '.join(PARTS)}")
        if not 0 <= self.dead_zone < math.inf:
            raise IdentificationError(
                f"the dead zone is {self.dead_zone:g}; it must be a speed of zero or more [rad/s or m/s]"
            )
        Columns(self.drives)  # raises an error for unknown drive terms
        for term in self.further:
            if not isinstance(term, FrictionTerm):
                raise IdentificationError(
                    f"further contains {type(term).__name__}; it must contain terms such as MaxwellSlip(). Pass "
                    "columns as extra"
                )

    def __repr__(self) -> str:
        parts = [
            *self.drives,
            *(type(term).__name__ for term in self.further),
            *(name for e in self.extra or () for name in e.names),
        ]
        chosen = f"; selected from the log: {', '.join(self.choose)}" if self.choose else ""
        zone = f"; dead zone {self.dead_zone:g} rad/s or m/s" if self.dead_zone else ""
        return f"Terms: {', '.join(parts) or 'none'}{chosen}{zone}"

    def columns(self, chain: Chain) -> Columns:
        """Columns of the regressor for the drive terms and the extra columns."""
        return all_columns(chain, self.drives) if self.extra is None else Columns(self.drives, self.extra)


# -- read

KINDS: dict[str, type[FrictionTerm]] = {
    kind.__name__: kind
    for kind in (
        *(Counterbalance, Cable, GearRipple, Asymmetry, PowerViscous, Stribeck, LoadDependent, TemperatureDependent),
        *(MaxwellSlip, LoadedSlip, Dahl, LuGre),
    )
}


def term_of(place: str, said: Mapping[str, Any], joints: Sequence[str]) -> FrictionTerm:
    """Create a term from a [[term]] table of TOML, such as {kind = "Cable", joints = ["joint2"], powers = [1, 3]}.

    The kind is the class of the term. Joints are named or counted from 1; by default, all joints have the term. All other
    keys are fields of the class, in SI units.

    Raises:
        IdentificationError: the kind, a joint or a field is unknown, or a value is invalid.
    """
    rest = dict(said)
    kind = KINDS.get(rest.pop("kind", ""))
    if kind is None:
        raise IdentificationError(f"{place}: the kind is {said.get('kind')!r}; it must be one of {', '.join(KINDS)}")
    named = rest.pop("joints", None)
    if named is not None:
        rest["joints"] = tuple(
            _joint(place, joint, joints) for joint in (named if isinstance(named, list) else [named])
        )
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := [name for name in rest if name not in fields]:
        own = ", ".join(name for name in fields if name != "joints")
        raise IdentificationError(f"{place}: {kind.__name__} has no field {unknown[0]!r}; its fields are {own}")
    missing = [name for name, f in fields.items() if f.default is dataclasses.MISSING and name not in rest]
    if missing:
        raise IdentificationError(f"{place}: {kind.__name__} needs {', '.join(missing)}")
    for name, value in rest.items():
        if fields[name].metadata.get("static"):
            rest[name] = tuple(value) if isinstance(value, list) else value
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise IdentificationError(f"{place}: {name} is {value!r}; it must be a positive number")
        else:
            rest[name] = float(value)
    try:
        return kind(**rest)
    except IdentificationError as error:
        raise IdentificationError(f"{place}: {error}") from None
    except (TypeError, ValueError) as error:
        raise IdentificationError(f"{place}: {kind.__name__}: {error}") from None


def _joint(place: str, joint: Any, joints: Sequence[str]) -> int:
    if joint in joints:
        return list(joints).index(joint) + 1
    if isinstance(joint, int) and not isinstance(joint, bool) and 1 <= joint <= len(joints):
        return joint
    raise IdentificationError(f"{place}: there is no joint {joint!r}; the joints are {', '.join(joints)}")


# -- candidates

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
