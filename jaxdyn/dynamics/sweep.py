"""The two recursions everything else is made of: `outward` from the base to the tips, `inward` from the tips to the base.

An algorithm is a small step function handed to one of them; the steps see one link, as scalars. How links hang together is
decided here and nowhere else, and so is the shape that XLA gets to compile (docs/benchmarks.md has the measurements):

- throughput, for batches: the whole step in one `lax.scan` body, every component an array of its own, so that each becomes a
  loop over the batch with unit stride; only what the next link needs is carried, and the rest comes out stacked;
- latency, for a single robot: there a scan costs by the number of small kernels in its body, so the poses of all links are
  computed at once before it, and what is carried and what comes out is packed into one vector each.

A tree is walked in one scan too, in an order in which every link comes right after its parent or starts a new branch. The
scan carries the last link's state, and one more for every branching that is still open (`tree.Walk`); a serial chain has none.

`by_batch` makes a function take the second form when it is called on one robot and the first under `vmap` and differentiation.
"""

import contextvars
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, PyTree

from ..errors import ModelError
from ..model.chain import Chain
from ..model.joints import Link, link_at, link_buffer, links_at, unpack_link
from ..model.tree import Walk, walk_of

State = TypeVar("State")
Function = TypeVar("Function", bound=Callable[..., Any])
Step = Callable[[Any, Link, Any], tuple[Any, Any]]
Local = Callable[[Any, Link, Any], Any]

_SINGLE: contextvars.ContextVar[bool] = contextvars.ContextVar("single", default=False)


def outward(
    chain: Chain, q: Float[Array, " n"], step: Step, base: Any, xs: Any = (), local: Local | None = None
) -> Any:
    """Walk from the base to the tips: state_i, out_i = step(state of i's parent, link i, xs_i).

    Args:
        step: gets the parent's state, the link at q_i and the link's slice of `xs`.
        base: the state of the base, a tree of scalars.
        xs: arrays stacked over links.
        local: makes out_i into local(out_i, link i, xs_i) where that needs no neighbour; entry by entry, so that it may also
            be called with all links at once.

    Returns:
        the outputs, stacked over links.
    """
    return _sweep(chain, q, step, base, xs, local, reverse=False)


def inward(chain: Chain, q: Float[Array, " n"], step: Step, zero: Any, xs: Any = (), local: Local | None = None) -> Any:
    """Walk from the tips to the base: to_parent_i, out_i = step(sum of the children's to_parent, link i, xs_i).

    Args:
        step: gets what the children hand on, summed (`zero` at a tip), the link at q_i and the link's slice of `xs`.
        zero: what a link without children receives, a tree of scalars.
        xs: arrays stacked over links.
        local: as for `outward`.

    Returns:
        the outputs, stacked over links.
    """
    return _sweep(chain, q, step, zero, xs, local, reverse=True)


def _sweep(chain: Chain, q: Array, step: Step, start: Any, xs: Any, local: Local | None, reverse: bool) -> Any:
    _check_shapes(chain, q, xs)
    walk = walk_of(chain.topology.parents)
    rows = _constants(chain)
    if walk.order is not None:
        order = walk.order
        rows, q, xs = rows[order], q[order], jax.tree.map(lambda x: x[order], xs)
    sin, cos = jnp.sin(q), jnp.cos(q)
    scan = functools.partial(_scan_inward if reverse else _scan_outward, walk)
    if _SINGLE.get():
        links = links_at(rows, q, sin, cos)
        out = _packed_scan(scan, step, start, links, xs)
        out = out if local is None else local(out, unpack_link(links.T), xs)
    else:

        def body(state, x):
            row, qi, si, ci, inputs = x
            link = link_at(row, qi, si, ci)
            state, out = step(state, link, inputs)
            return state, out if local is None else local(out, link, inputs)

        out = scan(body, start, (rows, q, sin, cos, xs))
    return out if walk.back is None else jax.tree.map(lambda x: x[walk.back], out)


def _scan_outward(walk: Walk, body: Callable, base: Any, xs: Any) -> Any:
    """A scan whose state comes from the parent: from the link before, from an open branching, or from the base."""
    if walk.is_serial:
        return jax.lax.scan(body, base, xs)[1]

    def step(carry, x):
        state, kept = carry
        at, inputs = x
        state = _select(at.from_base, base, state) if walk.leaves_base else state
        for k, here in enumerate(kept):
            state = _select(at.source == k, here, state)
        state, out = body(state, inputs)
        kept = tuple(_select(at.register == k, state, here) for k, here in enumerate(kept))
        return (state, kept), out

    return jax.lax.scan(step, (base, (base,) * walk.registers), (walk.place, xs))[1]


def _scan_inward(walk: Walk, body: Callable, zero: Any, xs: Any) -> Any:
    """A reversed scan whose state is the sum of what the children handed on."""
    if walk.is_serial:
        return jax.lax.scan(body, zero, xs, reverse=True)[1]

    def step(carry, x):
        state, kept = carry
        at, inputs = x
        for k, here in enumerate(kept):
            state = jax.tree.map(lambda a, b, k=k: a + jnp.where(at.register == k, b, jnp.zeros_like(b)), state, here)
        handed, out = body(state, inputs)
        starts = at.from_base | (at.source >= 0)
        state = jax.tree.map(lambda h, z: jnp.where(starts, z, h), handed, zero)
        new = []
        for k, here in enumerate(kept):
            left = jax.tree.map(lambda b, z, k=k: jnp.where(at.register == k, z, b), here, zero)
            new.append(
                jax.tree.map(lambda b, h, k=k: b + jnp.where(at.source == k, h, jnp.zeros_like(h)), left, handed)
            )
        return (state, tuple(new)), out

    return jax.lax.scan(step, (zero, (zero,) * walk.registers), (walk.place, xs), reverse=True)[1]


