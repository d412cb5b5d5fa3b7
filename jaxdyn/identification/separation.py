"""Clearances of excitation trajectories: distances that shapes keep, which of them can be kept, and where a motion may start."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import IdentificationError
from ..geometry.distance import distances
from ..geometry.pairs import sampled_distances
from ..geometry.shapes import LeftOut, Shapes, with_pairs
from ..model.chain import Chain

Range = tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]
Clearance = Callable[[Array], Array]  # function q (n,) -> distances, () or (m,), that must not be negative; traceable

UNIT = 0.1  # distance that counts as much as the whole of another limit [m]
SAMPLES = 1024  # configurations within the limits, and as many in the central half of every range
ALWAYS = 0.95  # fraction of the configurations in which a pair is too near that is left out
ROOM = 2.0  # clearance of an initial configuration beyond which more does not count, in units


class Separation(eqx.Module):
    """All pairs of shapes stay at least a distance apart.

    Attributes:
        shapes: shapes on the robot and its surroundings, and the pairs that are kept apart (see `geometry.read`).
        distance: smallest permissible distance [m].
    """

    shapes: Shapes
    distance: Float[Array, ""] = eqx.field(default=0.03, converter=jnp.asarray)

    def __call__(self, chain: Chain, q: Float[Array, " n"]) -> Float[Array, " p"]:
        """How much farther apart every pair is than it must be, in units of 0.1 m."""
        return (distances(chain, self.shapes, q) - self.distance) / UNIT


class GivenFunction(eqx.Module):
    """A user's function of q in the form of `Separation`."""

    function: Clearance = eqx.field(static=True)

    def __call__(self, chain: Chain, q: Float[Array, " n"]) -> Float[Array, " p"]:
        return jnp.asarray(self.function(q))


class Nearest(NamedTuple):
    """Where a motion comes nearest to a contact.

    Attributes:
        first: name of a shape.
        second: name of the other shape.
        time: when they are nearest [s].
    """

    first: str
    second: str
    time: float


def nearest(
    chain: Chain, shapes: Shapes, t: Float[np.ndarray, " N"], q: Float[np.ndarray, "N n"]
) -> tuple[float, Nearest]:
    """The smallest distance of a motion [m], and where it is."""
    found = sampled_distances(chain, shapes, q)
    sample, pair = np.unravel_index(np.argmin(found), found.shape)
    return float(found[sample, pair]), Nearest(*shapes.pair_names[pair], float(t[sample]))


def begin_apart(
    chain: Chain, separation: Separation, within: Range, count: int, seed: int
) -> tuple[Separation, Float[np.ndarray, "count n"], list[str]]:
    """The separation of those pairs that can be kept apart, configurations in which they are, and the pairs left out.

    A pair is left out if it is nearer than the distance in at least 95 % of the configurations within the limits. Of the
    configurations in the central half of every range, those are best that keep 0.2 m more than the distance, as near to the
    middle as possible; one that keeps less is as much worse as one that is farther from the middle.

    Raises:
        IdentificationError: all pairs are left out, or in no configuration are the others apart.
    """
    shapes, least = separation.shapes, float(separation.distance)
    middle, half = (within[1] + within[0]) / 2, (within[1] - within[0]) / 2
    share = np.random.default_rng(seed).uniform(-1, 1, (SAMPLES, chain.nv))
    share = np.concatenate([share, np.zeros((1, chain.nv)), share[:-1] / 2])
    found = sampled_distances(chain, shapes, middle + share * half)
    near = (found[:SAMPLES] < least).mean(axis=0) >= ALWAYS
    names = [" and ".join(shapes.pair_names[k]) for k in np.flatnonzero(near)]
    notes = [f"cannot be kept {least:g} m apart and are left out: {'; '.join(names)}"] if names else []
    if near.all():
        raise IdentificationError(f"no pair of shapes can be kept {least:g} m apart; pass shapes with other pairs or a smaller distance")
    found, share = found[SAMPLES:, ~near], share[SAMPLES:]
    apart = found.min(axis=1) - least
    if apart.max() <= 0:
        a, b = shapes.pair_names[np.flatnonzero(~near)[found[np.argmax(apart)].argmin()]]
        raise IdentificationError(
            f"in none of {len(found)} configurations are all shapes {least:g} m apart, at best {a} and {b} "
            f"{least + apart.max():.3g} m; pass a smaller distance, narrower position limits, or omit this pair"
        )
    score = np.minimum(apart / UNIT, ROOM) - (share**2).sum(axis=1)
    best = np.resize(np.argsort(-np.where(apart > 0, score, -np.inf))[: max(1, min(count, (apart > 0).sum()))], count)
    left = [LeftOut(*shapes.pairs[k], f"nearer than {least:g} m in at least {ALWAYS:.0%} of the configurations") for k in np.flatnonzero(near)]
    kept = [pair for pair, out in zip(shapes.pairs, near, strict=True) if not out]
    shapes = with_pairs(shapes, kept, (*shapes.left_out, *left))
    return Separation(shapes, separation.distance), share[best] * half, notes
