"""The way into public functions: shapes are checked, and calls outside JAX's transformations are compiled."""

import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, PartitionSpec, auto_axes
from jaxtyping import AbstractArray

from .._jax_compat import Tracer, trace_state_clean
from ..errors import ControlError, JaxdynError, ModelError, TrajectoryError
from .chain import Chain, layout

F = TypeVar("F", bound=Callable[..., Any])


def check_quaternions(chain: Chain, q: Any) -> None:
    """Raise an error that names the joint if a quaternion in q is zero, except inside `jax.jit`."""
    if isinstance(q, Tracer) or np.shape(q) != (chain.nq,):
        return
    for joint in layout(chain).curved:
        if joint.fault(np.asarray(q)[joint.entries]):
            name = chain.joint_names[joint.link]
            raise ModelError(f"the quaternion of joint {name!r} in q is zero; start from `neutral_configuration`")


LEVEL = "xla_backend_optimization_level"


def compiled(function: F, error: type[JaxdynError] | None = None) -> F:
    """Run the function as one compiled program when it is called with arrays outside `jit`, `vmap`, `grad` and the like.

    Each combination of argument structure (including the robot's topology), shapes and dtypes has its own program, which is
    cached for the life of the process. Floats are inputs; integers, strings and functions are static, and the free
    variables of a function argument are read at compilation, as with `jax.jit`. Later calls take 30 to 60 us longer than a
    call of the jitted function. Under a transformation, or if an argument is unhashable, the function is called directly.
    Outside transformations, positions, velocities, accelerations and torques may also be lists of numbers.
    """
    function = checked(function, error)
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


def checked(function: F, error: type[JaxdynError] | None = None) -> F:
    """Compare the shapes of array arguments with their annotations before the function runs; n, nq and nv are the chain's.

    A wrong shape raises `error`, by default that of the function's folder.
    """
    error = error or _error_of(function)
    signature = inspect.signature(function)
    forms = {name: _forms(parameter.annotation) for name, parameter in signature.parameters.items()}
    forms = {name: form for name, form in forms.items() if form[0]}

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError:  # Python's own message names the argument
            return function(*arguments, **named)
        chain = next((x for x in given.values() if isinstance(x, Chain)), None)
        known = {} if chain is None else {"n": chain.n, "nq": chain.nq, "nv": chain.nv}
        for name, form in forms.items():
            if given.get(name) is not None:
                _check_shape(function, error, name, given[name], *form, known, chain)
        return function(*arguments, **named)

    return call  # type: ignore[return-value]


_Form = tuple[str, ...]  # sizes and names of the axes


def _forms(annotation: Any) -> tuple[list[_Form], bool]:
    """The shapes that an annotation admits (none if it leaves the number of axes open), and whether it admits only arrays."""
    choices = [x for x in typing.get_args(annotation) if x is not type(None)] or [annotation]
    arrays = [x for x in choices if isinstance(x, type) and issubclass(x, AbstractArray)]
    forms = [tuple(x.dim_str.split()) for x in arrays]
    known = all(axis.isidentifier() or axis.isdigit() for form in forms for axis in form)
    return (forms if known else []), all(x in (*arrays, float, int) for x in choices)


def _check_shape(
    function: Callable,
    error: type[JaxdynError],
    name: str,
    x: Any,
    forms: list[_Form],
    strict: bool,
    known: dict[str, int],
    chain: Chain | None,
) -> None:
    """Raise an error if x has none of the forms; otherwise, remember the sizes of axes."""
    if not hasattr(x, "shape") and not isinstance(x, int | float):
        if not strict or isinstance(x, str):
            return
        raise error(f"{function.__name__}: {name} is a {type(x).__name__}, not an array", "convert it with jnp.asarray")
    shape = np.shape(x)
    sizes = lambda form: tuple(int(axis) if axis.isdigit() else known.get(axis) for axis in form)
    fits = lambda form: len(form) == len(shape) and all(a in (b, None) for a, b in zip(sizes(form), shape, strict=True))
    form = next((form for form in forms if fits(form)), None)
    if form is not None:
        known.update((axis, size) for axis, size in zip(form, shape, strict=True) if not axis.isdigit())
        return
    wanted = " or ".join(_spelled(form, sizes(form)) for form in forms)
    fault = f"{function.__name__}: {name} has shape {shape}; expected {wanted}"
    if chain is not None and {"n", "nq", "nv"} & {axis for form in forms for axis in form}:
        free = f", nq = {chain.nq} positions (with quaternions) and nv = {chain.nv} velocities"
        fault += f", since this robot has {chain.n} joints{free if chain.nq != chain.n or chain.nv != chain.n else ''}"
    form = sizes(forms[0])
    remedy = "pass an array of the expected shape"
    whole = tuple(size for size in form if size is not None)
    if whole == form and len(shape) != len(form) and math.prod(shape) == math.prod(whole):
        remedy = f"pass {name}.reshape{form}"
    elif len(shape) > max(map(len, forms)):
        remedy = "pass one state or target, and use jax.vmap for batches, once for each leading axis"
    raise error(fault, remedy)


def _error_of(function: Callable) -> type[JaxdynError]:
    package = f"{function.__module__}.".split(".")[1]
    return {"trajectory": TrajectoryError, "control": ControlError}.get(package, ModelError)


def _spelled(form: _Form, sizes: tuple[int | None, ...]) -> str:
    """A shape, with the names of unknown sizes."""
    axes = ", ".join(axis if size is None else str(size) for axis, size in zip(form, sizes, strict=True))
    return f"({axes},)" if len(form) == 1 else f"({axes})"


@functools.cache
def _compiles_quickly() -> bool:
    """True on the CPU, where level 2 saves up to a third of the compilation time, unless the user has set a level for XLA."""
    return jax.default_backend() == "cpu" and LEVEL not in os.environ.get("XLA_FLAGS", "")


_OF_A_STATE = frozenset({"q", "qd", "qdd", "v", "vd", "tau"})


def _array(name: str, x: Any) -> Any:
    """The argument, converted to an array if it is a list of positions, velocities, accelerations or torques."""
    return np.asarray(x, float) if type(x) is list and name in _OF_A_STATE else x


def _varies(leaf: Any) -> bool:
    """True if a leaf is an input of the compiled program; integers, strings and functions are static."""
    return isinstance(leaf, jax.Array | float) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub")


def any_axis_types(function: F) -> F:
    """Wrap a function so that JAX chooses its sharding; explicit sharding supports neither scatters nor stacked literals."""

    names = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or AxisType.Explicit not in mesh.axis_types:
            return function(*arguments, **named)
        given = names.bind(*arguments, **named)  # auto_axes accepts only positional arguments
        return auto_axes(function, out_sharding=PartitionSpec())(*given.args)

    return wrapped  # type: ignore[return-value]
