"""Clearances of excitation trajectories: distances that shapes keep, which of them are possible, where a motion begins, and
the least change by which a motion keeps them."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.optimize import nnls

from ..errors import IdentificationError
from ..geometry.distance import distances
from ..geometry.pairs import in_chunks, sampled_distances
from ..geometry.shapes import LeftOut, Shapes, with_pairs
from ..model.chain import Chain

Clearance = Callable[[Array], Array]  # function q (n,) -> distances, () or (m,), that must not be negative; traceable

UNIT = 0.1  # distance that counts as much as the whole of another limit [m]
SAMPLES = 1024  # configurations within the limits, and as many in the central half of every range
LARGEST = 0.95  # quantile of the sampled distances of a pair that counts as the largest
CLOSE = 0.25  # least distance of parts that are close together, such as fingers, relative to their largest distance
ROOM = 0.2  # distance of an initial configuration, above the least one, beyond which more does not count [m]
SHIFT = 0.1  # distance for which an initial configuration may be one half range farther from the middle [m]
CHUNK = 96  # configurations whose clearances are computed in one call
CORRECTIONS = 5  # changes of a motion; whatever is still too near then, because distances are curved, is scaled
NEAR = 0.1  # what is left of a limit, or clearance (for shapes, 1 cm), below which an extremum restricts a change
SLACK = 1e-3  # clearance (for shapes, 0.1 mm) that a change aims at, because tangents are exact to first order only
FARTHEST = 1e6  # norm of a change of coefficients, which are of unit size, beyond which it is due to rounding


class Separation(eqx.Module):
    """All pairs of shapes stay at least a distance apart, together or each its own.

    Attributes:
        shapes: shapes on the robot and its surroundings, and the pairs that are kept apart (see `geometry.read`).
        distance: smallest permissible distance of all pairs, or of each pair in the order of `shapes.pairs` [m].
    """

    shapes: Shapes
    distance: Float[Array, "*p"] = eqx.field(default=0.03, converter=jnp.asarray)

    def __call__(self, chain: Chain, q: Float[Array, " n"]) -> Float[Array, " p"]:
        """Distance of every pair, less the smallest permissible one, in units of 10 cm."""
        return (distances(chain, self.shapes, q) - self.distance) / UNIT

    def metres(self, clearance: float, pair: int) -> float:
        """The distance of a pair [m] from its value in `__call__`."""
        return UNIT * clearance + float(jnp.broadcast_to(self.distance, len(self.shapes.pairs))[pair])


class GivenFunction(eqx.Module):
    """A user's function of q in the form of `Separation`."""

    function: Clearance = eqx.field(static=True)

    def __call__(self, chain: Chain, q: Float[Array, " n"]) -> Float[Array, " p"]:
        """Values of the function."""
        return jnp.asarray(self.function(q))


ClearanceOf = Separation | GivenFunction


def of_robot(clearance: Clearance | Separation) -> ClearanceOf:
    """A clearance as a function of the robot and q."""
    return clearance if isinstance(clearance, Separation) else GivenFunction(clearance)


Numbers = Float[Array, "*s"] | Float[np.ndarray, "*s"]


class Tangents(NamedTuple):
    """Clearances of a motion near samples q_0 of it, c(q) = value + slope (q - q_0), exact to first order.

    Attributes:
        q: the samples q_0, (.., N, n) [rad or m].
        value: clearances at the samples, (.., N, m).
        slope: their derivatives with respect to q, (.., N, m, n).
    """

    q: Numbers
    value: Numbers
    slope: Numbers


@jax.jit
def _tangents(chain: Chain, clearance: ClearanceOf, q: Float[Array, "N n"]) -> tuple[Array, Array]:
    def both(x: Array) -> tuple[Array, Array]:
        value = jnp.ravel(clearance(chain, x))
        return value, value

    slope, value = jax.vmap(jax.jacfwd(both, has_aux=True))(q)
    return value, slope


