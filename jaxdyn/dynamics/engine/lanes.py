"""Lowering of a function of one robot and one state, for single states and for batches.

The body of a function decorated with `by_batch` operates on arrays (links, ...), whose axes after the first are lanes:
states that are computed in parallel. Callers use it as a function of one state. On the CPU, one state is one kernel,
since XLA would launch dozens of small programs per iteration of a scan. Under `vmap`, all batch axes are merged into one
last axis; on the CPU, there is one kernel per chunk of lanes that fits the first-level cache, and on other platforms,
one program for all lanes. Derivatives follow the rule given by `defjvp`, or else JAX differentiates the body. See
docs/design.md.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec, auto_axes
from jaxtyping import Array, Float

from ..._jax_compat import SymbolicZero, Tracer, custom_vmap
from ...model.chain import Chain
from .kernel import LARGEST, Count, as_kernel, by_platform, compilable_lanes, computed_once, mode, traced_in

# the `size` of a function, from its first argument: the number of values per state that its largest operation accesses
Size = Callable[[Any], int]

# arrays in the body of a function decorated with `by_batch`; those that all lanes share may lack the axis of the lanes
PerLink = Float[Array, "n *#lanes"]
LinkWrenches = Float[Array, "n 6 *#lanes"]
BaseGravity = Float[Array, "3 *#lanes"]  # in the axes of the base

NO_KERNEL = LARGEST + 1  # the `size` of a function that cannot be a kernel
# lanes per chunk: 16 to 256 are about equally fast; fewer do not fill vector registers, and more exceed the L1 cache
LANES = 64
# maximum product of iterations and `size` for which a loop is unrolled for a GPU; 0, as in tests/benchmarks, keeps all loops
UNROLLED = 3000


def lane_shape() -> tuple[Count, ...]:
    """Trailing shape of arrays: (lanes,) while a function decorated with `by_batch` is traced for a batch, otherwise ()."""
    return mode().lanes or ()


def spread_over_lanes(x: Array) -> Array:
    """Repeat a vector over links for every lane."""
    return jnp.broadcast_to(with_lanes(x, 1), (x.shape[0], *lane_shape()))


def with_lanes(x: Array, dimensions: int) -> Array:
    """An array with lanes as the last axis, after `dimensions` other axes; arrays without lanes are broadcast over them."""
    lanes = lane_shape()
    return jnp.broadcast_to(x[..., None], (*x.shape, *lanes)) if lanes and x.ndim == dimensions else x


def unrolls_loops() -> bool:
    """True while the form for platforms other than the CPU is traced, in which short loops are unrolled."""
    return UNROLLED > 0 and mode().unroll is not None


def scan_links(body: Callable, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`lax.scan` over links or joints: a loop on the CPU; on other platforms, unrolled if it is short."""
    # on a GPU, every iteration repeats all launches of the body
    turns = len(jax.tree.leaves(xs)[0])
    return jax.lax.scan(body, carry, xs, reverse=reverse, unroll=0 < turns <= (mode().unroll or 0))


def scan_shared(body: Callable, xs: Any) -> Any:
    """The results of shared, result = body(x) for every x, stacked: a loop on the CPU, and on other platforms one program.

    `shared` is a tuple of values that several results use; a kernel computes these once (see `computed_once`).
    """
    if not mode().in_kernel:
        return jax.vmap(lambda x: body(x)[1])(jax.tree.map(jnp.asarray, xs))
    shared, results = jax.eval_shape(body, jax.tree.map(lambda x: x[0], xs))
    if len(jax.tree.leaves(results)) == 1:  # computes them once anyway, and only those that it needs
        return jax.lax.scan(lambda _, x: (None, body(x)[1]), None, xs)[1]
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shared)
    carry, out = jax.lax.scan(lambda _, x: body(x), start, xs)
    return computed_once(carry, carry[0][None], out) if carry else out


def fold_shared(body: Callable, total: Any, xs: Any) -> Any:
    """The last total of total, shared = body(total, x) for every x, in a kernel, which computes `shared` once."""
    first = jax.tree.map(lambda x: x[0], xs)
    shared = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(body, total, first)[1])
    (total, shared), _ = jax.lax.scan(lambda carry, x: (body(carry[0], x), None), (total, shared), xs)
    return computed_once(shared, shared[0][None], total) if shared else total


