"""Ahead-of-time export of a function of one robot to a file, which can be used without the robot description or the code."""

import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._version import version_of
from ..errors import DeploymentError
from ..model._chain import Chain
from ._archive import write_archive
from ._trees import is_plain, plain, signature

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_function(
    function: Callable[..., Any],
    chain: Chain,
    *example_arguments: Any,
    path: str | os.PathLike[str],
    platforms: Sequence[str] = ("cpu",),
    batch: bool = False,
    vjp_order: int = 0,
) -> None:
    """Export function(chain, *arguments) to a file for `load_exported`, with the robot's parameters as constants.

    The function may be one of jaxdyn's or your own, for example a controller or a policy. It is traced once, for the shapes
    and types of the examples, and saved as StableHLO by `jax.export`. The loaded function returns dictionaries with field
    names as keys instead of named tuples, modules and other objects. The file is written atomically. Export requires
    flatbuffers: `pip install "jaxdyn[deploy]"`.

    Args:
        function: function of the chain and the arguments that returns an array or a tree of arrays.
        example_arguments: arrays, numbers or `jax.ShapeDtypeStruct`s, or tuples, lists and dictionaries of these; only
            their shapes and types matter.
        path: file to write.
        platforms: target platforms ("cpu", "cuda", "rocm" or "tpu"); one file can support several.
        batch: True to map the function over batches of all arguments by `jax.vmap`, for batches of any size.
        vjp_order: number of times that `jax.vjp` or `jax.grad` can differentiate the loaded function.

    Raises:
        DeploymentError: the function cannot be traced for these shapes, calls back to Python, or calls a routine that is
            not covered by JAX's compatibility guarantee. Also raised if a platform is unknown, if an argument is not an
            array or a plain container of arrays, or if flatbuffers is missing.
        OutputError: the file cannot be written; an existing file is left unchanged.
    """
    need_flatbuffers()
    unknown = [platform for platform in platforms if platform not in PLATFORMS]
    if unknown or not platforms:
        raise DeploymentError(f"platforms must be among {', '.join(PLATFORMS)}, not {', '.join(unknown) or 'empty'}")
    if not is_plain(example_arguments):
        raise DeploymentError(
            "arguments of an exported function must be arrays, or tuples, lists and dictionaries of arrays: for "
            "any other object, pass the arrays that it contains"
        )
    examples = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), example_arguments)

    def single(*arguments):
        return jax.tree.map(jnp.asarray, plain(function(chain, *arguments)))

    if batch:
        (b,) = jax.export.symbolic_shape("b")
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((b, *x.shape), x.dtype), examples)
    else:
        shapes = examples
    name = getattr(function, "__name__", type(function).__name__)
    try:
        exported = jax.export.export(jax.jit(jax.vmap(single) if batch else single), platforms=platforms)(*shapes)
        program = exported.serialize(vjp_order=vjp_order)
    except DeploymentError:
        raise
    except Exception as error:
        raise DeploymentError(f"{name} cannot be exported: {_first_lines(error)}") from error
    results = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    description = {
        "function": name,
        "joint_names": list(chain.joint_names),
        "nq": chain.nq,
        "nv": chain.nv,
        "arguments": signature(shapes, _parameter_names(function)),
        "results": signature(results),
        "platforms": list(exported.platforms),
        "batch": batch,
        "vjp_order": vjp_order,
        "calling_convention": exported.calling_convention_version,
        "versions": {package: version_of(package) for package in ("jaxdyn", "jax", "jaxlib")},
    }
    write_archive(path, description, bytes(program))


def need_flatbuffers() -> None:
    """Check that flatbuffers, which JAX requires for exported functions, is installed.

    Raises:
        DeploymentError: flatbuffers is missing.
    """
    try:
        importlib.import_module("flatbuffers")
    except ImportError:
        raise DeploymentError('exported functions require flatbuffers: pip install "jaxdyn[deploy]"') from None


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    """Names of a function's positional parameters after the first, which is the chain."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _first_lines(error: Exception) -> str:
    text = str(error).strip()
    return text if len(text) < 600 else text[:600] + " ..."
