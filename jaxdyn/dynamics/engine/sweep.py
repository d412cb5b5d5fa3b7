"""The two basic recursions: `outward` from the base to the tips, and `inward` from the tips to the base.

An algorithm passes a small step function, which processes one link, with every component as a separate scalar. It is
the body of one scan, unrolled for short sweeps on a GPU (`scan_links`), which carries only the values that the next
link needs. In a tree, every link either follows its parent or starts a new branch, and the scan also carries the state
of every branch point from which branches remain to be visited (`Walk`). Only this module knows the
order in which links are visited.

The pose of a link is given by one formula for revolute, prismatic and helical joints. Let A = (w, v) be the joint screw
in the link frame, and (R_0, p_0) the placement M of that frame in its parent at q = 0. The pose T(q) = M exp([A] q)
(Lynch & Park 2017, sec. 3.3.3) has the rotation and position

    R(q) = a + sin(q) b + cos(q) c,    p(q) = p_a + sin(q) p_b + cos(q) p_c + q p_d,
    b = R_0 [w],  c = -R_0 [w]^2,  a = R_0 - c,
    p_a = p_0 + R_0 r - a r,  p_b = -b r,  p_c = -c r,  p_d = R_0 (v + w x r).

Here r = w x v is the offset of the axis from the origin. Prismatic joints have w = 0.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._jax_compat import Tracer, eval_jaxpr
from ...errors import ModelError
from ...model.chain import Chain
from ...spatial import components
from ...spatial.components import Mat, add, cross, matmul, rotate, scale, sub, unrotate, zeros
from ...spatial.so3 import sine_and_cosine
from .kernel import computed_once, mode
from .lanes import PerLink, lane_shape, scan_links

# the links of a chain, and the order in which a sweep visits them

# numbers of columns of the blocks a, b, c, p_a, p_b, p_c, p_d (see the module's docstring), screw and inertia
BLOCKS = 9, 9, 9, 3, 3, 3, 3, 6, 10
LONG = 256  # number of links above which `link_rows` returns separate arrays


class Link(NamedTuple):
    """A link as used in one step of a sweep: pose in the parent link at q, joint screw and ten inertial parameters."""

    rotation: Mat
    translation: tuple[Array, ...]
    screw: tuple[Array, ...]
    inertia: tuple[Array, ...]


def link_rows(
    rotation: Float[ArrayLike, "n 3 3 *#lanes"],
    translation: Float[ArrayLike, "n 3 *#lanes"],
    screw: Float[ArrayLike, "n 6 *#lanes"],
    inertia: Float[ArrayLike, "n 10 *#lanes"],
) -> Float[ArrayLike, "n 55"] | tuple[Float[ArrayLike, "n *#lanes"], ...]:
    """Constants of all links in the columns of `BLOCKS`; separate arrays if there are many links or lanes."""
    leaves = rotation, translation, screw, inertia
    return _rows(np, *map(np.asarray, leaves)) if all(map(is_known, leaves)) else _rows(jnp, *leaves)


def is_known(x: ArrayLike) -> bool:
    """True if the values are concrete and available to this process."""
    return not isinstance(x, Tracer) and (not isinstance(x, Array) or x.is_fully_addressable or x.is_fully_replicated)


def _rows(xp: ModuleType, *leaves: Any) -> Any:
    laned = any(x.ndim > y for x, y in zip(leaves, (3, 2, 2, 2), strict=True))
    if laned:  # add an axis of length 1 to a leaf that is shared by all lanes
        leaves = tuple(x if x.ndim > y else x[..., None] for x, y in zip(leaves, (3, 2, 2, 2), strict=True))
    placement, translation, screw, inertia = leaves
    n = len(screw)
    w, v = (tuple(screw[:, i + k] for i in range(3)) for k in (0, 3))
    columns = functools.partial(xp.stack, axis=1)
    k = columns(components.skew(w, xp.zeros_like(w[0])))
    k = k.reshape(k.shape[0], 3, 3, *k.shape[2:])
    b = _apply(placement, k)
    c = -_apply(b, k)
    a = placement - c
    offset = cross(w, v)
    r, along = columns(offset)[:, :, None], columns(add(v, cross(w, offset)))[:, :, None]
    moved, *turned = (_apply(m, r)[:, :, 0] for m in (placement, a, b, c))
    p_d = _apply(placement, along)[:, :, 0]
    a, b, c = (x.reshape(n, 9, *x.shape[3:]) for x in (a, b, c))
    p_a, p_b, p_c = translation + moved - turned[0], -turned[1], -turned[2]
    blocks = [a, b, c, p_a, p_b, p_c, p_d, screw, inertia]  # in the order of `BLOCKS`
    if not laned and n <= LONG:
        return xp.concatenate(blocks, axis=1)
    return tuple(x[:, i] for x in blocks for i in range(x.shape[1]))


def _apply(a: Any, b: Any) -> Any:
    """Multiply the matrices A (n, i, j, *lanes) and B (n, j, k, *lanes) by elementwise products, which XLA can fuse."""
    first, second, third = (a[:, :, j, None] * b[:, None, j] for j in range(3))
    return first + second + third


def link_at(row, q: Array, sin: Array, cos: Array) -> Link:
    """Evaluate a link at joint position q, with its sine and cosine, from its row of `link_rows`."""
    columns = (row[i] for i in range(sum(BLOCKS)))
    a, b, c, p_a, p_b, p_c, p_d, screw, inertia = (tuple(itertools.islice(columns, size)) for size in BLOCKS)
    rotation = tuple(x + sin * y + cos * z for x, y, z in zip(a, b, c, strict=True))
    translation = tuple(w + sin * x + cos * y + q * z for w, x, y, z in zip(p_a, p_b, p_c, p_d, strict=True))
    return Link(rotation, translation, screw, inertia)


class Schedule(NamedTuple):
    """The registers that each link of a walk reads and writes (-1: none), and which links start at the base."""

    source: np.ndarray
    target: np.ndarray
    from_base: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Walk:
    """A depth-first order of a tree's links, with registers for the states of branching links.

    A branching link keeps its state in a register until its last child is visited; registers are then reused, so few
    are needed: one or two for a humanoid. Every step of a sweep reads before it writes.

    Attributes:
        order: the links in the order of the walk; None if this is 0, 1, 2, ...
        back: position of each link in the walk; None if `order` is None.
    """

    order: np.ndarray | None
    back: np.ndarray | None
    registers: int
    schedule: Schedule

    @property
    def is_serial(self) -> bool:
        """True if every link's parent is the previous link."""
        return not self.schedule.from_base.any() and not (self.schedule.source >= 0).any()

    @property
    def leaves_base(self) -> bool:
        """True if more than one branch starts at the base."""
        return bool(self.schedule.from_base.any())


