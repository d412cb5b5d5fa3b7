"""Which pairs of shapes on a robot must not touch: all but those that a file, the structure or samples rule out.

The rules are those of MoveIt's setup assistant (moveit.picknik.ai, concepts/kinematics: self-collision matrix).
"""

import os
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError
from ..io.files import attribute, parse_xml, read_bytes
from ..model.chain import Chain, ancestor_mask, coordinate_limits, layout, leading_joints, turning_joints
from ..model.configuration import neutral_configuration
from ..model.joints import Free
from .distance import distances
from .shapes import UNBOUNDED, LeftOut, Shapes, with_pairs

SAMPLES = 10_000
_FIRST, _CHUNK = 256, 2048  # configurations in which all pairs are tested, and in one call
_ALWAYS = 0.95  # fraction of the configurations in which a pair touches that is left out, as in MoveIt
_TAIL = 10  # smallest distances from which the minimum is extrapolated

T = TypeVar("T")
Pair = tuple[int, int]


class Disabled(NamedTuple):
    """Two links of a robot description whose collision is not tested, and the reason in the file."""

    first: str
    second: str
    reason: str


def read_srdf(path: str | os.PathLike[str]) -> tuple[Disabled, ...]:
    """Read the pairs of links that an SRDF file (of MoveIt, for example) excludes: `<disable_collisions link1 link2 reason/>`.

    Raises:
        ModelError: the file cannot be read, or an element lacks a link.
    """
    root = parse_xml(read_bytes(path, "SRDF file"), os.fspath(path)).root
    found = []
    for node in root.iter("disable_collisions"):
        first, second = (attribute(node, name, "an excluded pair") for name in ("link1", "link2"))  # type: ignore[arg-type]
        found.append(Disabled(first, second, node.get("reason") or "no reason given"))
    return tuple(found)


def choose_pairs(
    chain: Chain,
    shapes: Shapes,
    *,
    disabled: Iterable[tuple[str, str, str]] = (),
    neighbours: Iterable[tuple[str, str]] | None = None,
    samples: int = SAMPLES,
    margin: float = 0.05,
    seed: int = 0,
) -> Shapes:
    """The shapes with those pairs that can touch and must not; the others are in `left_out`, each with its reason.

    Pairs on the same link never count. Of the others, these are left out, in this order:

    - pairs of `disabled` links, and of `neighbours`;
    - pairs in contact in at least 95 % of the samples: the shapes overlap by construction;
    - pairs that never come near. With the smallest distances d_1 <= ... <= d_10 of all samples, the minimum is
      extrapolated to d_1 - (d_10 - d_1), an estimate of the end of a distribution of which only samples are known (after
      Robson & Whitlock 1964); it exceeds `margin`.

    The samples are the neutral configuration, moved into the joint limits, and random ones, uniform within the limits, within
    +-pi where a revolute joint has none, and of any orientation for spherical joints. Free joints and prismatic joints without
    limits are not sampled, and pairs that they move relative to each other are kept. That a pair is never near is thus not
    proven; `samples` and `margin` make it more certain, and `samples=0` leaves out no pair for its distances.

    Choose pairs before you add surroundings by `with_environment`, which adds its own.

    Args:
        disabled: names of two links in the robot description, also of fused ones, and the reason (see `read_srdf`).
        neighbours: names of links in the description that are connected by a joint. None: every link and its parent link in
            the chain; for a link without shapes on its path, the next link with shapes takes its place.
        margin: distance beyond which a pair is not near [m].

    Raises:
        ModelError: there are disabled pairs, but none is on links with shapes.

    Cost: the distances of all pairs in 256 configurations, and of those that are still in doubt in the others.
    """
    bodies = description_links(shapes.names)
    given = list(disabled)
    named = {frozenset((a, b)): f"disabled in the file ({why})" for a, b, why in given}
    if named and not any(pair <= {*bodies} for pair in named):
        fault = f"none of the {len(named)} disabled pairs is on two links with shapes"
        raise ModelError(fault, f"check the file; the links are {', '.join(sorted({*bodies}))}")
    if neighbours is None:
        carriers = {link: chain.topology.parents[link] for link in range(chain.n)}
        near = {frozenset(pair) for pair in nearest_above(carriers, {*shapes.links})}
        adjacent = lambda a, b: frozenset((shapes.links[a], shapes.links[b])) in near
    else:
        pairs = {frozenset(pair) for pair in neighbours}
        adjacent = lambda a, b: frozenset((bodies[a], bodies[b])) in pairs
    reasons = {}
    for a, b in candidates(shapes):
        if (key := frozenset((bodies[a], bodies[b]))) in named:
            reasons[a, b] = named[key]
        elif adjacent(a, b):
            reasons[a, b] = ADJACENT
    return sift(chain, shapes, reasons, samples=samples, margin=margin, seed=seed)


