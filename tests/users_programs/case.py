"""One public function with arguments, and what is asked of it: compiled alone, in batches and differentiated."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SIZES = 1, 7, 64, 65, 1000
STATES = 13  # that differ; a batch repeats them, and no chunk of 2^k lanes begins with the same one as the last


class Case(NamedTuple):
    """A function of arrays.

    Attributes:
        function: of the arguments of one state; what does not vary, as the robot, is closed over.
        sample: arguments of a random state.
        derivatives: it is differentiated forwards and backwards.
        smooth: and its derivatives are those of central differences.
        batched: it is written for `jax.vmap`.
        core: all its programs belong to continuous integration, though they take long.
        dear: none does, since it takes long even alone, or an example runs it there.
        accuracy: error of a batch against its states, in units of the last place of the result's largest entry.
        difference: error of central differences against the derivative, relative.
    """

    function: Callable
    sample: Callable[[np.random.Generator], tuple]
    derivatives: bool = True
    smooth: bool = True
    batched: bool = True
    core: bool = False
    dear: bool = False
    accuracy: float = 1e4
    difference: float = 1e-6


def call(function: Callable[[], Any]) -> Case:
    """A function that works on files, logs or problems of NumPy and compiles what it needs by itself: it is called once."""
    return Case(function, lambda rng: (), derivatives=False, batched=False)


def normal(*shapes: Any, scale: float = 1.0) -> Callable[[np.random.Generator], tuple]:
    """Arguments of these shapes, an int for a vector."""
    return lambda rng: tuple(jnp.asarray(scale * rng.normal(size=s)) for s in shapes)


def states(case: Case, count: int = STATES) -> list[tuple]:
    rng = np.random.default_rng(0)
    return [case.sample(rng) for _ in range(count)]


def is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def _rows(given: list, rows: np.ndarray) -> Any:
    """A batch of which row k is given[rows[k]]; keys of random numbers stay JAX's."""

    def stacked(*x):
        keys = jax.dtypes.issubdtype(x[0].dtype, jax.dtypes.prng_key)
        return jnp.stack(x)[rows] if keys else np.stack([np.asarray(y) for y in x])[rows]

    return jax.tree.map(stacked, *given)


