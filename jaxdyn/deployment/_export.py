"""Ahead-of-time export of a function of one robot to a file, for processes without the robot description or the code."""

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
    """Export function(chain, *arguments), with the robot's parameters as constants, to one file for `load_exported`.

    The function may be one of jaxdyn's or your own, for example a controller or a policy. It is traced once, for the shapes
    and types of the examples, and saved as StableHLO by `jax.export`. The loaded function returns named tuples, modules and
    other objects as dictionaries by field name. The file is written atomically. Export requires flatbuffers:
    `pip install "jaxdyn[deploy]"`.

    Args:
        function: a function of the chain and the arguments that returns an array or a tree of arrays.
        example_arguments: arrays, numbers or `jax.ShapeDtypeStruct`s, or tuples, lists and dictionaries of them; only their
            shapes and types matter.
        path: the file to write.
        platforms: target platforms ("cpu", "cuda", "rocm", "tpu"); one file can contain several.
        batch: True to export the function mapped over batches of all arguments by `jax.vmap`, for batches of any size.
        vjp_order: how many times `jax.vjp` or `jax.grad` can differentiate the loaded function.

    Raises:
        DeploymentError: the function cannot be traced for these shapes, calls back to Python, or calls a routine that is
            not covered by JAX's compatibility guarantee; a platform is unknown; an argument is an object of another class;
            or flatbuffers is missing.
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
    """Names of the positional parameters of a function after the chain."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _first_lines(error: Exception) -> str:
    text = str(error).strip()
    return text if len(text) < 600 else text[:600] + " ..."