ADJACENT = "adjacent links"


def candidates(shapes: Shapes) -> list[Pair]:
    """All pairs of shapes on different links; two planes or height fields make none."""
    m, kinds = len(shapes.kinds), shapes.kinds
    apart = lambda a, b: shapes.links[a] != shapes.links[b] and not {kinds[a], kinds[b]} <= UNBOUNDED
    return [(a, b) for a in range(m) for b in range(a + 1, m) if apart(a, b)]


def description_links(names: tuple[str, ...]) -> tuple[str, ...]:
    """The link of every shape: its name without the number, if another shape has the name without it."""
    known = {*names}
    return tuple(short if (short := re.sub(r"/\d+$", "", name)) in known else name for name in names)


def nearest_above(parents: Mapping[T, T], shaped: Container[T]) -> list[tuple[T, T]]:
    """Every link with shapes, and the next link above it that has shapes, by parent of each link."""
    found = []
    for link in parents:
        above = parents[link]
        while above in parents and above not in shaped:
            above = parents[above]
        if link in shaped and above in shaped:
            found.append((link, above))
    return found


def sift(
    chain: Chain,
    shapes: Shapes,
    reasons: Mapping[Pair, str],
    kept: Container[Pair] = (),
    *,
    samples: int = SAMPLES,
    margin: float = 0.05,
    seed: int = 0,
) -> Shapes:
    """The shapes with all pairs but those with `reasons`, and those that samples rule out, unless they are to be `kept`."""
    reasons = dict(reasons)
    free = _unsampled(chain)
    ancestors = ancestor_mask(chain.topology.parents)
    moves = np.pad(ancestors[free], ((0, 0), (0, 1)))  # the last column is the base, -1
    bounded = lambda a, b: bool((moves[:, a] == moves[:, b]).all())
    every = [pair for pair in candidates(shapes) if pair not in reasons]
    doubtful = [pair for pair in every if pair not in kept and bounded(*(shapes.links[k] for k in pair))]
    if samples and doubtful:
        reasons |= _ruled_out(chain, shapes, doubtful, configurations(chain, samples, seed), margin)
    left = tuple(LeftOut(a, b, why) for (a, b), why in sorted(reasons.items()))
    return with_pairs(shapes, [pair for pair in every if pair not in reasons], left)


def _ruled_out(chain: Chain, shapes: Shapes, pairs: list[Pair], q: np.ndarray, margin: float) -> dict[Pair, str]:
    """The pairs that touch in almost all configurations or are near in none, and why."""
    smallest = np.full((len(pairs), _TAIL), np.inf)
    touching, open_ = np.zeros(len(pairs)), np.arange(len(pairs))
    for begin, end in ((0, _FIRST), (_FIRST, len(q))):
        some = q[begin:end]
        if len(some) == 0 or len(open_) == 0:
            break
        found = sampled_distances(chain, with_pairs(shapes, [pairs[k] for k in open_]), some)
        touching[open_] += (found <= 0).sum(axis=0)
        both = np.concatenate([smallest[open_], found.T], axis=1)
        smallest[open_] = np.sort(np.partition(both, _TAIL - 1, axis=1)[:, :_TAIL], axis=1)
        often = touching[open_] >= (_ALWAYS - 0.1 * (end < len(q))) * min(end, len(q))
        open_ = open_[often | (smallest[open_, 0] > margin)]
    always = touching >= _ALWAYS * len(q)
    few = np.where(np.isfinite(smallest[:, -1]), smallest[:, -1], smallest[:, 0])
    never = 2 * smallest[:, 0] - few > margin
    words = f"of {len(q)} configurations"
    found = {pairs[k]: f"in contact in at least {_ALWAYS:.0%} {words}" for k in np.flatnonzero(always)}
    return found | {pairs[k]: f"farther apart than {margin:g} m in all {words}" for k in np.flatnonzero(never)}


