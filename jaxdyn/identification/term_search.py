"""Cross-validated search for the terms of each joint, from factors of blocks that are accumulated only once.

All joints share the rigid-body columns, and each joint has candidates from which to select. The factors of the blocks
contain all columns and the torque at several time shifts. A selection can therefore be fitted to all blocks but one, and
tested on that block, without reading the log again."""

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtrit

from .delay import least_by_parabola
from .factors import BlockFactors
from .friction_model import FrictionModel
from .friction_terms import (
    Coulomb,
    FrictionTerm,
    LoadDependent,
    LoadedSlip,
    MaxwellSlip,
    PowerViscous,
    Stribeck,
    TemperatureDependent,
    chain_terms,
)
from .terms import Terms

# -- candidates

# For joints whose speed and travel lie between 0.1 and 10 rad/s and rad, or m/s and m; for others, times a power of ten.
WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # widths of the smooth sign function [rad/s or m/s]
VELOCITIES = (0.05, 0.2)  # Stribeck velocities [rad/s or m/s]
SLIPS = (1e-4, 5e-4, 1e-3, 2e-3, 4e-3)  # widths of slipping springs [rad or m]
KINDS = ("dry friction", "second slip", "speed", "load", "temperature", "spring")  # the rungs of the ladder
POSITIVE = ("second slip", "load", "spring")  # stiffness, and friction that dissipates: their coefficients are positive


class Candidate(NamedTuple):
    """A term that a joint can have: its kind, the term (None for a spring), and its columns among those of all candidates."""

    kind: str
    term: FrictionTerm | None
    columns: tuple[int, ...]

    def name(self, joint: int) -> str:
        """The class of the term, with the parameters of a joint, counted from 0."""
        if self.term is None:
            return "spring"
        numbers = [np.asarray(x, float).ravel() for x in jax.tree.leaves(self.term)]
        return f"{type(self.term).__name__}({', '.join(f'{x[min(joint, len(x) - 1)]:.2g}' for x in numbers)})"


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Terms from which each joint's are selected, in the order of their columns in the factors.

    Attributes:
        listed: the terms. Of those of the kind "dry friction", each joint has exactly one, at first the first, which has the
            width of the chain's smooth sign function. Those of the kind "given" are the user's, which are always included.
    """

    listed: tuple[Candidate, ...]

    @classmethod
    def of(cls, terms: Sequence[tuple[str, FrictionTerm | None]]) -> "Candidates":
        """The candidates for pairs (kind, term), with one column for each label of a term."""
        sizes = [1 if term is None else len(term.labels) for _, term in terms]
        ends = np.cumsum([0, *sizes]).tolist()
        return cls(
            tuple(Candidate(*one, tuple(range(*at))) for one, at in zip(terms, itertools.pairwise(ends), strict=True))
        )

    @property
    def terms(self) -> tuple[FrictionTerm, ...]:
        """All terms except the spring."""
        return tuple(one.term for one in self.listed if one.term is not None)

    @property
    def given(self) -> tuple[FrictionTerm, ...]:
        """The user's further terms."""
        return tuple(one.term for one in self.listed if one.kind == "given" and one.term is not None)

    @property
    def sprung(self) -> bool:
        """True if springs are candidates."""
        return any(one.term is None for one in self.listed)

    def of_kind(self, kind: str) -> list[Candidate]:
        """The candidates of a kind."""
        return [one for one in self.listed if one.kind == kind]

    @property
    def plain(self) -> "Candidates":
        """Candidates of the plain model: the first kind of dry friction, and the user's terms."""
        kept = [*self.of_kind("dry friction")[:1], *self.of_kind("given")]
        return Candidates.of([(one.kind, one.term) for one in kept])

    @property
    def positive(self) -> list[int]:
        """Columns that are selected only if their coefficient is significantly positive."""
        return [k for one in self.listed if one.kind in POSITIVE for k in one.columns]

    def start(self, n: int) -> "State":
        """The initial selection of n joints: the first kind of dry friction, the user's terms, and no delay."""
        has = np.zeros((n, sum(len(one.columns) for one in self.listed)), bool)
        for one in [*self.of_kind("dry friction")[:1], *self.of_kind("given")]:
            assert one.term is not None
            at = np.arange(n) if one.term.joints is None else np.array(one.term.joints) - 1
            for column in one.columns:
                has[at, column] = True
        return State(has, np.zeros(n))


