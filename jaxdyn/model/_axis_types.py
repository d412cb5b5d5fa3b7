"""Functions that a batch on a mesh with explicit axes (`jax.sharding.AxisType.Explicit`) can go through."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType, PartitionSpec, auto_axes

F = TypeVar("F", bound=Callable[..., Any])


def any_axis_types(function: F) -> F:
    """The function of one state; within it, automatic partitioning takes the place of explicit axes.

    Types of sharding refuse what they do not follow: scatters, literals joined to rows of a batch, stacks of both.
    """

    names = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or AxisType.Explicit not in mesh.axis_types:
            return function(*arguments, **named)
        given = names.bind(*arguments, **named)  # auto_axes knows arguments by place only
        return auto_axes(function, out_sharding=PartitionSpec())(*given.args)

    return wrapped  # type: ignore[return-value]
