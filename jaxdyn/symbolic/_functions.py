"""Matrices of expressions as NumPy or JAX functions."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import sympy
from sympy import ImmutableMatrix, Symbol

from ..errors import ModelError


def function_of(
    matrix: ImmutableMatrix,
    shape: tuple[int, ...],
    states: tuple[tuple[Symbol, ...], ...],
    parameters: tuple[Symbol, ...],
    backend: str,
) -> Callable[..., Any]:
    """A function of state and parameters that returns the entries of a matrix as an array."""
    entries = [sympy.N(x, 17) for x in matrix]  # roots and pi become numbers that do not affect the dtype
    symbols = [x for state in states for x in state]
    evaluate = sympy.lambdify([*symbols, *parameters], entries, modules=backend, cse=True)
    names = [x.name for x in parameters]
    xp: Any = jnp if backend == "jax" else np

    def function(*arguments: Any, **values: Any) -> Any:
        if set(values) != set(names):
            wrong = sorted(set(names) - set(values)) or sorted(set(values) - set(names))
            what = "missing" if set(names) - set(values) else "not among the parameters of the equations"
            raise ModelError(f"{', '.join(wrong)}: {what}; the parameters are {', '.join(names) or 'none'}")
        if len(arguments) != len(states):
            raise TypeError(f"the function requires {len(states)} state arrays, not {len(arguments)}")
        arrays = [xp.asarray(x) for x in arguments]
        if any(x.shape != (len(state),) for x, state in zip(arrays, states, strict=True)):
            raise ModelError(f"the state has shapes {[x.shape for x in arrays]}, but there are {len(states[0])} joints")
        dtype = xp.result_type(arrays[0], 0.0)
        found = evaluate(*(x[i] for x in arrays for i in range(x.shape[0])), *(values[name] for name in names))
        return xp.stack([xp.asarray(x, dtype) for x in found]).reshape(shape)

    return function