def candidates_of(
    terms: Terms,
    own: Float[np.ndarray, " n"],
    given: Sequence[FrictionTerm],
    sprung: bool,
    speed: Float[np.ndarray, " n"],
    travel: Float[np.ndarray, " n"],
    warmth: float | None = None,
) -> Candidates:
    """The candidates for the kinds of terms that `terms` allows to be selected.

    Args:
        own: width of the smooth sign function in the chain's Coulomb friction, for each joint [rad/s or m/s].
        speed: speed that each joint exceeds for a tenth of the time [rad/s or m/s], by whose order the widths are scaled.
        travel: range of positions of each joint [rad or m], by whose order the widths of slipping springs are scaled.
        warmth: mean temperature of the joints [°C], if temperatures are logged.
        given: the user's further terms, with their fitted nonlinear parameters.
        sprung: True if the regressor's columns already include springs.
    """
    speed, travel = (10.0 ** np.trunc(np.log10(x)) for x in (speed, travel))
    dry: list[FrictionTerm] = [Coulomb(width=own)] if "coulomb" in terms.drives else []
    free = "friction" in terms.choose and bool(dry)
    more: dict[str, list[FrictionTerm | None]] = {"given": [*given]}
    if free:
        dry += [*(Coulomb(width=w * speed) for w in WIDTHS), *(MaxwellSlip(width=w * travel) for w in SLIPS)]
        more["second slip"] = [MaxwellSlip(width=w * travel) for w in SLIPS]
        speeds = [PowerViscous(exponent=exponent) for exponent in (0.5, 1.5)]
        more["speed"] = [*speeds, *(Stribeck(velocity=v * speed, width=WIDTHS[1] * speed) for v in VELOCITIES)]
        loads = [LoadedSlip(width=w * travel) for w in (SLIPS[0], SLIPS[2])]
        more["load"] = [*loads, *(LoadDependent(width=w * speed) for w in (WIDTHS[2], WIDTHS[4]))]
    if free and warmth is not None:
        more["temperature"] = [TemperatureDependent(reference=warmth, width=WIDTHS[1] * speed)]
    if "springs" in terms.choose and not sprung:
        more["spring"] = [None]
    every = {"dry friction": dry} | more
    return Candidates.of([(kind, term) for kind, some in every.items() for term in some])


def friction_of(candidates: Candidates, state: "State", terms: Terms, cutoff: float) -> FrictionModel:
    """The friction model of a selection; terms of different joints are merged if they differ only in parameters."""
    found = [term for term in chain_terms(1.0, terms.drives) if not isinstance(term, Coulomb)]
    slots: dict[tuple[Any, int], dict[int, FrictionTerm]] = {}
    for j, has in enumerate(state.has):
        mine = [c.term for c in candidates.listed if c.kind != "given" and c.term is not None and has[c.columns[0]]]
        kinds = [jax.tree.structure(dataclasses.replace(term, joints=None)) for term in mine]  # with all static fields
        for k, (kind, term) in enumerate(zip(kinds, mine, strict=True)):
            slots.setdefault((kind, kinds[:k].count(kind)), {})[j] = term
    found += [_together(by_joint, len(state.has)) for by_joint in slots.values()]
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


# -- blocks left out