def by_batch(function: Callable | None = None, *, size: Size = lambda chain: 100 + 2 * chain.n) -> Any:
    """Compile a function of arrays and chains, written for lanes, for one state or a batch; see the module's docstring.

    `function.defjvp(rule)` defines the derivative rule, which maps (primals, tangents) to (values, tangents), as for
    `jax.custom_jvp`. Tangents may be `SymbolicZero`. For `size`, see `Size`.
    """
    if function is None:
        return functools.partial(by_batch, size=size)
    signature = inspect.signature(function)
    jvp: Callable | None = None

    @functools.wraps(function)
    def chosen(*arguments, **named):
        arguments = signature.bind(*arguments, **named).args
        if mode().lanes is not None:  # called inside another function decorated with `by_batch`
            return function(*arguments)
        given, variables = _divided(arguments)
        values = size(arguments[0])
        call = lambda *variables: function(*given.filled(variables))
        many = lambda count, mapped, *variables: _many(call, mapped, count, values, moves_axes=True)(*variables)
        differentiable = jax.custom_jvp(with_vmap(lambda *variables: _single(call, values, variables), many))

        def rule(primals, tangents):
            if jvp is None:
                out, tangent = sparse_jvp(call, primals, tangents)
            else:
                out, tangent = jvp(given.filled(primals), given.tangents(tangents))
            return jax.tree.map(batch_first, out), tangent

        differentiable.defjvp(rule, symbolic_zeros=True)
        # `custom_jvp` does not accept NumPy arrays under `vmap`; the compiler removes this copy
        return differentiable(*map(jnp.copy, variables))

    def defjvp(rule: Callable) -> Callable:
        nonlocal jvp
        jvp = rule
        return rule

    chosen.defjvp = defjvp  # type: ignore[attr-defined]
    return chosen


def with_vmap(single: Callable, many: Callable) -> Callable:
    """The function `single`, which `vmap` replaces by many(count, mask of the arguments with a batch axis, *arguments)."""
    function = custom_vmap(single)

    @function.def_vmap
    def rule(axis_size, in_batched, *variables):
        some = any(in_batched)  # not, for example, for a batch of tangents at one state
        out = many(axis_size, tuple(in_batched), *variables) if some else single(*variables)
        return out, jax.tree.map(lambda _: some, out)

    del rule
    return lambda *variables: function(*variables)


def _divided(arguments: tuple) -> tuple["_Arguments", list[Tracer]]:
    """A call's arguments without their traced leaves, and these leaves, which are variables of the program."""
    # apart, since functions that JAX keeps longer than the trace hold the former
    leaves, structure = jax.tree.flatten(arguments)
    varies = [isinstance(leaf, Tracer) for leaf in leaves]
    known = [None if v else leaf for v, leaf in zip(varies, leaves, strict=True)]
    return _Arguments(structure, varies, known), [leaf for v, leaf in zip(varies, leaves, strict=True) if v]


