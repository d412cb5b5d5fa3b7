"""Which entries of a knot a cost's residual or a constraint's value depends on, found from the traced program.

Torques do not act at the last knot, a cost of the previous torques enlarges the state, and a residual each of whose entries
depends on one entry of the knot has a diagonal Gauss-Newton Hessian. Operations outside the lists below count as if every
result depended on every operand: an entry may be reported that has no effect, but none is missed.
"""

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from .._jax_compat import Literal, Tracer
from ..model.chain import Chain
from .costs import Knot

_ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy copy_p cos cosh div "
    "eq erf exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter not or pow "
    "reduce_precision rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor".split()
)
_CALLS = frozenset(("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"))
# enough for the indices in `q[entries]`
_INDICES: dict[str, Callable] = {
    "lt": np.less,
    "add": np.add,
    "convert_element_type": lambda x: x,
    "select_n": lambda which, *cases: np.choose(np.asarray(which, int), cases),
}


class Dependence(NamedTuple):
    """For each entry of the residual or value, masks of the entries of the knot on which it depends."""

    q: Bool[np.ndarray, "k nq"]
    v: Bool[np.ndarray, "k nv"]
    tau: Bool[np.ndarray, "k nv"]
    tau_before: Bool[np.ndarray, "k nv"]
    ground: Bool[np.ndarray, "k 6"]

    @property
    def is_single(self) -> bool:
        """True if each entry depends on at most one entry of (q, v, tau)."""
        counts = np.concatenate([self.q, self.v, self.tau], axis=1).sum(1)
        return bool((counts <= 1).all() and not self.tau_before.any() and not self.ground.any())


def dependence(part: Any, function: str, chain: Chain, dtype: Any, grounded: bool = False) -> Dependence:
    """The dependence of `part.function(chain, knot)` for a cost or constraint, with the ground reaction if `grounded`."""
    leaves, structure = jax.tree.flatten((part, chain))
    kinds = tuple(_kind(x) if eqx.is_array_like(x) else None for x in leaves)
    fixed = tuple(None if kind else x for x, kind in zip(leaves, kinds, strict=True))
    sizes = chain.nq, chain.nv, chain.nv, chain.nv, 6
    return _dependence(structure, kinds, fixed, function, sizes, jnp.dtype(dtype), grounded)


def _kind(x: Any) -> tuple[Hashable, ...]:
    """Shape, dtype and weak type: all that tracing reads of an array."""
    return jnp.shape(x), jnp.result_type(x), not hasattr(x, "dtype") or getattr(x, "weak_type", False)


@functools.lru_cache(maxsize=512)
def _dependence(
    structure: Any, kinds: tuple, fixed: tuple, function: str, sizes: tuple[int, ...], dtype: Any, grounded: bool
) -> Dependence:
    def program(given, k, t, dt, q, v, tau, tau_before, ground):
        rest = iter(given)
        part, chain = jax.tree.unflatten(structure, [next(rest) if k else x for k, x in zip(kinds, fixed, strict=True)])
        knot = Knot(k, t, q, v, tau, tau_before, dt, ground if grounded else None)
        return jnp.ravel(getattr(part, function)(chain, knot))

    of = lambda *shape: jax.ShapeDtypeStruct(shape, dtype)
    given = [jax.ShapeDtypeStruct(shape, kind, weak_type=weak) for shape, kind, weak in filter(None, kinds)]
    index = jax.ShapeDtypeStruct((), jnp.asarray(0).dtype)
    closed = jax.make_jaxpr(program)(given, index, of(), of(), *map(of, sizes))
    rows = np.split(np.eye(sum(sizes), dtype=bool), np.cumsum(sizes)[:-1], axis=1)
    (out,) = _followed(closed, [_UNKNOWN] * (len(given) + 3) + [_Seen(None, mask) for mask in rows])
    mask = np.zeros((sum(sizes), *closed.out_avals[0].shape), bool) if out.mask is None else out.mask
    return Dependence(*np.split(mask.T, np.cumsum(sizes)[:-1], axis=1))


class _Seen(NamedTuple):
    """What is known of an intermediate result: its value, or the mask (inputs, *shape) of the inputs it depends on."""

    value: np.ndarray | None
    mask: np.ndarray | None  # None: it depends on none


_UNKNOWN = _Seen(None, None)