def _error(got: Any, wanted: Any, accuracy: float) -> str | None:
    """The first difference between two batches of results, or None."""
    got, wanted = jax.tree.leaves(got), jax.tree.leaves(wanted)
    if len(got) != len(wanted):
        return f"{len(got)} arrays instead of {len(wanted)}"
    for k, (x, y) in enumerate(zip(got, wanted, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"result {k} is {x.dtype}{x.shape} instead of {y.dtype}{y.shape}"
        if not is_float(x):
            if not np.array_equal(x, y):
                return f"result {k} is {x}, alone {y}"
            continue
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return f"result {k} is finite in other entries than alone"
        x, y = (np.where(np.isfinite(y), z, 0).reshape(len(y), -1) for z in (x, y))
        off, scale = (
            np.abs(x - y).max(1, initial=0),
            np.abs(y).max(1, initial=1e-3),
        )  # what is smaller is rounding, as 0
        state = int(np.argmax(off - accuracy * np.finfo(y.dtype).eps * scale))
        if off[state] > accuracy * np.finfo(y.dtype).eps * scale[state]:
            return f"state {state}, result {k}: off by {off[state]:.2g} of {scale[state]:.2g}"
    return None


def check_single(case: Case) -> str | None:
    """Compiled alone, at one state: finite."""
    arguments = states(case, 1)[0]
    out = case.function() if not arguments else jax.jit(case.function)(*arguments)
    leaves = [np.asarray(x) for x in jax.tree.leaves(out) if is_float(x)]
    if any(np.isnan(x).any() for x in leaves):
        return "NaN in the result"
    return None


def check_batch(case: Case, size: int) -> str | None:
    """A batch against its states, one after the other."""
    given, rows = states(case), np.arange(size) % STATES
    one = jax.jit(case.function)
    alone = [jax.tree.map(np.asarray, one(*x)) for x in given]
    together = jax.jit(jax.vmap(case.function))(*_rows(given, rows))
    return _error(jax.tree.map(np.asarray, together), _rows(alone, rows), case.accuracy)


def check_derivatives(case: Case) -> str | None:
    """Forwards and backwards in one program, u . (J t) = (u J) . t; and J t against central differences."""
    arguments = states(case, 1)[0]
    rng = np.random.default_rng(1)
    random = lambda x: rng.normal(size=x.shape).astype(x.dtype)
    leaves, structure = jax.tree.flatten(arguments)
    varied = [is_float(x) for x in leaves]

    def applied(function, floats):
        rest = iter(floats)
        given = [next(rest) if v else x for v, x in zip(varied, leaves, strict=True)]
        return [x for x in jax.tree.leaves(function(*jax.tree.unflatten(structure, given))) if is_float(x)]

    def function(*floats):
        return applied(case.function, floats)

    def single(*floats):
        return jax.tree.map(np.asarray, applied(jax.jit(case.function), floats))

    point = [np.asarray(x) for x, v in zip(leaves, varied, strict=True) if v]
    along = [random(x) for x in point]
    # cotangents belong to finite results alone: an infinite one stands for "none"
    values = single(*point)
    cotangent = [random(x) * np.isfinite(x) for x in values]

    @jax.jit
    def both(point, along, cotangent):
        return jax.jvp(function, point, along)[1], jax.vjp(function, *point)[1](cotangent)

    forward, reverse = jax.tree.map(np.asarray, both(point, along, cotangent))
    forward = [np.where(np.isfinite(y), x, 0) for x, y in zip(forward, values, strict=True)]
    if not all(np.isfinite(x).all() for x in (*forward, *reverse)):
        return "a derivative is not finite"
    eps = np.finfo(values[0].dtype).eps
    products = [u * x for u, x in zip(cotangent, forward, strict=True)]
    pulled = [t * x for t, x in zip(along, reverse, strict=True)]
    gap = abs(sum(x.sum() for x in products) - sum(x.sum() for x in pulled))
    scale = sum(np.abs(x).sum() for x in (*products, *pulled))
    if gap > case.accuracy * eps * scale:
        return f"forwards and backwards differ by {gap:.2g} of {scale:.2g}"
    if case.smooth and eps < 1e-10:
        h = 1e-3
        moved = lambda s: single(*(x + s * t for x, t in zip(point, along, strict=True)))
        for k, parts in enumerate(zip(moved(-2 * h), moved(-h), moved(h), moved(2 * h), forward, strict=True)):
            finite = np.isfinite(values[k])
            a, b, c, d, slope = (np.where(finite, x, 0) for x in parts)
            off = np.abs((a - 8 * b + 8 * c - d) / (12 * h) - slope).max(initial=0)
            scale = np.abs(slope).max(initial=0) + np.abs(values[k]).max(initial=0, where=finite)
            if off > case.difference * scale:
                return f"result {k}: central differences are off by {off:.2g} of {scale:.2g}"
    return None


def stages(case: Case, rank: int, tier: str) -> dict[str, Callable[[], str | None]]:
    """The programs of a case: in continuous integration ("ci"), in the nightly run besides ("nightly"), or "all" there are.

    Most of the time goes into compiling derivatives and batches of functions with kernels. In continuous integration every
    function runs alone, those of the `core` batched by all sizes and differentiated too. The nightly run has derivatives, a
    batch of 65, and one of another size, which is every fourth function's.
    """
    other = [size for size in SIZES if size != 65]
    if tier == "all" or (tier == "ci" and case.core):
        alone, derivatives, batches = True, True, SIZES
    elif tier == "ci":
        alone, derivatives, batches = not case.dear, False, ()
    elif case.core:
        return {}
    else:
        alone, derivatives, batches = case.dear, True, (65, other[rank % len(other)])
    found = {"alone": lambda: check_single(case)} if alone else {}
    if derivatives and case.derivatives:
        found["derivatives"] = lambda: check_derivatives(case)
    for size in batches if case.batched else ():
        found[f"batch of {size}"] = lambda size=size: check_batch(case, size)
    return found


def single_stages(case: Case, tier: str) -> dict[str, Callable[[], str | None]]:
    """The programs of a case in float32: alone and 65 at a time in continuous integration, nightly in batches of other sizes.

    Eight are among them: LLVM took more than 23 GB to compile kernels of exactly eight lanes of float32.
    """
    sizes = (65,) if tier == "ci" else (1, 7, 8, 16, 1000)
    found = {"alone": lambda: check_single(case)} if tier == "ci" and not case.dear else {}
    for size in sizes if case.batched and (case.core or tier != "ci") else ():
        found[f"batch of {size}"] = lambda size=size: check_batch(case, size)
    return found