RIDGE = 1e-11  # added to the diagonal of the normal equations after scaling columns to unit norm
LEVEL = 0.05  # of the one-sided test of a gain on left-out blocks
SURE = 2.0  # standard errors by which a coefficient must be positive: 95 % of a normal distribution, two-sided
REGIONS = 4  # operating regions of each joint: quarters of its samples, from fast backwards to fast forwards
LEAST = 0.01  # minimum relative reduction of a joint's RMS error


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """The selections of all joints.

    Attributes:
        has: mask of the candidates' columns that each joint has.
        delay: torque delay of each joint [s].
    """

    has: Bool[np.ndarray, "n k"]
    delay: Float[np.ndarray, " n"]

    def but(self, **changes: np.ndarray) -> "State":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def using(self, candidate: Candidate, instead: Sequence[Candidate] = ()) -> "State":
        """A copy in which all joints have a candidate, instead of others."""
        has = self.has.copy()
        has[:, [k for one in instead for k in one.columns]] = False
        has[:, list(candidate.columns)] = True
        return self.but(has=has)

    def taken(self, joints: Bool[np.ndarray, " n"], other: "State") -> "State":
        """A copy in which some joints have the selections of another state."""
        return State(np.where(joints[:, None], other.has, self.has), np.where(joints, other.delay, self.delay))

    def same_at(self, other: "State") -> Bool[np.ndarray, " n"]:
        """Mask of the joints at which both selections are equal."""
        return (self.delay == other.delay) & np.all(self.has == other.has, axis=1)


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
        return (self.ratio > self.least) & (self.share > 1 - (1 - LEAST) ** 2)

    @property
    def least(self) -> float:
        """Standard errors by which a mean gain or loss is significant, 2.5 for 16 blocks and 3 for six."""
        k = self.blocks
        return float(stdtrit(k - 1, 1 - LEVEL) * np.sqrt(1 + k / (k - 1)))

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
        self.total = self.grams.sum(0)[None]
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
        found.total, out.regions = found.grams.sum(0)[None], found
        return out

    def of(self, blocks: np.ndarray) -> "Grams":
        """A copy with some of the blocks, and without regions."""
        out = copy.copy(self)
        out.grams, out.counts, out.regions = self.grams[blocks], self.counts[blocks], None
        out.total = out.grams.sum(0)[None]
        return out

    def parts(self, state: State, grams: Float[np.ndarray, "k n w w"]) -> list["Part"]:
        """The normal equations of each joint in each block of `grams`."""
        b, parts, end = self.size, [], self.size
        for j, has in enumerate(state.has):
            own, between = b + np.flatnonzero(has), weights_between(self.shifts, state.delay[j])
            at = b + self.own + np.flatnonzero(between)
            between, gram = between[between != 0], grams[:, j]
            torque = gram[:, : b + self.own, at] @ between
            y = between @ gram[:, at[:, None], at] @ between
            inner = gram[:, :b, :b], gram[:, :b, own], gram[:, own[:, None], own]
            parts.append(Part(slice(end, end + len(own)), *inner, torque[:, :b], torque[:, own], y))
            end += len(own)
        return parts

    def left_out(self, state: State, noise: np.ndarray | None = None) -> "LeftOut":
        """Fit the columns of a selection to all blocks but one, for each block.

        Args:
            noise: noise of the joints for a similar selection, with which the weights of the joints start.
        """
        count = np.maximum(self.counts.sum(0), 1)
        rounds = 4 if noise is None else 2
        sizes = np.ones(len(state.has)) if noise is None else noise
        whole = self.parts(state, self.total)
        for _ in range(rounds):
            x = solve_normal(*system(whole, sizes))
            sizes = np.sqrt(np.array([part.left(x)[0] for part in whole]) / count)
        parts = self.parts(state, self.grams)
        h, right = system(parts, sizes)
        x = solve_normal(h.sum(0) - h, right.sum(0) - right)
        squares = np.stack([part.left(x) for part in parts], axis=1)
        k, ratio = len(x), np.full((len(parts), self.own), np.inf)
        for part, has, found in zip(parts, state.has, ratio, strict=True):
            own = x[:, part.own]
            error = np.sqrt((k - 1) / k * ((own - own.mean(0)) ** 2).sum(0))  # of the jackknife
            found[has] = own.mean(0) / np.maximum(error, 1e-300)
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