def _followed(closed: Any, inputs: list[_Seen]) -> list[_Seen]:
    """The results of a traced program, given its arguments."""
    constants = [_UNKNOWN if isinstance(x, Tracer) else _Seen(np.asarray(x), None) for x in closed.consts]
    known = dict(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*constants, *inputs), strict=True))
    read = lambda x: _Seen(np.asarray(x.val), None) if isinstance(x, Literal) else known[x]
    for step in closed.jaxpr.eqns:
        given = [read(x) for x in step.invars]
        known.update(zip(step.outvars, _of_step(step, given), strict=True))
    return [read(x) for x in closed.jaxpr.outvars]


def _of_step(step: Any, given: list[_Seen]) -> list[_Seen]:
    """The results of one operation."""
    name, parameters, shape = step.primitive.name, step.params, step.outvars[0].aval.shape
    if name in _CALLS and hasattr(inner := parameters.get("jaxpr", parameters.get("call_jaxpr")), "consts"):
        return _followed(inner, given)
    if all(x.mask is None for x in given):
        if not given or any(x.value is None for x in given):  # unknown, but independent of the knot
            return [_UNKNOWN] * len(step.outvars)
        values = [x.value for x in given if x.value is not None]
        if name in _INDICES:
            return [_Seen(np.broadcast_to(_INDICES[name](*values), shape), None)]
        places = _places(name, parameters, values[0].shape, shape, given[1:])
        return [_UNKNOWN if places is None else _Seen(values[0].reshape(-1)[places], None)] * len(step.outvars)
    masks = [x.mask for x in given if x.mask is not None]
    if name in _ELEMENTWISE:
        return [_Seen(None, _any(masks, shape))]
    if name in ("concatenate", "stack"):
        none = np.zeros((len(masks[0]), 1), bool)
        sizes = [x.aval.shape for x in step.invars]
        rows = [_any([none], n) if x.mask is None else x.mask for x, n in zip(given, sizes, strict=True)]
        if name == "stack":
            return [_Seen(None, np.stack(rows, axis=parameters["axis"] + 1))]
        return [_Seen(None, np.concatenate(rows, axis=parameters["dimension"] + 1))]
    if name == "split":
        cuts = np.cumsum(parameters["sizes"])[:-1]
        return [_Seen(None, x) for x in np.split(masks[0], cuts, axis=parameters["axis"] + 1)]
    if given[0].mask is not None:
        places = _places(name, parameters, step.invars[0].aval.shape, shape, given[1:])
        if places is not None:
            return [_Seen(None, given[0].mask.reshape(len(given[0].mask), -1)[:, places])]
    every = np.any([mask.reshape(len(mask), -1).any(1) for mask in masks], axis=0)
    return [_Seen(None, _any([every[:, None]], x.aval.shape)) for x in step.outvars]


def _any(masks: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The union of masks, broadcast to a shape."""
    spread = [mask.reshape(len(mask), *mask.shape[1:] if mask[0].size > 1 else (1,) * len(shape)) for mask in masks]
    return np.any([np.broadcast_to(mask, (len(mask), *shape)) for mask in spread], axis=0)


def _places(
    name: str, parameters: dict, before: tuple[int, ...], shape: tuple[int, ...], rest: list[_Seen]
) -> np.ndarray | None:
    """For an operation that only moves entries, the flat index of each entry in the operand; None for other operations."""
    index = np.arange(math.prod(before)).reshape(before)
    if name in ("reshape", "squeeze", "expand_dims"):
        return index.reshape(shape)
    if name == "transpose":
        return index.transpose(parameters["permutation"])
    if name == "tile":
        return np.tile(index, parameters["reps"])
    if name == "rev":
        return np.flip(index, parameters["dimensions"])
    if name == "broadcast_in_dim":
        kept = [1] * len(shape)
        for size, axis in zip(before, parameters["broadcast_dimensions"], strict=True):
            kept[axis] = size
        return np.broadcast_to(index.reshape(kept), shape)
    if name == "slice":
        strides = parameters["strides"] or (1,) * len(before)
        bounds = zip(parameters["start_indices"], parameters["limit_indices"], strides, strict=True)
        return index[tuple(slice(*x) for x in bounds)]
    values = [x.value for x in rest if x.value is not None]
    if len(values) < len(rest):
        return None
    if name == "dynamic_slice":
        starts = [
            min(max(int(x), 0), n - m) for x, n, m in zip(values, before, shape, strict=True)
        ]  # as XLA clamps them
        return index[tuple(slice(x, x + m) for x, m in zip(starts, shape, strict=True))]
    if name == "gather" and len(before) == 1 and not parameters["dimension_numbers"].offset_dims:
        chosen = values[0][..., 0]
        return index[chosen] if ((chosen >= 0) & (chosen < before[0])).all() else None
    return None
