"""Closest approach of shapes during a sampled motion, also between the samples."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Chain, ancestor_mask, layout
from ..model.configuration import differences, joint_positions, positions_at
from .pairs import sampled_distances
from .shapes import UNBOUNDED, Shapes

_FIRST = 256  # intervals at first
_RESOLUTION = 1e-3  # of distances [m] and of the time of a contact [s]
_SHARE = 0.1  # resolution of a larger distance, relative to it
_MOST = 200_000  # configurations


class Approach(NamedTuple):
    """The smallest distance of two shapes during a motion.

    Attributes:
        first, second: names of the shapes.
        distance: smallest signed distance that was found [m].
        time: when [s].
        bound: no distance during the motion is smaller than this [m].
        begin: first time at which the distance is below the clearance [s]; None if it never is.
    """

    first: str
    second: str
    distance: float
    time: float
    bound: float
    begin: float | None


def first_contact(approaches: Iterable[Approach]) -> str:
    """Words such as "touches at 1.23 s: forearm and floor", for the pair that touches first; "" if no pair does."""
    found = min(((x.begin, x.first, x.second) for x in approaches if x.begin is not None), default=None)
    return "" if found is None else f"touches at {found[0]:.2f} s: {found[1]} and {found[2]}"


def closest_approaches(
    chain: Chain,
    shapes: Shapes,
    t: Float[Array, " N"] | Float[np.ndarray, " N"],
    q: Float[Array, "N nq"] | Float[np.ndarray, "N nq"],
    clearance: float = 0.0,
) -> tuple[Approach, ...]:
    """Closest approach of every pair in `shapes.pairs` during a motion, the nearest pair first.

    Between samples, ordinary joints move at a constant rate, and quaternion joints along screws. In each interval, no pair of
    shapes moves relative to each other by more than L, the sum of the joints' displacements times their distances from the
    farther shape, bounded for all configurations. Distances d_0 and d_1 at the ends of an interval thus bound those within by
    (d_0 + d_1 - L) / 2 (Piyavskii 1972, Shubert 1972). Intervals are halved until the smallest distance is known to within
    1 mm or a tenth of its difference from the clearance, and the first time below the clearance to within 1 ms. Contacts
    with overlap or excess of less than 1 mm may be found later than they begin, or not at all; `Approach.bound` is strict.

    Args:
        t: times of the samples, increasing [s].
        q: their configurations [rad or m].
        clearance: distance below which a pair is too near [m].

    Raises:
        ModelError: the shapes of t and q do not match, or there are fewer than two samples.

    Cost: the distances in a few hundred configurations, and in more if shapes are near each other while the robot moves, up to
    200,000; then `bound` says what is known.
    """
    t, q = np.asarray(t, float), np.asarray(q, float)
    if len(t) < 2 or q.shape != (len(t), chain.nq):
        fault = f"times of shape {t.shape} and positions of shape {q.shape} are no motion of this robot"
        raise ModelError(fault, f"pass at least two samples, each with {chain.nq} positions")
    if not shapes.pairs:
        return ()
    paths = np.concatenate([np.zeros((1, len(shapes.pairs))), np.cumsum(_path_lengths(chain, shapes, q), axis=0)])
    times, distance = np.zeros(0), np.zeros((0, len(shapes.pairs)))
    new = np.unique(np.append(np.linspace(t[0], t[-1], min(_FIRST, 4 * (len(t) - 1)) + 1), t[-1]))
    while True:
        order = np.argsort(np.concatenate([times, new]), kind="stable")
        found = sampled_distances(chain, shapes, positions_at(chain, t, q, new), _FIRST)
        times, distance = np.concatenate([times, new])[order], np.concatenate([distance, found])[order]
        path = np.stack([np.interp(times, t, x) for x in paths.T], axis=1)
        low = (distance[:-1] + distance[1:] - np.diff(path, axis=0)) / 2
        open_ = _unresolved(times, distance, low, clearance)
        new = (times[:-1] + times[1:])[open_] / 2
        if len(new) == 0 or len(times) + len(new) > _MOST:
            break
    found = zip(shapes.pair_names, distance.T, low.min(axis=0), strict=True)
    approaches = [_approach(names, times, d, bound, clearance) for names, d, bound in found]
    return tuple(sorted(approaches, key=lambda x: x.distance))


def _unresolved(times: np.ndarray, distance: np.ndarray, low: np.ndarray, clearance: float) -> np.ndarray:
    """Mask of the intervals that may hold a smaller distance of a pair, or an earlier time below the clearance."""
    least = distance.min(axis=0)
    tolerance = np.maximum(_RESOLUTION, _SHARE * np.abs(least - clearance))
    below = distance < clearance
    first = np.where(below.any(axis=0), below.argmax(axis=0), len(times))
    end = np.arange(1, len(times))[:, None]
    before, begins = end <= first, end == first  # the interval ends before the contact or with it; it ends with it
    open_ = (low < least - tolerance) | (before & ~begins & (low < clearance - _RESOLUTION))
    length = np.diff(times)
    open_ |= begins & (length > _RESOLUTION)[:, None]
    return open_.any(axis=1) & (length > 1e-9 * (times[-1] - times[0]))


def _approach(names: tuple[str, str], times: np.ndarray, d: np.ndarray, bound: float, clearance: float) -> Approach:
    nearest, begin = int(d.argmin()), None
    if (below := d < clearance).any():
        k = int(below.argmax())
        share = 0.0 if k == 0 else (d[k - 1] - clearance) / (d[k - 1] - d[k])
        begin = float(times[max(k - 1, 0)] + share * (times[k] - times[max(k - 1, 0)]))
    return Approach(*names, float(d[nearest]), float(times[nearest]), float(min(bound, d[nearest])), begin)


def _path_lengths(chain: Chain, shapes: Shapes, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, "N-1 p"]:
    """Bounds L of the displacement of each pair's shapes relative to each other, from sample to sample [m].

    A joint with the displacement (w, v) moves a point at the distance r from the origin of its link by at most |w| r + |v|.
    """
    turns, slides = _displacements(chain, q)
    reach, carries = _reach(chain, shapes, q)
    a, b = np.array(shapes.pairs).T
    moved = carries[a] != carries[b]
    farthest = np.where(carries[a], reach[a], reach[b]) * moved
    return turns @ farthest.T + slides @ moved.T


def _displacements(chain: Chain, q: Float[np.ndarray, "N nq"]) -> tuple[np.ndarray, np.ndarray]:
    """|w| and |v| of the displacement of each joint from sample to sample (N-1, n); of a quaternion joint at its last link."""
    small = differences(chain, q[:-1], q[1:])
    matrix = np.eye(chain.n) if chain.coupling is None else np.asarray(chain.coupling.matrix, float)
    own = np.abs(small @ matrix.T)
    screw = np.asarray(chain.screw, float)
    turns, slides = (own * np.linalg.norm(part, axis=1) for part in (screw[:, :3], screw[:, 3:]))
    for joint in layout(chain).curved:
        twist, links = small[:, joint.columns], np.arange(joint.columns.start, joint.columns.stop)
        turns[:, links], slides[:, links] = 0.0, 0.0
        turns[:, links[-1]] = np.linalg.norm(twist[:, :3], axis=1)
        slides[:, links[-1]] = np.linalg.norm(twist[:, 3:], axis=1)
    return turns, slides


def _reach(chain: Chain, shapes: Shapes, q: Float[np.ndarray, "N nq"]) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the distance of every shape's points from the origin of every link that carries it [m]; which do (m, n)."""
    offsets = np.linalg.norm(np.asarray(chain.translation, float), axis=1) + _travel(chain, q)
    above = ancestor_mask(chain.topology.parents)  # (i, j): link j carries link i
    strictly = above & ~np.eye(chain.n, dtype=bool)
    between = np.array([[offsets[above[i] & strictly[:, j]].sum() for j in range(chain.n)] for i in range(chain.n)])
    links = np.array(shapes.links)
    carries = np.where(links[:, None] >= 0, above[links], False)
    extent = _extents(shapes)
    bounded = extent[np.isfinite(extent)]
    # for surfaces without an end, that of the others
    extent = np.where(np.isfinite(extent), extent, offsets.sum() + bounded.max(initial=0.0))
    return np.where(carries, between.reshape(-1, chain.n)[links] + extent[:, None], 0.0), carries