@functools.lru_cache(maxsize=256)
def walk_of(parents: tuple[int, ...]) -> Walk:
    """Return the `Walk` of a tree whose parents are given as in `Topology`."""
    order = _preorder(parents)
    back = [0] * len(order)
    for position, link in enumerate(order):
        back[link] = position
    above = tuple(-1 if parents[link] < 0 else back[parents[link]] for link in order)
    last_child = {p: i for i, p in enumerate(above)}  # for each link, its last child in the order of the walk
    n = len(above)
    source, target, from_base = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.zeros(n, bool)
    free: list[int] = []
    count = 0
    for i, p in enumerate(above):
        if i > 0 and p != i - 1:
            if p < 0:
                from_base[i] = True
            else:
                source[i] = target[p]
                if last_child[p] == i:
                    free.append(int(target[p]))
        if last_child.get(i, i + 1) > i + 1:  # the link has a child that does not directly follow it
            if not free:
                free.append(count)
                count += 1
            target[i] = free.pop()
    given = (None, None) if order == list(range(n)) else (np.array(order), np.array(back))
    return Walk(*given, count, Schedule(source, target, from_base))


def _preorder(parents: tuple[int, ...]) -> list[int]:
    """Depth-first order; the branch that needs the most registers comes last where this saves registers."""
    children: dict[int, list[int]] = {}
    for link, parent in enumerate(parents):
        children.setdefault(parent, []).append(link)
    needs: dict[int, int] = {}

    def held(link: int, branches: list[int]) -> int:
        """Maximum number of registers in use at once below `link` if its branches are visited in the order `branches`."""
        own = 1 if link >= 0 else 0  # the state of the base is always available
        return max([own + needs[x] for x in branches[:-1]] + [needs[x] for x in branches[-1:]], default=0)

    ordered: dict[int, list[int]] = {}
    for link in sorted({-1, *range(len(parents))}, reverse=True):
        branches = children.get(link, [])
        sparing = sorted(branches, key=lambda x: needs[x])
        better = held(link, sparing) < held(link, branches)
        ordered[link] = sparing if better else branches
        needs[link] = held(link, ordered[link])
    order, waiting = [], ordered[-1][::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += ordered[order[-1]][::-1]
    return order


# the sweeps


Step = Callable[[Any, Link, Any], tuple[Any, ...]]


class Beside(NamedTuple):
    """State of an inward sweep of which one part, `last`, is not summed."""

    total: Any  # as any other state, the sum of what the children hand over
    # what the previously visited link handed over: meaningful only at a link with one child, which is that link, but
    # cheaper than a sum, since it is not stored for the branches that remain to be visited
    last: Any


def outward(chain: Chain, q: PerLink, step: Step, base: Any, xs: Any = (), *, shares: bool = False) -> Any:
    """Walk from the base to the tips: state_i, out_i = step(state of i's parent, link i, xs_i).

    The outputs are stacked over links. If `shares` is true, the step returns a third item, a tuple of values that
    several results use: a kernel computes these once (see `computed_once`). The step is then traced twice.
    """
    return _sweep(chain, q, step, base, xs, shares, reverse=False)


def inward(chain: Chain, q: PerLink, step: Step, zero: Any, xs: Any = (), *, shares: bool = False) -> Any:
    """Walk from the tips to the base: to_parent_i, out_i = step(sum of the children's to_parent, link i, xs_i).

    The sum is `zero` at a tip. If `zero` is a `Beside`, so are the children's values. `shares` is as for `outward`.
    """
    return _sweep(chain, q, step, zero, xs, shares, reverse=True)


def _sweep(chain: Chain, q: Array, step: Step, start: Any, xs: Any, shares: bool, reverse: bool) -> Any:
    _check_shapes(chain, q, xs)
    in_kernel = mode().in_kernel
    walk = walk_of(chain.topology.parents)
    rows = link_rows(chain.rotation, chain.translation, chain.screw, chain.inertia)
    if walk.order is not None:
        rows, q, xs = jax.tree.map(lambda x: x[walk.order], (rows, q, xs))
    lanes = lane_shape()
    widen = functools.partial(jax.tree.map, lambda x: jnp.broadcast_to(x, lanes))

    def body(state, x):
        row, qi, si, ci, inputs = x
        results = step(state, link_at(row, qi, si, ci), inputs)
        state, out, shared = results if shares else (*results, ())
        return widen(state), widen(out), widen(shared if in_kernel else ())

    sin, cos = sine_and_cosine(q) if in_kernel and q.dtype == jnp.float64 else (jnp.sin(q), jnp.cos(q))
    start, xs = widen(start), (rows, q, sin, cos, xs)
    spare = ()
    if shares and in_kernel and chain.n > 0:  # the scan must know how many values the step shares before it calls it
        body, (_, _, shared) = _recorded(body, start, jax.tree.map(lambda x: x[0], xs))
        spare = (jnp.zeros_like(jax.tree.leaves(start)[0]),) * len(shared)
    if walk.is_serial:

        def along(carry, x):
            state, out, shared = body(carry[0], x)
            return (state, shared), out

        (_, shared), out = scan_links(along, (start, spare), xs, reverse=reverse)
    else:
        shared, out = (_scan_inward if reverse else _scan_outward)(walk, body, start, spare, xs)
    out = computed_once(shared, q, out) if spare else out
    return out if walk.back is None else jax.tree.map(lambda x: x[walk.back], out)


def _recorded(function: Callable, *arguments: Any) -> tuple[Callable, Any]:
    """The function, traced once, and the shapes of its results; a further trace repeats the program, which is faster."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    structure = jax.tree.structure(shapes)
    evaluate = lambda *x: eval_jaxpr(program.jaxpr, program.consts, *jax.tree.leaves(x))
    return lambda *x: jax.tree.unflatten(structure, evaluate(*x)), shapes


def _scan_outward(walk: Walk, body: Callable, base: Any, spare: Any, xs: Any) -> Any:
    """A scan in which the parent of a link is the previous link, an earlier branch point, or the base."""

    def step(carry, x):
        state, saved, _ = carry
        at, inputs = x
        state = _select(at.from_base, base, state) if walk.leaves_base else state
        for k, here in enumerate(saved):
            state = _select(at.source == k, here, state)
        state, out, shared = body(state, inputs)
        saved = tuple(_select(at.target == k, state, here) for k, here in enumerate(saved))
        return (state, saved, shared), out

    (_, _, shared), out = scan_links(step, (base, (base,) * walk.registers, spare), (walk.schedule, xs))
    return shared, out


def _scan_inward(walk: Walk, body: Callable, zero: Any, spare: Any, xs: Any) -> Any:
    """A reverse scan whose state is the sum of the children's values; see also `Beside`."""
    summed = not isinstance(zero, Beside)
    start = Beside(zero, ()) if summed else zero
    zero = start.total

    def step(carry, x):
        (total, last), saved, _ = carry
        at, inputs = x
        for k, here in enumerate(saved):
            total = _add_if(at.target == k, total, here)
        handed, out, shared = body(total if summed else Beside(total, last), inputs)
        handed, last = (handed, ()) if summed else handed
        total = _select(at.from_base | (at.source >= 0), zero, handed)
        left = [_select(at.target == k, zero, here) for k, here in enumerate(saved)]
        saved = tuple(_add_if(at.source == k, here, handed) for k, here in enumerate(left))
        return (Beside(total, last), saved, shared), out

    initial = start, (zero,) * walk.registers, spare
    (_, _, shared), out = scan_links(step, initial, (walk.schedule, xs), reverse=True)
    return shared, out


def _select(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def _add_if(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: x + jnp.where(condition, y, jnp.zeros_like(y)), a, b)


def _check_shapes(chain: Chain, q: Array, xs: Any) -> None:
    n, axes = chain.n, 1 + len(lane_shape())
    if chain.screw.shape[:2] != (n, 6) or chain.screw.ndim > 1 + axes:
        raise ModelError(
            f"the chain contains a batch of robots (screws of shape {chain.screw.shape}); use jax.vmap over the chain"
        )
    wrong = next((x.shape for x in (q, *jax.tree.leaves(xs)) if x.shape[:1] != (n,) or x.ndim > axes), None)
    if wrong is not None:
        raise ModelError(
            f"an argument has shape {wrong}, but the chain has {n} joints; pass one state, and use jax.vmap for batches"
        )


# steps that several algorithms share


def next_pose(parent, link: Link):
    """Pose (R, p) of a link in the world, from that of its parent: R = R_p R_pi, p = p_p + R_p p_pi."""
    rotation, position = parent
    return matmul(rotation, link.rotation), add(position, rotate(rotation, link.translation))


def next_pose_finely(parent, link: Link):
    """Pose of a link as (R, p, rest) with the position p + rest, from that of its parent."""
    # the rest is what p has no digits for (Knuth's sum): (p_a - p_b) + (rest_a - rest_b) is accurate for nearby links
    # at a large distance from the origin
    rotation, position, rest = parent
    turned, step = hop(rotation, link)
    total = add(position, step)
    taken = sub(total, position)
    lost = add(sub(position, sub(total, taken)), sub(step, taken))
    return turned, total, add(rest, lost)


def hop(rotation, link: Link):
    """Rotation R of a link in the world, and the vector from the origin of its parent to its own, in world axes."""
    return matmul(rotation, link.rotation), rotate(rotation, link.translation)


def carry_twist(parent, link: Link, rate):
    """Twist (w, v) of a link in its frame, from the parent's twist in the parent's frame and the joint rate."""
    w_parent, v_parent = parent
    at_joint = add(v_parent, cross(w_parent, link.translation))
    w = add(unrotate(link.rotation, w_parent), scale(rate, link.screw[:3]))
    return w, add(unrotate(link.rotation, at_joint), scale(rate, link.screw[3:]))


def start_pose(chain: Chain, *inputs: Float[Array, "n *#lanes"]):
    """Pose (R, p) of the base in the world; components have the type and the lanes of the inputs of a sweep."""
    (zero,) = zeros(1, inputs, (), (chain.rotation,))
    if chain.base_pose is not None:
        t = chain.base_pose
        return tuple(t[i, j] + zero for i in range(3) for j in range(3)), tuple(t[i, 3] + zero for i in range(3))
    one = jnp.ones_like(zero)
    return (one, zero, zero, zero, one, zero, zero, zero, one), (zero, zero, zero)