def _select(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def _check_shapes(chain: Chain, q: Array, xs: Any) -> None:
    n = chain.n
    if chain.screw.shape != (n, 6):
        raise ModelError(
            f"the chain's leaves hold a batch (screws of shape {chain.screw.shape}): use jax.vmap over the chain"
        )
    wrong = next((x.shape for x in (q, *jax.tree.leaves(xs)) if x.shape != (n,)), None)
    if wrong is not None:
        raise ModelError(
            f"an argument has shape {wrong}, but the chain has {n} joints: pass one state, and jax.vmap for batches"
        )


def _constants(chain: Chain) -> Float[Array, "n 55"]:
    """The links' constants; of a robot that a jitted function closes over they are computed once, while it is traced."""
    if any(isinstance(leaf, Tracer) for leaf in (chain.rotation, chain.translation, chain.screw, chain.inertia)):
        return link_buffer(chain)
    with jax.ensure_compile_time_eval():
        return link_buffer(chain)


def _packed_scan(scan: Callable, step: Step, start: Any, links: Float[Array, "n 28"], xs: Any) -> Any:
    """The same scan with state, inputs and outputs each packed into one vector a link."""
    pack_inputs, unpack_inputs = _packing(xs, axis=1)
    pack_state, unpack_state = _packing(start, axis=0)
    inputs_shape = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    _, out_shape = jax.eval_shape(lambda s, row, x: step(s, unpack_link(row), x), start, links[0], inputs_shape)
    pack_out, unpack_out = _packing(out_shape, axis=0)

    def body(state, x):
        row, inputs = x
        state, out = step(unpack_state(state), unpack_link(row), unpack_inputs(inputs))
        return pack_state(state), pack_out(out)

    return unpack_out(scan(body, pack_state(start), (links, pack_inputs(xs))).T)


def _packing(tree: PyTree, axis: int) -> tuple[Callable[[PyTree], Any], Callable[[Any], PyTree]]:
    """Functions that stack the leaves of such trees along an axis, and that take the first axis apart again."""
    structure = jax.tree.structure(tree)

    def pack(leaves_of: PyTree) -> Array | None:
        leaves = jax.tree.leaves(leaves_of)
        return jnp.stack(leaves, axis=axis) if leaves else None

    def unpack(vector: Array | None) -> PyTree:
        return jax.tree.unflatten(
            structure, [vector[i] for i in range(structure.num_leaves)] if vector is not None else []
        )

    return pack, unpack


def by_batch(function: Function) -> Function:
    """Let a function of arrays (and chains) sweep in the latency form on one robot, in the throughput form on batches.

    Under `vmap`, and wherever it is differentiated, the function is traced as it stands; called on one robot its sweeps are
    packed. Results agree to rounding. Positional arguments only.
    """

    @functools.wraps(function)
    def chosen(*arguments):
        leaves, structure = jax.tree.flatten(arguments)
        traced = [isinstance(leaf, Tracer) for leaf in leaves]

        def call(*variables):
            # what is known stays outside, so that the constants of a robot closed over are computed while tracing
            rest = iter(variables)
            filled = [next(rest) if t else leaf for leaf, t in zip(leaves, traced, strict=True)]
            return function(*jax.tree.unflatten(structure, filled))

        def packed(*variables):
            token = _SINGLE.set(True)
            try:
                return call(*variables)
            finally:
                _SINGLE.reset(token)

        single = custom_vmap(packed)

        @single.def_vmap
        def batched(axis_size, in_batched, *variables):
            in_axes = tuple(0 if mapped else None for mapped in in_batched)
            out = jax.vmap(call, in_axes, axis_size=axis_size)(*variables)
            return out, jax.tree.map(lambda _: True, out)

        del batched
        differentiable = jax.custom_jvp(lambda *variables: single(*variables))
        differentiable.defjvp(lambda primals, tangents: sparse_jvp(call, primals, tangents), symbolic_zeros=True)
        return differentiable(*(leaf for leaf, t in zip(leaves, traced, strict=True) if t))

    return chosen  # type: ignore[return-value]


def sparse_jvp(function: Callable[..., Any], primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp` that leaves arguments whose tangent is a `SymbolicZero` out of the derivative, at any depth of trees."""
    values, structure = jax.tree.flatten(primals)
    directions = jax.tree.leaves(tangents, is_leaf=_is_zero)
    active = [not _is_zero(t) for t in directions]

    def of_active(*varied):
        rest = iter(varied)
        filled = [next(rest) if a else v for v, a in zip(values, active, strict=True)]
        return function(*jax.tree.unflatten(structure, filled))

    chosen = [(v, t) for v, t, a in zip(values, directions, active, strict=True) if a]
    return jax.jvp(of_active, tuple(v for v, _ in chosen), tuple(t for _, t in chosen))


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)
