"""How the function that is being traced will run: the one thing that a function can see besides its arguments.

JAX calls a function long after the caller has gone: from the rules of `vmap` and `jvp`, inside `scan`, or when a
program is lowered for a platform. The mode is therefore kept in one context variable, which is set around a trace
(`traced_in`).
"""

import contextvars
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

Count = Any  # number of states: an int, or a symbolic size under `jax.export`


@dataclasses.dataclass(frozen=True)
class Mode:
    """How a function is run."""

    # trailing shape of all arrays, () for one state or (count,) for a batch, in the body of a function decorated with
    # `by_batch`; None outside
    lanes: tuple[Count, ...] | None = None
    in_kernel: bool = False  # the function becomes one CPU kernel
    unroll: int | None = None  # longest loop over links that other platforms than the CPU unroll; None on the CPU


_PLAIN = Mode()
_MODE: contextvars.ContextVar[Mode] = contextvars.ContextVar("mode", default=_PLAIN)


def mode() -> Mode:
    """How the function that is being traced will run."""
    return _MODE.get()


def traced_in(function: Callable, **changes: Any) -> Callable:
    """The function, with `changes` of the mode while it is traced."""

    def traced(*variables: Any) -> Any:
        token = _MODE.set(dataclasses.replace(mode(), **changes))
        try:
            return function(*variables)
        finally:
            _MODE.reset(token)

    return traced


def uses_definitions() -> bool:
    """True if `JAXDYN_DEFINITIONS=1`: dynamics are computed by the definitions in `rnea`, without kernels."""
    return os.environ.get("JAXDYN_DEFINITIONS", "0") == "1"


def uses_kernels() -> bool:
    """True unless `JAXDYN_KERNELS=0` or `JAXDYN_DEFINITIONS=1`."""
    return os.environ.get("JAXDYN_KERNELS", "1") != "0" and not uses_definitions()


def defined_by(definition: Callable) -> Callable:
    """Decorator: the function below computes the same values as `definition`, which replaces it if `uses_definitions`."""

    def decorate(fast: Callable) -> Any:
        @functools.wraps(fast)  # which copies attributes, too, such as `defjvp`
        def chosen(*arguments: Any, **named: Any) -> Any:
            return (definition if uses_definitions() else fast)(*arguments, **named)

        return chosen

    return decorate