class Part(NamedTuple):
    """Normal equations of one joint for each of k blocks: inner products of b rigid-body columns and m columns of its own.

    Attributes:
        own: the joint's own columns among the columns of all joints, of which the first are those of the rigid body.
        bodies, between, terms: inner products of the rigid-body columns, of these with its own, and of its own.
        torque_bodies, torque_terms: inner products of either with the torque.
        y: inner product of the torque with itself.
    """

    own: slice
    bodies: Float[np.ndarray, "k b b"]
    between: Float[np.ndarray, "k b m"]
    terms: Float[np.ndarray, "k m m"]
    torque_bodies: Float[np.ndarray, "k b"]
    torque_terms: Float[np.ndarray, "k m"]
    y: Float[np.ndarray, " k"]

    def left(self, x: Float[np.ndarray, "k p"]) -> Float[np.ndarray, " k"]:
        """Squared residual torque of each block, given a solution for each block."""
        bodies, terms = x[:, : self.bodies.shape[1], None], x[:, self.own, None]
        both = self.bodies @ bodies + 2 * (self.between @ terms - self.torque_bodies[:, :, None])
        own = self.terms @ terms - 2 * self.torque_terms[:, :, None]
        return np.maximum(self.y + (bodies * both).sum((1, 2)) + (terms * own).sum((1, 2)), 0.0)


