"""Compilation of public functions when they are called outside JAX's transformations."""

import functools
import inspect
import os
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax
import numpy as np

from .._jax_compat import trace_state_clean
from ._chain import Chain
from ._layout import check_quaternions

F = TypeVar("F", bound=Callable[..., Any])
LEVEL = "xla_backend_optimization_level"


def compiled(function: F) -> F:
    """Run the function as one compiled program when it is called with arrays outside `jit`, `vmap`, `grad` and the like.

    Each combination of function, argument structure (including the robot's topology), shapes and dtypes has its own program.
    The first call compiles the program, on the CPU at LLVM's optimisation level 2, and caches it for the life of the
    process. Later calls take 30 to 60 us longer than a call of the jitted function itself.

    Floats are inputs of the program; integers, strings and functions are static. As with `jax.jit`, the free variables of a
    function argument are read at compilation. Under a transformation, or if an argument is unhashable, the function is
    called directly, and the numbers of a captured robot become constants.

    Outside transformations, positions, velocities, accelerations and torques may also be lists of numbers.
    """
    names = tuple(inspect.signature(function).parameters)
    position = names.index("q") if "q" in names else None

    @functools.wraps(function)
    def unpacked(structure: Hashable, fixed: tuple[Hashable, ...], varying: list[Any]) -> Any:
        leaves = [x if x is not None else f for x, f in zip(varying, fixed, strict=True)]
        arguments, named = jax.tree.unflatten(structure, leaves)
        return function(*arguments, **named)

    default = jax.jit(unpacked, static_argnums=(0, 1))
    quick = jax.jit(unpacked, static_argnums=(0, 1), compiler_options={LEVEL: 2})

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not trace_state_clean():
            return function(*arguments, **named)
        if any(type(x) is list for x in (*arguments, *named.values())):
            arguments = tuple(_array(name, x) for name, x in zip(names, arguments, strict=False))
            named = {name: _array(name, x) for name, x in named.items()}
        if position is not None and arguments and isinstance(arguments[0], Chain):
            check_quaternions(arguments[0], arguments[position] if position < len(arguments) else named.get("q"))
        leaves, structure = jax.tree.flatten((arguments, named))
        varies = [_varies(leaf) for leaf in leaves]
        fixed = tuple(None if v else leaf for v, leaf in zip(varies, leaves, strict=True))
        if not all(isinstance(leaf, Hashable) for leaf in fixed):
            return function(*arguments, **named)
        program = quick if _compiles_quickly() else default
        return program(structure, fixed, [leaf if v else None for v, leaf in zip(varies, leaves, strict=True)])

    return call  # type: ignore[return-value]


@functools.cache
def _compiles_quickly() -> bool:
    """True on the CPU, unless the user has set an optimisation level for XLA.

    On the CPU, level 3 (XLA's default) takes up to a third longer to compile than level 2, for equally fast programs.
    """
    return jax.default_backend() == "cpu" and LEVEL not in os.environ.get("XLA_FLAGS", "")


_OF_A_STATE = frozenset({"q", "qd", "qdd", "v", "vd", "tau"})


def _array(name: str, x: Any) -> Any:
    """The argument, converted to an array if it is a list of positions, velocities, accelerations or torques."""
    return np.asarray(x, float) if type(x) is list and name in _OF_A_STATE else x


def _varies(leaf: Any) -> bool:
    """True if a leaf is an input of the compiled program; integers, strings and functions are static."""
    return isinstance(leaf, jax.Array | float) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub")