class _Arguments(NamedTuple):
    """A call's arguments with constants, and None for every variable."""

    structure: Any
    varies: list[bool]
    known: list[Any]

    def filled(self, variables: tuple) -> tuple:
        """The arguments with these variables."""
        return self._inserted(variables, self.known)

    def tangents(self, tangents: tuple) -> tuple:
        """Tangents of the arguments from those of the variables; constants have none."""
        none = [None if v else SymbolicZero(jax.typeof(x)) for v, x in zip(self.varies, self.known, strict=True)]
        return self._inserted(tangents, none)

    def _inserted(self, variables: tuple, others: list) -> tuple:
        rest = iter(variables)
        leaves = [next(rest) if v else x for v, x in zip(self.varies, others, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)


def _single(call: Callable, size: int, variables: tuple) -> Any:
    whole = traced_in(call, lanes=())
    if size > LARGEST or not variables:
        return whole(*variables)
    return by_platform(as_kernel(whole), traced_in(whole, unroll=UNROLLED // size), *variables)


def _many(call: Callable, mapped: tuple[bool, ...], count: Count, size: int, moves_axes: bool) -> Callable[..., Any]:
    """The function for one batch axis, the first axis of the mapped variables; a further `vmap` merges the two batch axes."""

    def again(outer_count, in_batched, *variables):
        merged = []
        for x, inner, outer in zip(variables, mapped, in_batched, strict=True):
            if inner and not outer:
                x = jnp.broadcast_to(x, (outer_count, *x.shape))
            elif outer and not inner:
                x = jnp.broadcast_to(x[:, None], (outer_count, count, *x.shape[1:]))
            merged.append(x.reshape(outer_count * count, *x.shape[2:]) if inner or outer else x)
        either = tuple(a or b for a, b in zip(mapped, in_batched, strict=True))
        out = _many(call, either, outer_count * count, size, moves_axes)(*merged)
        return jax.tree.map(lambda x: x.reshape(outer_count, count, *x.shape[1:]), out)

    return with_vmap(lambda *variables: _in_chunks(call, mapped, count, size, moves_axes, variables), again)


def _in_chunks(
    call: Callable, mapped: tuple[bool, ...], count: Count, size: int, moves_axes: bool, variables: tuple
) -> Any:
    """Evaluate all states as lanes, in chunks on the CPU; a kernel moves their axis to the end itself if `moves_axes`."""
    spec = _sharding_of_rows(variables, mapped)
    if spec is not None:
        untyped = lambda *variables: _in_chunks(call, mapped, count, size, moves_axes, variables)
        return auto_axes(untyped, out_sharding=PartitionSpec(spec))(*variables)

    def everything(*variables, wrapped=lambda function: function):
        """Evaluate all states at once as lanes; the first axis of arguments and results is that of the states."""
        states = next(x.shape[0] for x, m in zip(variables, mapped, strict=True) if m)
        moved = [jnp.moveaxis(x, 0, -1) if m else x for x, m in zip(variables, mapped, strict=True)]
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), wrapped(traced_in(call, lanes=(states,)))(*moved))

    parts, lanes = _devices(), _lanes_per_device(count, size, variables)
    if parts * lanes < 2:
        return everything(*variables)
    kernel_of = functools.partial(as_kernel, lanes=[(0 if moves_axes else -1) if m else None for m in mapped])
    kernel = kernel_of(everything) if moves_axes else functools.partial(everything, wrapped=kernel_of)
    sizes = parts, -(-count // (parts * lanes)), lanes
    whole = sizes[1] == 1 and parts * lanes == count
    chunks = kernel if whole else lambda *variables: _in_turn(kernel, variables, mapped, count, sizes)
    unrolled = traced_in(everything, unroll=UNROLLED // size)
    return by_platform(chunks, unrolled, *variables, one_state=(traced_in(call, lanes=()), mapped))


def _devices() -> int:
    """Number of parts of a chunk, which contains rows from each device, so that a sharded batch remains sharded."""
    return min(jax.local_device_count("cpu"), 8)


def _lanes_per_device(count: Count, size: int, variables: tuple) -> int:
    """Number of lanes of a chunk on each device; 0 if a kernel cannot hold one."""
    parts = _devices()
    most = LARGEST // size // parts
    lanes = min(max(LANES // parts, 8), most)
    if isinstance(count, int):
        lanes = min(lanes, -(-count // parts))
    if parts * lanes < 2:
        return lanes
    lanes -= lanes % 8 if lanes > 8 else 0
    if isinstance(count, int) and lanes > 8:  # chunks of about equal size: 100 states as 2 x 56 instead of 2 x 64
        blocks = -(-count // (parts * lanes))
        lanes = min(lanes, 8 * -(-count // (8 * parts * blocks)))
    return compilable_lanes(lanes, most, variables)


def _sharding_of_rows(variables: tuple, mapped: tuple[bool, ...]) -> Any:
    """The mesh axes that shard the rows, if they are explicit (`AxisType.Explicit`); otherwise None."""
    specs = [jax.typeof(x).sharding.spec for x, m in zip(variables, mapped, strict=True) if m]
    return next((spec[0] for spec in specs if spec and spec[0] is not None), None)


def loop_by_batch(step: Callable, carry: Any, constants: Any, xs: Any, size: int | None, reverse: bool = False) -> Any:
    """`lax.scan` with (carry, y) = step(carry, constants, x) for a step written for lanes; one kernel on the CPU.

    All arrays passed to the step, except those of a chain, have lanes as the last axis. `size` is that of `by_batch`,
    or None for a loop without a kernel. The loop has no derivative rule.
    """
    values = NO_KERNEL if size is None else size
    variables, structure = jax.tree.flatten((carry, constants, xs))
    carried = len(jax.tree.leaves(carry))
    own_axes = (*jax.tree.map(jnp.ndim, (carry, constants)), jax.tree.map(lambda x: jnp.ndim(x) - 1, xs))

    def in_lanes(carry, constants, x):
        spread = lambda x, n: x if isinstance(x, Chain) else with_lanes(x, n)
        return step(*jax.tree.map(spread, (carry, constants, x), own_axes, is_leaf=lambda x: isinstance(x, Chain)))

    def loop(body, *variables):
        carry, constants, xs = jax.tree.unflatten(structure, variables)
        return jax.lax.scan(lambda carry, x: body(carry, constants, x), carry, xs, reverse=reverse)

    whole = functools.partial(loop, in_lanes)
    in_turn = functools.partial(loop, by_batch(in_lanes, size=lambda _: values))
    largest = max([values, *(x.size for x in variables)])
    single = lambda *v: _single(whole, values, v) if largest <= LARGEST else in_turn(*v)

    def many(count, mapped, *variables):
        # after one iteration, the carry differs between lanes
        own = [k < carried and not m for k, m in enumerate(mapped)]
        variables = [jnp.broadcast_to(x, (count, *x.shape)) if o else x for x, o in zip(variables, own, strict=True)]
        mapped = tuple(o or m for o, m in zip(own, mapped, strict=True))
        return _many(whole, mapped, count, values, moves_axes=False)(*variables)

    return with_vmap(single, many)(*variables)


def in_groups(function: Callable, together: int) -> Callable:
    """A function that, under `vmap` on the CPU, processes groups of `together` problems in sequence."""

    def call(*arguments):
        given, variables = _divided(arguments)
        whole = lambda *variables: function(*given.filled(variables))

        def many(count, mapped, *variables):
            at_once = jax.vmap(whole, [0 if m else None for m in mapped], axis_size=count)
            return by_platform(_grouped(at_once, whole, mapped, count, together), at_once, *variables)

        return with_vmap(whole, many)(*variables)

    return call


def _grouped(at_once: Callable, whole: Callable, mapped: Sequence[bool], count: Count, together: int) -> Callable:
    """The function, mapped over a batch axis one group at a time; each group has rows from every device of a sharded batch."""
    parts = _devices()
    if not isinstance(count, int) or count <= parts * together:
        return at_once
    blocks = -(-count // (parts * together))
    lanes = -(-count // (4 * parts * blocks)) * 4

    group = jax.vmap(whole, [0 if m else None for m in mapped])
    return lambda *variables: _in_turn(group, variables, mapped, count, (parts, blocks, lanes))


def _in_turn(
    some: Callable, variables: tuple, mapped: Sequence[bool], count: Count, sizes: tuple[int, Count, int]
) -> Any:
    """Apply a function to all `count` rows of the mapped variables, in blocks of parts * lanes rows."""

    def body(_, block):
        rest = iter(block)
        return None, some(*(next(rest) if m else x for x, m in zip(variables, mapped, strict=True)))

    several = [_split(x, *sizes) for x, m in zip(variables, mapped, strict=True) if m]
    _, out = jax.lax.scan(body, None, several)
    return jax.tree.map(lambda x: _join(x, *sizes)[:count], out)


def _split(x: Array, parts: int, blocks: Count, lanes: int) -> Array:
    """The rows of x in blocks of parts * lanes rows, with rows from all parts in each block; x is padded with its last row."""
    rows = filled(x, parts * blocks * lanes).reshape(parts, blocks, lanes, *x.shape[1:])
    return jnp.moveaxis(rows, 1, 0).reshape(blocks, parts * lanes, *x.shape[1:])


def _join(x: Array, parts: int, blocks: Count, lanes: int) -> Array:
    rows = jnp.moveaxis(x.reshape(blocks, parts, lanes, *x.shape[2:]), 0, 1)
    return rows.reshape(parts * blocks * lanes, *x.shape[2:])


def filled(x: Array, multiple: Count) -> Array:
    """The rows of x, padded with copies of the last one so that their number is a multiple of `multiple`."""
    short = -x.shape[0] % multiple
    if isinstance(short, int) and short == 0:
        return x
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (short, *x.shape[1:]))])


@jax.custom_jvp
def batch_first(x: Array) -> Array:
    """Return x; under `vmap`, its batch axis becomes the first axis."""
    # JAX assumes equal batch axes in the results of a function and of its derivative rule (jax-ml/jax#16374)
    return _first_axis(x)


@custom_vmap
def _first_axis(x: Array) -> Array:
    return x


@_first_axis.def_vmap
def _(axis_size, in_batched, x):
    del axis_size
    return x, in_batched[0]


batch_first.defjvp(lambda primals, tangents: (batch_first(*primals), tangents[0]))


def sparse_jvp(function: Callable[..., Any], primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp`, except that leaves of the arguments with a `SymbolicZero` tangent are not differentiated."""
    values, structure = jax.tree.flatten(primals)
    directions = jax.tree.leaves(tangents, is_leaf=is_zero)
    active = [not is_zero(t) for t in directions]

    def of_active(*varied):
        rest = iter(varied)
        filled = [next(rest) if a else v for v, a in zip(values, active, strict=True)]
        return function(*jax.tree.unflatten(structure, filled))

    chosen = [(v, t) for v, t, a in zip(values, directions, active, strict=True) if a]
    return jax.jvp(of_active, tuple(v for v, _ in chosen), tuple(t for _, t in chosen))


def is_zero(tangent: Any) -> bool:
    """True for a tangent that is known to be zero."""
    return isinstance(tangent, SymbolicZero)
