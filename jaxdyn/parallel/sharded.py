"""Batches over devices: the same code on one device, on all devices of a machine, and on the machines of a cluster.

A batch is sharded over a mesh of devices along its leading axis, and the robot is replicated. Each device runs the program
on its own rows (`jax.shard_map`). Devices communicate only the sums of `sharded_sum` and the results of padded batches.
Create meshes with `jax.make_mesh`, and connect hosts with `jax.distributed.initialize` (docs/scaling.md).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from .._jax_compat import Tracer
from ..dynamics.engine.lanes import filled
from ..errors import ModelError

Tree = TypeVar("Tree", bound=Any)
Axes = int | None | Sequence[Any]


def sharded_vmap(function: Callable[..., Any], in_axes: Axes = 0, mesh: Mesh | None = None) -> Callable[..., Any]:
    """Map a function over a batch like `jax.vmap`, with the batch sharded over devices.

    For example, the following call copies the robot to every device and computes an equal share of the rows on each:

        sharded_vmap(inverse_dynamics, (None, 0, 0, 0))(robot, q, qd, qdd)

    If the number of rows is not a multiple of the number of devices, the batch is padded with copies of its last row, and
    the result is trimmed and gathered on all devices. For large batches, choose a multiple.

    Args:
        function: function of one robot and one state, with positional arguments only.
        in_axes: 0 for batched arguments and None for the others, or trees of these, as for `jax.vmap`.
        mesh: mesh of devices with any number of axes; by default, a mesh of all devices of all processes.

    Returns:
        A compiled function whose results have the batch as the leading axis, in its original order and sharded over the
            mesh. The function supports `jit`, `vmap` and differentiation. Store and reuse it, as with `jax.jit`.

    Raises:
        ModelError: at the call, if an axis is neither 0 nor None, if batches differ in length, or if no argument has a
            batch.
    """

    def run(mesh, structure, mapped, *leaves):
        single = of_leaves(function, structure)
        count = count_rows(leaves, mapped)
        by_rows, everywhere = PartitionSpec(mesh.axis_names), PartitionSpec()
        local = jax.shard_map(
            jax.vmap(single, tuple(0 if m else None for m in mapped)),
            mesh=mesh,
            in_specs=tuple(by_rows if m else everywhere for m in mapped),
            out_specs=by_rows,
            check_vma=False,
        )
        out = local(*(filled(x, mesh.size) if m else x for x, m in zip(leaves, mapped, strict=True)))
        return jax.tree.map(lambda x: x if len(x) == count else x[:count], out)

    return _over_devices(function, run, in_axes, mesh)


def sharded_sum(
    function: Callable[..., Any], in_axes: Axes = 0, mesh: Mesh | None = None, chunk: int = 256
) -> Callable[..., Any]:
    """Sum a function over a batch that is sharded over devices: sum_b function(row b), for example a loss or Y^T Y.

    Each device sums over its own rows, `chunk` rows at a time to limit memory. A single all-reduce then adds the sums of all
    devices. The amount of communication does not depend on the batch size: for Y^T Y with p parameters, it is O(p^2) numbers.
    The order of summation and therefore the rounding errors depend on the number of devices.

    Args:
        function: function of one robot and one state that returns an array or a tree of arrays.
        in_axes: as for `sharded_vmap`.
        mesh: as for `sharded_vmap`.

    Returns:
        A function that returns the sums, replicated on every device of every process.

    Raises:
        ModelError: as for `sharded_vmap`, or if `chunk` is less than 1.
    """
    if chunk < 1:
        raise ModelError(f"chunk={chunk}: the number of rows evaluated at once must be at least 1")

    def run(mesh, structure, mapped, *leaves):
        single = of_leaves(function, structure)
        count = count_rows(leaves, mapped)
        by_rows, everywhere = PartitionSpec(mesh.axis_names), PartitionSpec()
        batched = jax.vmap(single, tuple(0 if m else None for m in mapped))

        def local(real, *leaves):
            size = min(chunk, len(real))
            parts = iter([filled(x, size) for x, m in zip(leaves, mapped, strict=True) if m])
            real = jnp.concatenate([real, jnp.zeros(-len(real) % size, bool)]).reshape(-1, size)
            parts = [x.reshape(-1, size, *x.shape[1:]) for x in parts]

            def add(total, x):
                real, rows = x
                rows = iter(rows)
                out = batched(*(next(rows) if m else y for y, m in zip(leaves, mapped, strict=True)))
                where = lambda y: jnp.where(real.reshape(-1, *[1] * (y.ndim - 1)), y, jnp.zeros_like(y))  # not padding
                return jax.tree.map(lambda t, y: t + jnp.sum(where(y), axis=0, dtype=y.dtype), total, out), None

            rows = iter([x[0, 0] for x in parts])
            one = [next(rows) if m else y for y, m in zip(leaves, mapped, strict=True)]
            zero = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), jax.eval_shape(single, *one))
            return jax.lax.psum(jax.lax.scan(add, zero, (real, parts))[0], mesh.axis_names)

        specs = tuple(by_rows if m else everywhere for m in mapped)
        summed = jax.shard_map(local, mesh=mesh, in_specs=(by_rows, *specs), out_specs=everywhere, check_vma=False)
        padded = [filled(x, mesh.size) if m else x for x, m in zip(leaves, mapped, strict=True)]
        real = jnp.arange(count + -count % mesh.size) < count
        return summed(real, *padded)

    return _over_devices(function, run, in_axes, mesh)


def shard_batch(tree: Tree, mesh: Mesh | None = None) -> Tree:
    """Shard the leading axis of all arrays of a tree over devices, for use with `sharded_vmap`.

    A single process passes the entire batch. If there are several processes, each passes and stores only its own rows, and
    all processes pass the same number of rows. The result is the global batch, which begins with the rows of process 0.

    Raises:
        ModelError: the number of rows of an array is not a multiple of the number of devices of this process.
    """
    mesh = _all_devices() if mesh is None else mesh
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    here = len(mesh.local_devices)

    def put(x):
        shape = np.shape(x)
        if not shape or shape[0] % here:
            rows = f"an array of {shape[0]} rows" if shape else "a number"
            remedy = f"make the number of rows a multiple of {here}, or pass the batch to `sharded_vmap`, which pads it"
            raise ModelError(f"{rows} cannot be divided evenly among the {here} devices of this process", remedy)
        if jax.process_count() == 1:
            return jax.device_put(x, sharding)
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))

    return jax.tree.map(put, tree)


def local_rows(tree: Any) -> Any:
    """Return the rows that this process stores, as NumPy arrays, or all of replicated arrays; the inverse of `shard_batch`."""

    def take(x):
        if not isinstance(x, jax.Array) or not x.shape:
            return np.asarray(x)
        rows = {(shard.index[0].start or 0): shard for shard in x.addressable_shards}
        return np.concatenate([np.asarray(rows[start].data) for start in sorted(rows)])

    return jax.tree.map(take, tree)


def _all_devices() -> Mesh:
    return jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))


def _over_devices(function: Callable[..., Any], run: Callable[..., Any], in_axes: Axes, mesh: Mesh | None) -> Callable:
    """Function of trees that flattens its arguments and calls the compiled run(mesh, structure, mapped, *leaves)."""
    compiled = jax.jit(run, static_argnums=(0, 1, 2))
    held: dict[int, tuple[Any, Any]] = {}

    @functools.wraps(function)
    def over_devices(*arguments):
        here = _all_devices() if mesh is None else mesh
        leaves, structure = jax.tree.flatten(arguments)
        mapped = mapped_leaves(in_axes, arguments)
        return compiled(here, structure, mapped, *_placed(leaves, mapped, here, held))

    return over_devices


def mapped_leaves(in_axes: Axes, arguments: tuple) -> tuple[bool, ...]:
    """Mask of the argument leaves that have a batch axis."""
    axes = in_axes if isinstance(in_axes, Sequence) else (in_axes,) * len(arguments)
    if len(axes) != len(arguments):
        raise ModelError(f"in_axes has entries for {len(axes)} arguments, but the call passes {len(arguments)}")
    found: list[Any] = []  # the axis of every leaf
    try:
        add = lambda axis, part: found.extend([axis] * len(jax.tree.leaves(part)))
        jax.tree.map(add, tuple(axes), arguments, is_leaf=lambda axis: axis is None)
    except ValueError as error:
        raise ModelError(f"in_axes does not match the structure of the arguments: {error}") from None
    if any(axis not in (0, None) for axis in found):
        raise ModelError("in_axes may contain only 0 and None: the batch must be the leading axis")
    return tuple(axis == 0 for axis in found)


def _placed(leaves: Sequence[Any], mapped: Sequence[bool], mesh: Mesh, held: dict[int, tuple[Any, Any]]) -> list[Any]:
    """Move arguments to the devices of the compiled program; `held` caches copies of those without a batch axis."""
    leaves = [held[k][1] if k in held and held[k][0] is x else x for k, x in enumerate(leaves)]
    devices = set(mesh.devices.flat)
    there = lambda x: isinstance(x, Tracer) or (isinstance(x, jax.Array) and x.devices() == devices)
    away = [k for k, x in enumerate(leaves) if not there(x)]
    placed = list(leaves)
    if jax.process_count() > 1:
        for k in away:
            placed[k] = np.asarray(leaves[k])  # must be the same in every process
        return placed
    divides = lambda k: mapped[k] and np.ndim(leaves[k]) > 0 and np.shape(leaves[k])[0] % mesh.size == 0
    specs = [PartitionSpec(mesh.axis_names) if divides(k) else PartitionSpec() for k in away]
    moved = jax.device_put([leaves[k] for k in away], [NamedSharding(mesh, spec) for spec in specs])
    for k, x in zip(away, moved, strict=True):
        placed[k] = x
        if not mapped[k] and isinstance(leaves[k], jax.Array) and not isinstance(x, Tracer):  # immutable
            held[k] = leaves[k], x
    return placed


def of_leaves(function: Callable[..., Any], structure: Any) -> Callable[..., Any]:
    return lambda *leaves: function(*jax.tree.unflatten(structure, leaves))


def count_rows(leaves: Sequence[Any], mapped: Sequence[bool]) -> int:
    """Number of rows of the batch."""
    sizes = {jnp.shape(x)[:1] for x, m in zip(leaves, mapped, strict=True) if m}
    if not sizes:
        raise ModelError("no argument has a batch axis: set in_axes to 0 for at least one argument")
    if len(sizes) > 1 or sizes & {(), (0,)}:
        found = ", ".join(str(s[0]) if s else "none (a number)" for s in sorted(sizes))
        raise ModelError(f"batches must have the same number of rows, at least one; these have {found}")
    return sizes.pop()[0]
