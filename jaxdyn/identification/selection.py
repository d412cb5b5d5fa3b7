"""`choose_terms`: selection of torque terms by cross-validation over blocks of logs, and the model that comes of it.

All joints share the rigid-body columns, and each joint has candidates from which to select. The factors of the blocks
contain all columns and the torque at several time shifts. A selection can therefore be fitted to all blocks but one, and
tested on that block, without reading the log again."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtrit

from .._summary import Summary, lines
from ..errors import IdentificationError, LogError
from ..io.logs import Log
from ..model.chain import Chain, with_leaves
from .base import base_parameters, given_samples_torque
from .columns import Columns, DriveTerm, joint_springs, with_friction_at_joints
from .consistency import Consistency, no_constraints
from .delay import LATEST, at_shifts, least_by_parabola
from .factors import BLOCKS, BlockFactors, RowBlocks, as_float64, contiguous
from .filters import low_pass_before
from .friction_fit import base_with_friction
from .friction_model import FrictionModel
from .friction_terms import (
    FRICTION,
    Coulomb,
    FrictionTerm,
    LoadDependent,
    LoadedSlip,
    MaxwellSlip,
    PowerViscous,
    Stribeck,
    chain_terms,
)
from .prediction import by_chunks, chunk_rows
from .preprocessing import Filters, default_stride, divide, picked, preprocess, split
from .stretches import FullRun, fit_friction_beside, full_run, motion_of
from .terms import Terms

# -- outcome


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


# -- candidates

WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # widths of the smooth sign function [rad/s or m/s]
SLIPS = (1e-4, 5e-4, 1e-3, 2e-3, 4e-3)  # widths of slipping springs [rad or m]
KINDS = ("dry friction", "second slip", "speed", "load", "spring")  # the rungs of the ladder
POSITIVE = ("second slip", "load", "spring")  # stiffness, and friction that dissipates: their coefficients are positive


class Candidate(NamedTuple):
    """A term that a joint can have: its kind, the term (None for a spring), and its columns among those of all candidates."""

    kind: str
    term: FrictionTerm | None
    columns: tuple[int, ...]

    @property
    def name(self) -> str:
        """The class of the term, with parameters."""
        if self.term is None:
            return "spring"
        numbers = [float(np.asarray(x).ravel()[0]) for x in jax.tree.leaves(self.term)]
        return f"{type(self.term).__name__}({', '.join(f'{x:g}' for x in numbers)})"


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

    def without(self, *kinds: str) -> "Candidates":
        """Candidates without those of some kinds, and with only the first kind of dry friction: the plain model."""
        kept = [(one.kind, one.term) for one in self.listed if one.kind not in kinds]
        dry = [k for k, (kind, _) in enumerate(kept) if kind == "dry friction"]
        return Candidates.of([one for k, one in enumerate(kept) if k not in dry[1:]])

    @property
    def plain(self) -> "Candidates":
        """Candidates of the plain model: the first kind of dry friction, and the user's terms."""
        return self.without(*KINDS[1:])

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
    more: dict[str, list[FrictionTerm | None]] = {"given": [*given]}
    if free:
        dry += [*(Coulomb(width=width) for width in WIDTHS), *(MaxwellSlip(width=width) for width in SLIPS)]
        more["second slip"] = [MaxwellSlip(width=width) for width in SLIPS]
        speeds = [PowerViscous(exponent=exponent) for exponent in (0.5, 1.5)]
        more["speed"] = [*speeds, *(Stribeck(velocity=velocity) for velocity in (0.05, 0.2))]
        loads = [LoadedSlip(width=width) for width in (1e-4, 1e-3)]
        more["load"] = [*loads, *(LoadDependent(width=width) for width in (0.02, 0.1))]
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
            x = solve(*system(whole, sizes))
            sizes = np.sqrt(np.array([part.left(x)[0] for part in whole]) / count)
        parts = self.parts(state, self.grams)
        h, right = system(parts, sizes)
        x = solve(h.sum(0) - h, right.sum(0) - right)
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