def tangents(chain: Chain, clearance: ClearanceOf, q: Float[np.ndarray, "*s n"]) -> Tangents:
    """Clearances and derivatives in many configurations, in chunks of equal size, for which they are compiled once."""
    evaluate = lambda chunk: _tangents(chain, clearance, jnp.asarray(chunk))
    found = in_chunks(evaluate, q.reshape(-1, q.shape[-1]), CHUNK)
    return Tangents(q, *(x.reshape(*q.shape[:-1], *x.shape[1:]) for x in found))


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
        separation: that of all pairs that can be kept apart, each with its own distance.
        offsets: configurations in which they are apart, less the middle of the ranges.
        notes: the pairs that keep less than the given distance, or are left out.
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
    """Choose the distances that are possible within the limits, and configurations in which all shapes keep them.

    The largest distance of each pair is the 0.95 quantile of those in 1024 configurations within the limits. A pair keeps the
    given distance, unless a quarter of the largest is less. Such parts are always close together, such as fingers and
    neighbours but one: if they touch in one of the configurations, they keep that quarter, and otherwise no more than
    half of the smallest distance, so that they restrict nothing. Pairs that touch in all these configurations are left out.
    Initial configurations are the best of 1024 in the central half of every range, one of which is the middle: those with
    the largest min(smallest distance above the least one, 0.2 m) - 0.1 m |(q - middle) / half range|^2.

    Raises:
        IdentificationError: all pairs always touch, or no configuration keeps all distances.
    """
    shapes, half = separation.shapes, (upper - lower) / 2
    share = np.random.default_rng(seed).uniform(-1, 1, (SAMPLES, chain.nv))
    share = np.concatenate([share, np.zeros((1, chain.nv)), share[1:] / 2])
    found = sampled_distances(chain, shapes, (upper + lower) / 2 + share * half)
    close, smallest = CLOSE * np.quantile(found[:SAMPLES], LARGEST, axis=0), found[:SAMPLES].min(axis=0)
    given = np.broadcast_to(separation.distance, close.shape)
    least = np.where(close >= given, given, np.where(smallest > 0, np.minimum(close, smallest / 2), close))
    kept = least > 0
    if not kept.any():
        raise IdentificationError(
            "all pairs of shapes always touch within the limits; pass other pairs or wider limits"
        )
    found, share = found[SAMPLES:, kept] - least[kept], share[SAMPLES:]
    apart = found.min(axis=1)
    if apart.max() <= 0:
        worst = np.flatnonzero(kept)[found[apart.argmax()].argmin()]
        raise IdentificationError(
            f"none of {SAMPLES} configurations in the central half of the position ranges keeps all shapes apart; at best, "
            f"{' and '.join(shapes.pair_names[worst])} lack {-apart.max():.3g} m; pass a smaller distance, other position "
            "limits, or shapes without this pair"
        )
    score = np.minimum(apart, ROOM) - SHIFT * (share**2).sum(axis=1)
    order = np.argsort(-np.where(apart > 0, score, -np.inf))
    best = np.resize(order[: min(count, int((apart > 0).sum()))], count)
    left = [LeftOut(*shapes.pairs[k], "always in contact within the limits") for k in np.flatnonzero(~kept)]
    chosen = with_pairs(shapes, [shapes.pairs[k] for k in np.flatnonzero(kept)], (*shapes.left_out, *left))
    return Beginning(Separation(chosen, least[kept]), share[best] * half, _notes(separation, least))


def _notes(separation: Separation, least: Float[np.ndarray, " p"]) -> list[str]:
    """The pairs that keep less than the given distance, and those that are left out, in words."""
    names = [" and ".join(pair) for pair in separation.shapes.pair_names]
    less = [
        f"{name} ({x:.2g} m)"
        for name, x, given in zip(names, least, np.broadcast_to(separation.distance, len(names)), strict=True)
        if 0 < x < given
    ]
    out = [name for name, x in zip(names, least, strict=True) if x <= 0]
    notes = [f"always close together, so that less than the clearance is kept: {'; '.join(less)}"] if less else []
    return notes + ([f"always in contact, and left out: {'; '.join(out)}"] if out else [])


def moved_apart(
    chain: Chain,
    clearance: ClearanceOf,
    bounds: Float[np.ndarray, "4 n"],
    matrices: Float[np.ndarray, "4 n N k"],
    middle: Float[np.ndarray, " n"],
    z: Float[np.ndarray, "n k"],
) -> Float[np.ndarray, "n k"]:
    """The motion near the given one that keeps clearances and bounds at all samples, or comes closer to that.

    Each iteration takes the smallest change |dz| for which all extrema in time are within their bounds, where bounded
    quantities are linear in z, and clearances are replaced by their tangents. It ends early if there is no such change.

    Args:
        chain: the robot.
        clearance: the clearances c(q), which are not to be negative.
        bounds: largest |q - middle|, |qd|, |qdd| and |qddd| of every joint.
        matrices: maps from z to q - middle, qd, qdd and qddd at the samples.
        middle: the position of the motion z = 0 [rad or m].
        z: coefficients of the motion.
    """
    for _ in range(CORRECTIONS):
        x = np.einsum("djmk,jk->dmj", matrices, z)
        shares, near = x / bounds[:, None], tangents(chain, clearance, middle + x[0])
        size, value, slope = np.abs(shares), np.asarray(near.value), np.asarray(near.slope)
        if size.max() <= 1 and value.min() >= 0:
            break
        d, m, j = np.nonzero(_peaks(size) & (size > 1 - NEAR))
        within = np.zeros((len(d), *z.shape))
        within[np.arange(len(d)), j] = -(np.sign(shares[d, m, j]) / bounds[d, j])[:, None] * matrices[d, j, m]
        i, p = np.nonzero(_peaks(-value) & (value < NEAR))
        apart = np.einsum("rj,jrk->rjk", slope[i, p], matrices[0][:, i])
        least = np.concatenate([size[d, m, j] - 1, SLACK - value[i, p]])
        change = least_change(np.concatenate([within, apart]).reshape(-1, z.size), least)
        if change is None:
            break
        z = z + change.reshape(z.shape)
    return z


def _peaks(x: Float[np.ndarray, "*d N m"]) -> Bool[np.ndarray, "*d N m"]:
    """Mask of the local maxima in time, which runs along the last axis but one."""
    edge = np.full_like(x[..., :1, :], -np.inf)
    padded = np.concatenate([edge, x, edge], axis=-2)
    return (x >= padded[..., :-2, :]) & (x >= padded[..., 2:, :])


def least_change(rows: Float[np.ndarray, "r k"], least: Float[np.ndarray, " r"]) -> Float[np.ndarray, " k"] | None:
    """The x with rows x >= least and the smallest |x|, or None if there is none (Lawson & Hanson 1974, ch. 23, LDP)."""
    columns, last = np.concatenate([rows.T, least[None]]), np.append(np.zeros(rows.shape[1]), 1.0)
    try:
        weights, distance = nnls(columns, last)  # the distance is (1 + |x|^2)^-1/2
    except RuntimeError:  # this is how nnls says that it has made 3 r iterations without an end
        return None
    residual = columns @ weights - last
    return None if distance * FARTHEST < 1 else -residual[:-1] / residual[-1]