def sampled_distances(
    chain: Chain, shapes: Shapes, q: Float[np.ndarray, "N nq"], size: int | None = None
) -> Float[np.ndarray, "N p"]:
    """Distances of all pairs in many configurations, in chunks of equal size, for which they are compiled."""
    evaluate = lambda chunk: _of_chunk(chain, shapes, jnp.asarray(chunk, chain.dtype))
    return in_chunks(evaluate, q, min(_CHUNK, len(q)) if size is None else size)


def in_chunks(function: Callable[[np.ndarray], Any], q: Float[np.ndarray, "N nq"], size: int) -> Any:
    """The results for all rows of q of a function of `size` rows, of any structure, in NumPy."""
    chunks = np.resize(q, (-(-len(q) // size) * size, q.shape[1])).reshape(-1, size, q.shape[1])
    return jax.tree.map(lambda *x: np.concatenate(x)[: len(q)], *map(function, chunks))


@jax.jit
def _of_chunk(chain: Chain, shapes: Shapes, q: Array) -> Array:
    return jax.vmap(lambda x: distances(chain, shapes, x))(q)


def configurations(chain: Chain, count: int, seed: int) -> Float[np.ndarray, "count nq"]:
    """The neutral configuration within the limits, then random ones (see `choose_pairs`)."""
    rng, where = np.random.default_rng(seed), layout(chain)
    lower, upper = _ranges(chain)
    q = np.tile(np.asarray(neutral_configuration(chain), float), (count, 1))
    uniform = rng.uniform(lower, upper, (count, chain.nv))
    uniform[0] = np.clip(0.0, lower, upper)
    q[:, where.entries] = uniform[:, where.columns]
    for joint in where.curved:
        if not isinstance(joint, Free):
            turns = rng.normal(size=(count - 1, 4))
            q[1:, joint.quaternion] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
    return q


def _ranges(chain: Chain) -> tuple[Float[np.ndarray, " nv"], Float[np.ndarray, " nv"]]:
    """Lower and upper ends of the samples of every coordinate; both are 0 for one that is not sampled."""
    limits, turns = coordinate_limits(chain), turning_joints(chain)[leading_joints(chain)]
    lower, upper = limits["lower"], limits["upper"]
    infinite = ~(np.isfinite(lower) & np.isfinite(upper))
    low = np.where(np.isfinite(lower), lower, np.minimum(-np.pi, np.where(np.isfinite(upper), upper - 2 * np.pi, 0)))
    high = np.where(np.isfinite(upper), upper, np.maximum(np.pi, np.where(np.isfinite(lower), lower + 2 * np.pi, 0)))
    still = infinite & ~turns
    return np.where(still, np.clip(0, lower, upper), low), np.where(still, np.clip(0, lower, upper), high)


def _unsampled(chain: Chain) -> Bool[np.ndarray, " n"]:
    """Mask of the joints of which not all positions are sampled: free ones, and prismatic ones without limits."""
    lower, upper = _ranges(chain)
    limits = coordinate_limits(chain)
    still = (lower == upper) & ~(limits["lower"] == limits["upper"])
    for joint in layout(chain).curved:
        still[joint.columns] = isinstance(joint, Free)
    return still if chain.coupling is None else (np.asarray(chain.coupling.matrix) != 0) @ still


def pair_table(shapes: Shapes) -> str:
    """All pairs of shapes on different links, one a line: their names, and whether their distance is computed or why not."""
    rows = [(*names, "") for names in shapes.pair_names]
    rows += [(shapes.names[x.first], shapes.names[x.second], f"left out: {x.reason}") for x in shapes.left_out]
    wide = [max((len(row[k]) for row in rows), default=0) for k in range(2)]
    return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {why}".rstrip() for a, b, why in rows)