# -- search

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
            yield kind, [one.name] * n, self.state.using(one, some if kind == "dry friction" else ())

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
                x = np.broadcast_to(solve(h[~out].sum(0), right[~out].sum(0)), right.shape)
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
                    own = [c.name for c in self.candidates.of_kind(kind) if has and self.state.has[j, c.columns[0]]]
                    yield trial_of(j + 1, kind, " and ".join(own) or name, found, has)


def late_by(seconds: float) -> str:
    """Description of a delay."""
    return f"torque {1e3 * abs(seconds):.2g} ms {'late' if seconds >= 0 else 'early'}"


def trial_of(joint: int, kind: str, name: str, found: Gain, adopted: bool) -> Trial:
    """Create a trial, converting its gain from squared errors to RMS errors."""
    j = max(joint - 1, 0)
    left = np.sqrt(max(1 - float(found.share[j]), 0.0))
    return Trial(joint, kind, name, 100 * (1 - float(left)), float(found.ratio[j]), adopted)


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
        plain = candidates_of(self.terms, self.widths, further, True).plain
        drives = tuple(term for term in self.columns.drive_terms if term not in FRICTION)
        columns = dataclasses.replace(self.columns, drive_terms=drives)
        model = friction_of(plain, plain.start(self.chain.n), self.terms, runs[0].samples.torque_cutoff)
        base = base_with_friction(self.chain, columns, model)
        samples = [run.samples for run in runs]
        found = fit_friction_beside(self.model, columns, base, samples, model, self.stride)
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
        candidates = candidates_of(reading.terms, reading.widths, reading.given(runs), reading.sprung)
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
                    plain = candidates_of(reading.terms, reading.widths, reading.given(runs), True).plain
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
        friction: friction terms that replace viscous, coulomb and offset and are fitted at the sample rate of the log;
            None if there are none.
        filters: filters with the selected cutoff and delays.
        delay: (n,) torque delays [s]; None if delays were neither specified nor selected.
        terms: the requested terms.
        confirmed: numbers of the joints for which friction terms were selected.
    """

    chain: Chain
    columns: Columns
    friction: FrictionModel | None
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
        if given is not None and given.equal.shape[1] != len(names):
            rows = np.concatenate([given.equal, given.least])
            where = {name: k for k, name in enumerate(names)}
            if rows.shape[1] != len(self.names):
                raise IdentificationError(
                    f"the constraints refer to {rows.shape[1]} parameters, but there are {len(self.names)}: "
                    f"{', '.join(self.names)}"
                )
            gone = [name for k, name in enumerate(self.names) if rows[:, k].any() and name not in where]
            if gone:
                raise IdentificationError(
                    f"the constraints refer to {', '.join(gone)}, which the selected friction model replaces",
                    "disable the selection of friction with {terms}",
                    terms="Terms(choose=())",
                )
            moved = np.zeros((len(rows), len(names)))
            for k, name in enumerate(self.names):
                if name in where:
                    moved[:, where[name]] = rows[:, k]
            blank = no_constraints(len(names))
            equal, least = np.split(moved, [len(given.equal)])
            given = dataclasses.replace(
                blank, equal=equal, equal_to=given.equal_to, least=least, least_of=given.least_of
            )
            consistent = dataclasses.replace(consistent, constraints=given)
        return consistent.of(names)


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
    if choice is not None and choice.further:
        friction = choice.further
    elif further or choice is not None:  # as friction terms, viscous and Coulomb friction are filtered like the torques
        width = np.asarray(chain.friction.coulomb_velocity, float)
        friction = (*chain_terms(width, terms.drives), *further) or None
    if friction is not None:
        rest = tuple(term for term in columns.drive_terms if term not in FRICTION)
        columns = dataclasses.replace(columns, drive_terms=rest)
    filters = filters.but(delay=delay)
    kinds = tuple(kind for kind in KINDS if kind != "spring")
    confirmed = () if choice is None else tuple(sorted({one.joint for one in choice.adopted if one.kind in kinds}))
    model = None if friction is None else FrictionModel(friction)
    return Setup(chain, columns, model, filters, delay, terms, confirmed)