def system(parts: Sequence[Part], noise: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
    """Combine the normal equations of all joints for each block, weighted according to the noise of the joints."""
    (blocks, b), end = parts[0].torque_bodies.shape, parts[-1].own.stop
    h, right = np.zeros((blocks, end, end)), np.zeros((blocks, end))
    for sigma, part in zip(noise, parts, strict=True):
        weight = 1 / max(sigma, 1e-12) ** 2
        h[:, :b, :b] += weight * part.bodies
        h[:, :b, part.own] = weight * part.between
        h[:, part.own, :b] = np.swapaxes(h[:, :b, part.own], 1, 2)
        h[:, part.own, part.own] = weight * part.terms
        right[:, :b] += weight * part.torque_bodies
        right[:, part.own] = weight * part.torque_terms
    return h, right


def solve_normal(h: Float[np.ndarray, "*k m m"], right: Float[np.ndarray, "*k m"]) -> Float[np.ndarray, "*k m"]:
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


# -- search


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


FURTHER = KINDS[1:]
LADDERS = (  # springs and delays after friction, or before it, since one may take the place of the other
    (("dry friction",), *(FURTHER,) * len(FURTHER), ("delay",)),
    (("dry friction",), ("spring",), ("delay",), *(FURTHER,) * len(FURTHER), ("delay",)),
)
PASSES = 3  # maximum number of times that a ladder is climbed
OUTER = 3  # number of parts of the blocks for each of which the selection is repeated without it


class Search:
    """Stepwise improvement of a selection, with every step confirmed on left-out blocks.

    Attributes:
        state: the current selection.
        squares: (k, n) squared errors of the current selection on left-out blocks.
        noise: (n,) RMS error of each joint in the fit to all blocks [N m or N].
        gains: name of the term and gain, by kind and joint, when the kind was last tried at the joint.
    """

    def __init__(self, grams: Grams, candidates: Candidates):
        self.grams, self.candidates, self.gains = grams, candidates, {}
        self.use(candidates.start(grams.grams.shape[1]))

    def use(self, state: State, found: LeftOut | None = None) -> None:
        """Make a selection the current one."""
        found = found or self.grams.left_out(state)
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

    def climb(self, ladder: Sequence[Sequence[str]] = LADDERS[0]) -> None:
        """Try all kinds of terms, rung by rung, until nothing more is confirmed."""
        for _ in range(PASSES):
            changed = [self.rung(kinds) for kinds in ladder]
            if not any(changed):
                break
        while self.pruned():
            pass

    def pruned(self) -> bool:
        """Drop terms whose gain is no longer confirmed once others have been adopted; True if any was dropped."""
        dropped, first = False, self.candidates.of_kind("dry friction")[:1]
        for one in self.candidates.listed:
            if one.kind in KINDS and one not in first and (joints := self.state.has[:, one.columns[0]]).any():
                has = self.state.has.copy()
                has[:, list(one.columns)] = False
                if one.kind == "dry friction":
                    has[joints, first[0].columns[0]] = True
                dropped = self._without(self.state.but(has=has), joints) or dropped
        return self._without(self.state.but(delay=0 * self.state.delay), self.state.delay != 0) or dropped

    def _without(self, without: State, joints: Bool[np.ndarray, " n"]) -> bool:
        """Use a simpler selection at those joints where the current one has no confirmed gain over the simpler one."""
        idle = joints & ~gain(self.tried(without).squares, self.squares).confirmed
        if idle.any():
            self.use(state := self.state.taken(idle, without), self.tried(state))
        return bool(idle.any())

    def rung(self, kinds: Sequence[str]) -> bool:
        """Change each joint to the best selection with a confirmed gain among those of a rung; True if any joint changed.

        All joints are changed simultaneously, because they share the rigid-body parameters. The change of a joint is undone
        if its gain is not confirmed together with the changes of the other joints.
        """
        if not (moves := [move for kind in kinds for move in self.moves(kind)]):
            return False
        found = [self.tried(state) for _, _, state in moves]
        gains, valid = zip(*map(self.confirmed, found), strict=True)
        raw = np.array([g.share for g in gains])
        shares = np.where(valid, raw, -np.inf)
        best, joints = np.argmax(shares, axis=0), np.isfinite(shares.max(axis=0))
        for kind in kinds:
            own = [k for k, move in enumerate(moves) if move[0] == kind]
            for j in np.flatnonzero(~self.has(kind)).tolist() if own else ():
                k = max(own, key=lambda k: raw[k, j])
                self.gains[kind, j] = moves[k][1][j], gains[k]
        while joints.any():
            state = self.state
            for k in np.unique(best[joints]).tolist():
                state = state.taken(joints & (best == k), moves[k][2])
            together = self.tried(state)
            gained, ok = self.confirmed(together)
            if np.all(ok[joints]):
                for j in np.flatnonzero(joints).tolist():
                    kind, names, _ = moves[best[j]]
                    self.gains[kind, j] = names[j], gained
                self.use(state, together)
                return True
            joints = joints & ok
        return False

    def moves(self, kind: str) -> Iterator[tuple[str, Sequence[str], State]]:
        """The kind, each joint's name, and the selection of all changes of one kind."""
        n, some = len(self.state.has), self.candidates.of_kind(kind)
        if kind == "delay" and len(self.grams.shifts) > 1:
            state = self.with_delays(self.state)
            yield kind, [late_by(d) for d in state.delay], state
        for one in some[kind == "dry friction" and len(some) == 1 :]:
            yield kind, [*map(one.name, range(n))], self.state.using(one, some if kind == "dry friction" else ())

    def has(self, kind: str) -> Bool[np.ndarray, " n"]:
        """Mask of the joints that have a term of a kind; of dry friction, another than at the start."""
        if kind == "delay":
            return self.state.delay != 0
        some = self.candidates.of_kind(kind)[kind == "dry friction" :]
        return np.any(self.state.has[:, [k for one in some for k in one.columns]], axis=1)

    def confirmed(self, found: LeftOut) -> tuple[Gain, Bool[np.ndarray, " n"]]:
        """Gain of a selection over the current one, and the joints where it is confirmed and its terms have a valid sign."""
        gained = gain(self.squares, found.squares)
        return gained, gained.confirmed & (found.ratio[:, self.candidates.positive] > SURE).all(axis=1)

    def no_worse_than(self, plain: "Search") -> None:
        """Return joints to the plain selection whose total gain is not confirmed, or until no joint is worse than with it."""
        elsewhere = self.errors_elsewhere(plain.state)
        while (changed := ~self.state.same_at(plain.state)).any():
            gained = gain(plain.squares, self.squares)
            lost = changed & ~(gained.confirmed & (self.errors_elsewhere(self.state) <= elsewhere))
            if not lost.any():
                if not gained.loss.any():
                    return
                lost = changed & (gained.share <= gained.share[changed].min())
            state = self.state.taken(lost, plain.state)
            self.use(state, self.tried(state))

    def errors_elsewhere(self, state: State) -> Float[np.ndarray, " n"]:
        """Squared error of each joint in operating regions left out; 0 if the regions are not known.

        Blocks of time show the same kind of motion as the data that are fitted. A term whose coefficient holds for these
        speeds only may predict them better and another motion worse.
        """
        regions = self.grams.regions
        return np.zeros(len(state.has)) if regions is None else regions.left_out(state).squares.sum(0)

    def nested_errors(self) -> Float[np.ndarray, "2 n"]:
        """Errors of the plain model and of the selection on parts of the blocks, with the selection repeated without each."""
        grams, squares = self.grams, np.zeros((2, len(self.state.has)))
        for k in range(OUTER):
            out = np.arange(len(grams.grams)) * OUTER // len(grams.grams) == k
            plain = Search(grams.of(~out), self.candidates)
            for total, search in zip(squares, (plain, climbed(plain)), strict=True):
                parts = grams.parts(search.state, grams.grams)
                h, right = system(parts, search.noise)
                x = np.broadcast_to(solve_normal(h[~out].sum(0), right[~out].sum(0)), right.shape)
                total += [part.left(x)[out].sum() for part in parts]
        return np.sqrt(squares / np.maximum(grams.counts.sum(0), 1))

    def common_delay(self) -> tuple[float, LeftOut]:
        """The delay of all joints together that predicts their torques best, and the left-out errors with it."""
        n, shifts = len(self.state.has), self.grams.shifts
        at = lambda d: self.tried(self.state.but(delay=np.full(n, d)))
        tried = np.stack([at(d).squares.sum(0) for d in shifts])
        size = np.maximum(self.squares.sum(0), 1e-300)
        seconds, _, inside = least_by_parabola(shifts, (tried / size).mean(axis=1, keepdims=True))
        common = float(seconds[0]) if inside[0] else 0.0
        return common, at(common)

    def with_delays(self, choice: State) -> State:
        """A copy of a selection with the best delay of each joint, from a parabola through its three smallest errors."""
        n, shifts = len(choice.has), self.grams.shifts
        tried = np.stack([self.tried(choice.but(delay=np.full(n, d))).squares.sum(0) for d in shifts])
        seconds, _, inside = least_by_parabola(shifts, tried)
        return choice.but(delay=np.where(inside, seconds, 0.0))

    def trials(self) -> Iterator[Trial]:
        """The last trial of each kind at each joint."""
        for kind in (*KINDS, "delay"):
            adopted = self.has(kind)
            for j, has in enumerate(adopted.tolist()):
                if (kind, j) in self.gains:
                    name, found = self.gains[kind, j]
                    own = [c.name(j) for c in self.candidates.of_kind(kind) if has and self.state.has[j, c.columns[0]]]
                    yield trial_of(j + 1, kind, " and ".join(own) or name, found, has)


def late_by(seconds: float) -> str:
    """Description of a delay."""
    return f"torque {1e3 * abs(seconds):.2g} ms {'late' if seconds >= 0 else 'early'}"


def trial_of(joint: int, kind: str, name: str, found: Gain, adopted: bool) -> Trial:
    """Create a trial, converting its gain from squared errors to RMS errors."""
    j = max(joint - 1, 0)
    left = np.sqrt(max(1 - float(found.share[j]), 0.0))
    return Trial(joint, kind, name, 100 * (1 - float(left)), float(found.ratio[j]), adopted)


def climbed(plain: Search) -> Search:
    """A search from the plain model upwards, which joints whose total gain is not confirmed leave again."""
    found = []
    for ladder in LADDERS:
        search = copy.copy(plain)
        search.gains = {}
        search.climb(ladder)
        found.append(search)
    search = min(found, key=lambda search: search.score)
    search.no_worse_than(plain)
    return search
