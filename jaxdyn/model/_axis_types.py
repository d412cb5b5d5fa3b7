"""Support for batches on device meshes with explicit axes (`jax.sharding.AxisType.Explicit`)."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType, PartitionSpec, auto_axes

F = TypeVar("F", bound=Callable[..., Any])


def any_axis_types(function: F) -> F:
    """Wrap a function of one state so that JAX chooses its sharding automatically on a mesh with explicit axes.

    Explicit sharding supports neither scatters nor the concatenation or stacking of literals with rows of a batch.
    """

    names = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or AxisType.Explicit not in mesh.axis_types:
            return function(*arguments, **named)
        given = names.bind(*arguments, **named)  # auto_axes accepts only positional arguments
        return auto_axes(function, out_sharding=PartitionSpec())(*given.args)

    return wrapped  # type: ignore[return-value]
