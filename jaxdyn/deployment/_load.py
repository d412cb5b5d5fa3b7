"""Loading of exported functions, without the robot's files, the function's code, or tracing."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jax_compat import Tracer
from ..errors import DeploymentError
from ._archive import damaged, read_archive
from ._export import need_flatbuffers
from ._trees import Signature, plain, signature


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExportedFunction:
    """A function read by `load_exported`; it contains the robot, which is therefore not an argument.

    The function may be called under `jax.jit`, and differentiated by `jax.vjp` and `jax.grad` up to the order given at
    export. JAX cannot apply `jax.vmap` or `jax.jacrev` to it; export the function with batch=True, or export its Jacobian.
    The function is compiled at the first call with each batch size.

    Attributes:
        name: the function's name.
        joint_names: joint names, in the order of all joint vectors.
        nq: number of positions of the robot.
        nv: number of velocities.
        arguments: name, shape and type of every argument array; "b" is the batch size.
        results: name, shape and type of every result array.
        platforms: supported platforms.
        batch: True if arguments and results have a leading batch axis.
        vjp_order: how many times the function can be differentiated.
        versions: versions of jaxdyn, jax and jaxlib with which the file was written.
    """

    name: str
    joint_names: tuple[str, ...]
    nq: int
    nv: int
    arguments: Signature
    results: Signature
    platforms: tuple[str, ...]
    batch: bool
    vjp_order: int
    versions: dict[str, str]
    _call: Callable[..., Any]
    _structure: Any
    _expected: list[tuple[tuple, np.dtype]]

    def __repr__(self) -> str:
        robot = f"{len(self.joint_names)} joints"
        return f"ExportedFunction({self.name} of {robot}: {_listed(self.arguments)} -> {_listed(self.results)})"

    def __call__(self, *arguments: Any) -> Any:
        """Call the function. Arguments are converted to the types at export, except that floats are not converted to integers.

        Raises:
            DeploymentError: the number, structure or shape of the arguments is wrong, or a type cannot be converted.
        """
        leaves, structure = jax.tree.flatten((arguments, {}))
        if structure != self._structure:
            self._refuse(arguments)
        size = None
        for k, (x, (shape, dtype)) in enumerate(zip(leaves, self._expected, strict=True)):
            if not hasattr(x, "shape"):
                leaves[k] = x = np.asarray(x)
            if self.batch:
                size = (x.shape[:1] or (0,)) if size is None else size
                shape = size + shape[1:]
            if x.shape != shape or size == (0,) or (x.dtype != dtype and not np.can_cast(x.dtype, dtype, "same_kind")):
                self._refuse(arguments)
            if x.dtype != dtype:
                leaves[k] = x.astype(dtype)
        return self._call(*leaves)

    def _refuse(self, arguments: tuple) -> None:
        raise DeploymentError(f"{self.name} takes {_listed(self.arguments)}; it was called with {_spoken(arguments)}")


def load_exported(path: str | os.PathLike[str]) -> ExportedFunction:
    """Load a function written by `export_function`, without the robot description and the function's Python code.

    The file is a program: load only files you trust. JAX reads files that were written by JAX versions up to six months
    old. Requires flatbuffers: `pip install "jaxdyn[deploy]"`.

    Raises:
        DeploymentError: the file is missing, damaged, not an exported function, or of an unsupported version; the function
            was exported for other platforms, or in float64 although float64 is disabled in this process; or flatbuffers is
            missing.
    """
    name = os.fspath(path)
    need_flatbuffers()
    description, program = read_archive(path)
    try:
        return _loaded(name, description, program)
    except DeploymentError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if description["version"] > 1:  # the checksum is correct: the file is not damaged
            raise
        raise damaged(name) from error


def _loaded(name: str, description: dict[str, Any], program: bytes) -> ExportedFunction:
    """The function with this description and program, if this process can run it."""
    versions = description["versions"]
    wrote = ", ".join(f"{package} {version}" for package, version in versions.items())
    supported = (
        jax.export.minimum_supported_calling_convention_version,
        jax.export.maximum_supported_calling_convention_version,
    )
    if not supported[0] <= description["calling_convention"] <= supported[1]:
        raise DeploymentError(
            f"{name}: written by {wrote} with version {description['calling_convention']} of JAX's calling convention, but "
            f"JAX {jax.__version__} reads {supported[0]} to {supported[1]}: export the function again, or use that JAX"
        )
    platform = jax.export.default_export_platform()
    if platform not in description["platforms"]:
        raise DeploymentError(
            f"{name}: exported for {', '.join(description['platforms'])}, but this process runs on {platform}: "
            f"export it with platforms=({platform!r}, ...), or set JAX_PLATFORMS={description['platforms'][0]} before "
            "starting Python"
        )
    wide = any(dtype in ("float64", "complex128") for _, _, dtype in description["arguments"] + description["results"])
    if wide and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise DeploymentError(
            f'{name}: uses float64: call jax.config.update("jax_enable_x64", True) first, or export it in float32'
        )
    try:
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:
        raise DeploymentError(f"{name}: JAX {jax.__version__} cannot read it (written by {wrote}): {error}") from error
    flat = jax.jit(lambda *leaves: exported.call(*jax.tree.unflatten(exported.in_tree, leaves)[0]))
    return ExportedFunction(
        name=description["function"],
        joint_names=tuple(description["joint_names"]),
        nq=description["nq"],
        nv=description["nv"],
        arguments=[(a, tuple(b), c) for a, b, c in description["arguments"]],
        results=[(a, tuple(b), c) for a, b, c in description["results"]],
        platforms=tuple(description["platforms"]),
        batch=description["batch"],
        vjp_order=description["vjp_order"],
        versions=versions,
        _call=flat,
        _structure=exported.in_tree,
        _expected=[(tuple(shape), np.dtype(dtype)) for _, shape, dtype in description["arguments"]],
    )


def _spoken(arguments: Any) -> str:
    arrays = jax.tree.map(lambda x: x if isinstance(x, Tracer) else jax.eval_shape(jnp.asarray, x), plain(arguments))
    return _listed(signature(arrays))


def _listed(arrays: Signature) -> str:
    return ", ".join(f"{name} {dtype}[{', '.join(map(str, shape))}]" for name, shape, dtype in arrays) or "nothing"
