"""Clearances of excitation trajectories: distances that shapes keep, pairs that cannot keep them, and where a motion begins."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import IdentificationError
from ..geometry.distance import distances
from ..geometry.pairs import sampled_distances
from ..geometry.shapes import LeftOut, Shapes, with_pairs
from ..model.chain import Chain

Clearance = Callable[[Array], Array]  # function q (n,) -> distances, () or (m,), that must not be negative; traceable

UNIT = 0.1  # distance that counts as much as the whole of another limit [m]
SAMPLES = 1024  # configurations within the limits, and as many in the central half of every range
ALWAYS = 0.95  # share of the configurations in which a pair is too near that is left out
ROOM = 0.2  # distance of an initial configuration, above the least one, beyond which more does not count [m]
SHIFT = 0.1  # distance for which an initial configuration may be one half range farther from the middle [m]


class Separation(eqx.Module):
    """All pairs of shapes stay at least a distance apart.

    Attributes:
        shapes: shapes on the robot and its surroundings, and the pairs that are kept apart (see `geometry.read`).
        distance: smallest permissible distance [m].
    """

    shapes: Shapes
    distance: Float[Array, ""] = eqx.field(default=0.03, converter=jnp.asarray)

    def __call__(self, chain: Chain, q: Float[Array, " n"]) -> Float[Array, " p"]:
        """Distance of every pair, less the smallest permissible one, in units of 10 cm."""
        return (distances(chain, self.shapes, q) - self.distance) / UNIT

    def metres(self, clearance: float) -> float:
        """The distance of a pair [m] from a value of `__call__`."""
        return UNIT * clearance + float(self.distance)


class GivenFunction(eqx.Module):
    """A user's function of q in the form of `Separation`."""

    function: Clearance = eqx.field(static=True)

    def __call__(self, chain: Chain, q: Float[Array, " n"]) -> Float[Array, " p"]:
        """Values of the function."""
        return jnp.asarray(self.function(q))


class Nearest(NamedTuple):
    """Where a motion comes nearest to a contact.

    Attributes:
        first: name of a shape.
        second: name of the other shape.
        time: time at which they are nearest [s].
    """

    first: str
    second: str
    time: float


class Beginning(NamedTuple):
    """What a search begins with.

    Attributes:
        separation: that of all pairs that can be kept apart.
        offsets: configurations in which they are apart, less the middle of the ranges.
        notes: the pairs that are left out.
    """

    separation: Separation
    offsets: Float[np.ndarray, "count n"]
    notes: list[str]


def begin_apart(
    chain: Chain,
    separation: Separation,
    lower: Float[np.ndarray, " n"],
    upper: Float[np.ndarray, " n"],
    count: int,
    seed: int,
) -> Beginning:
    """Choose the pairs that can be kept apart within the limits, and configurations in which they are.

    A pair is left out if it is too near in at least 95 % of 1024 configurations within the limits. Initial configurations
    are the best of 1024 in the central half of every range, one of which is the middle: those with the largest
    min(smallest distance, least one + 0.2 m) - 0.1 m |(q - middle) / half range|^2.

    Raises:
        IdentificationError: no pair can be kept apart, or in no configuration are all the others apart.
    """
    shapes, least, half = separation.shapes, float(separation.distance), (upper - lower) / 2
    share = np.random.default_rng(seed).uniform(-1, 1, (SAMPLES, chain.nv))
    share = np.concatenate([share, np.zeros((1, chain.nv)), share[1:] / 2])
    found = sampled_distances(chain, shapes, (upper + lower) / 2 + share * half) - least
    near = (found[:SAMPLES] < 0).mean(axis=0) >= ALWAYS
    if near.all():
        raise IdentificationError(
            f"no pair of shapes can be kept {least:g} m apart; pass other pairs or a smaller distance"
        )
    notes = [f"cannot be kept {least:g} m apart, and left out: {_names(shapes, near)}"] if near.any() else []
    apart, share = found[SAMPLES:, ~near].min(axis=1), share[SAMPLES:]
    if apart.max() <= 0:
        nearest = np.flatnonzero(~near)[found[SAMPLES + np.argmax(apart), ~near].argmin()]
        raise IdentificationError(
            f"in none of {SAMPLES} configurations in the central half of the position ranges are all shapes {least:g} m apart; "
            f"at best, {' and '.join(shapes.pair_names[nearest])} are {least + apart.max():.3g} m apart; pass a smaller "
            "distance, other position limits, or shapes without this pair"
        )
    score = np.minimum(apart, ROOM) - SHIFT * (share**2).sum(axis=1)
    order = np.argsort(-np.where(apart > 0, score, -np.inf))
    best = np.resize(order[: min(count, int((apart > 0).sum()))], count)
    return Beginning(Separation(_without(shapes, near), separation.distance), share[best] * half, notes)


def _names(shapes: Shapes, which: Bool[np.ndarray, " p"]) -> str:
    """Names of pairs in words."""
    return "; ".join(" and ".join(shapes.pair_names[k]) for k in np.flatnonzero(which))


def _without(shapes: Shapes, near: Bool[np.ndarray, " p"]) -> Shapes:
    """The shapes without the pairs that cannot be kept apart."""
    left = [LeftOut(*shapes.pairs[k], "cannot be kept apart within the limits") for k in np.flatnonzero(near)]
    kept = [pair for pair, out in zip(shapes.pairs, near, strict=True) if not out]
    return with_pairs(shapes, kept, (*shapes.left_out, *left))