def _travel(chain: Chain, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, " n"]:
    """Bound of the displacement of each link's origin by its own joint during the motion [m]."""
    screw = np.asarray(chain.screw, float)
    turns, v = screw[:, :3].any(axis=1), screw[:, 3:]
    along = np.where(
        turns, np.abs((screw[:, :3] * v).sum(axis=1)), 1.0
    )  # along the axis of the joint, per radian or metre
    about = 2 * np.where(turns, np.linalg.norm(v, axis=1), 0.0)  # at most twice the distance from the axis
    travel = np.abs(joint_positions(chain, q)).max(axis=0) * along + about
    for joint in layout(
        chain
    ).curved:  # spherical joints do not displace the origin; free ones are below no other joint
        travel[joint.columns] = 0.0
    return travel


def _extents(shapes: Shapes) -> Float[np.ndarray, " m"]:
    """Largest distance of each shape's points from the origin of its link [m]; infinite for planes and height fields."""
    place = np.linalg.norm(np.asarray(shapes.pose, float)[:, :3, 3], axis=1)
    size, hulls = np.asarray(shapes.size, float), iter(shapes.vertices)
    core = []
    for kind, x in zip(shapes.kinds, size, strict=True):
        if kind == "hull":
            core.append(np.linalg.norm(np.asarray(next(hulls), float), axis=1).max())
        else:
            radial = np.array([0.0, x[0], x[2]]) if kind == "cylinder" else x
            core.append(np.inf if kind in UNBOUNDED else x.max() if kind == "ellipsoid" else np.linalg.norm(radial))
    return place + np.array(core) + np.asarray(shapes.radius, float)
