"""How the function that is being traced will run: the one thing that a function can see besides its arguments.

JAX calls a function long after the caller has gone: from the rules of `vmap` and `jvp`, inside `scan`, or when a program is
lowered for a platform. What a caller knows by then cannot be passed as an argument without a parameter in every equation of
the dynamics. It is therefore kept in one context variable, which is set around a trace (`traced_in`) and nowhere else.

The environment can also decide that the definitions of the module `rnea` replace the fast algorithms.
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
    """How a function is run.

    Attributes:
        lanes: trailing shape of all arrays, () for one state or (count,) for a batch, in the body of a function decorated with
            `by_batch`; None outside.
        in_kernel: True if the function becomes one CPU kernel.
        unroll: maximum length of a loop over links that is unrolled, in the form for platforms other than the CPU; else None.
    """

    lanes: tuple[Count, ...] | None = None
    in_kernel: bool = False
    unroll: int | None = None


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
    """True if `JAXDYN_DEFINITIONS=1`: dynamics are computed by the definitions in the module `rnea`, without kernels.

    Like `JAXDYN_KERNELS=0`, which only disables kernels, the variable is read when a function is traced. Programs that are
    already compiled do not change, so it must be set before a process first calls the library.
    """
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
