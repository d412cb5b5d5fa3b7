"""The two basic recursions: `outward` from the base to the tips, and `inward` from the tips to the base.

An algorithm passes a small step function, which processes one link, with every component as a separate scalar. It is
the body of one scan, unrolled for short sweeps on a GPU (`scan_links`), which carries only the values that the next
link needs. In a tree, every link either follows its parent or starts a new branch, and the scan also carries the state
of every branch point from which branches remain to be visited (`tree.Walk`). Only this module depends on the robot's
topology.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._jax_compat import eval_jaxpr
from ...errors import ModelError
from ...model.chain import Chain
from ...model.joints import Link, link_at, link_rows
from ...model.tree import Walk, walk_of
from ...spatial.components import add, cross, matmul, rotate, scale, sub, unrotate, zeros
from ...spatial.so3 import sine_and_cosine
from .kernel import kept
from .lanes import PerLink, lane_shape, scan_links
from .mode import mode

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
    several results use: a kernel computes these once (see `kept`). The step is then traced twice.
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
    last, out = (_scan_inward if reverse else _scan_outward)(walk, body, start, spare, xs)
    out = kept(last, q, out) if spare else out
    return out if walk.back is None else jax.tree.map(lambda x: x[walk.back], out)


def _recorded(function: Callable, *arguments: Any) -> tuple[Callable, Any]:
    """The function, traced once, and the shapes of its results; a further trace repeats the program, which is faster."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    structure = jax.tree.structure(shapes)
    evaluate = lambda *x: eval_jaxpr(program.jaxpr, program.consts, *jax.tree.leaves(x))
    return lambda *x: jax.tree.unflatten(structure, evaluate(*x)), shapes


def _scan_outward(walk: Walk, body: Callable, base: Any, spare: Any, xs: Any) -> Any:
    """A scan in which the parent of a link is the previous link, an earlier branch point, or the base."""

    def along(carry, x):
        state, out, shared = body(carry[0], x)
        return (state, shared), out

    if walk.is_serial:
        (_, last), out = scan_links(along, (base, spare), xs)
        return last, out

    def step(carry, x):
        state, kept, _ = carry
        at, inputs = x
        state = _select(at.from_base, base, state) if walk.leaves_base else state
        for k, here in enumerate(kept):
            state = _select(at.source == k, here, state)
        state, out, shared = body(state, inputs)
        kept = tuple(_select(at.register == k, state, here) for k, here in enumerate(kept))
        return (state, kept, shared), out

    (_, _, last), out = scan_links(step, (base, (base,) * walk.registers, spare), (walk.place, xs))
    return last, out


def _scan_inward(walk: Walk, body: Callable, zero: Any, spare: Any, xs: Any) -> Any:
    """A reverse scan whose state is the sum of the children's values."""

    def along(carry, x):
        state, out, shared = body(carry[0], x)
        return (state, shared), out

    if walk.is_serial:
        (_, last), out = scan_links(along, (zero, spare), xs, reverse=True)
        return last, out

    beside = isinstance(zero, Beside)
    start = zero
    zero = start.total if beside else start

    def step(carry, x):
        state, kept, _ = carry
        at, inputs = x
        total, *last = state if beside else (state,)
        for k, here in enumerate(kept):
            total = jax.tree.map(lambda a, b, k=k: a + jnp.where(at.register == k, b, jnp.zeros_like(b)), total, here)
        handed, out, shared = body(Beside(total, *last) if beside else total, inputs)
        handed, *last = handed if beside else (handed,)
        starts = at.from_base | (at.source >= 0)
        total = jax.tree.map(lambda h, z: jnp.where(starts, z, h), handed, zero)
        state = Beside(total, *last) if beside else total
        new = []
        for k, here in enumerate(kept):
            left = jax.tree.map(lambda b, z, k=k: jnp.where(at.register == k, z, b), here, zero)
            new.append(
                jax.tree.map(lambda b, h, k=k: b + jnp.where(at.source == k, h, jnp.zeros_like(h)), left, handed)
            )
        return (state, tuple(new), shared), out

    (_, _, last), out = scan_links(step, (start, (zero,) * walk.registers, spare), (walk.place, xs), reverse=True)
    return last, out


def _select(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


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


def walk(parent, link: Link):
    """Pose (R, p) of a link in the world, from that of its parent: R = R_p R_pi, p = p_p + R_p p_pi."""
    rotation, position = parent
    return matmul(rotation, link.rotation), add(position, rotate(rotation, link.translation))


def walk_finely(parent, link: Link):
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
