"""Loading of exported functions, without robot files, source code or tracing."""

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
    """Function loaded by `load_exported`, with the robot as a constant instead of an argument.

    The function may be called under `jax.jit`, and differentiated by `jax.vjp` and `jax.grad` up to `vjp_order` times. JAX
    cannot apply `jax.vmap` or `jax.jacrev` to it. Instead, export the function with batch=True, or export its Jacobian. The
    function is compiled at the first call with each batch size.

    Attributes:
        name: name of the function.
        joint_names: joint names, in the order of all joint vectors.
        nq: number of positions of the robot.
        nv: number of velocities of the robot.
        arguments: name, shape and type of every argument array; "b" denotes the batch size.
        results: name, shape and type of every result array.
        platforms: supported platforms.
        batch: True if arguments and results have a leading batch axis.
        vjp_order: number of times that the function can be differentiated.
        versions: versions of jaxdyn, jax and jaxlib that wrote the file.
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
        """Call the function.

        Arguments are converted to the types of the exported function, except that floats are not converted to integers.

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
    """Load a function written by `export_function`, without the robot description or the function's Python code.

    The file contains a program, so load only files you trust. JAX can read files written by versions of JAX up to six
    months old. Loading requires flatbuffers: `pip install "jaxdyn[deploy]"`.

    Raises:
        DeploymentError: the file is missing, damaged, not an exported function, or of an unsupported version. Also raised
            if the function was exported for other platforms, if it uses float64 but float64 is disabled in this process, or
            if flatbuffers is missing.
    """
    name = os.fspath(path)
    need_flatbuffers()
    description, program = read_archive(path)
    try:
        return _loaded(name, description, program)
    except DeploymentError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if description["version"] > 1:  # the checksum is correct, so the file is not damaged
            raise
        raise damaged(name) from error


def _loaded(name: str, description: dict[str, Any], program: bytes) -> ExportedFunction:
    """Create the function from its description and program, if this process can run it."""
    versions = description["versions"]
    wrote = ", ".join(f"{package} {version}" for package, version in versions.items())
    supported = (
        jax.export.minimum_supported_calling_convention_version,
        jax.export.maximum_supported_calling_convention_version,
    )
    if not supported[0] <= description["calling_convention"] <= supported[1]:
        raise DeploymentError(
            f"{name}: written by {wrote} with version {description['calling_convention']} of JAX's calling convention, but "
            f"JAX {jax.__version__} reads versions {supported[0]} to {supported[1]}: export the function again, or use the "
            "version of JAX that wrote the file"
        )
    platform = jax.export.default_export_platform()
    if platform not in description["platforms"]:
        raise DeploymentError(
            f"{name}: exported for {', '.join(description['platforms'])}, but this process runs on {platform}: "
            f"export the function with platforms=({platform!r}, ...), or set "
            f"JAX_PLATFORMS={description['platforms'][0]} before starting Python"
        )
    wide = any(dtype in ("float64", "complex128") for _, _, dtype in description["arguments"] + description["results"])
    if wide and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise DeploymentError(
            f'{name}: the function uses float64; first call jax.config.update("jax_enable_x64", True), or export it in float32'
        )
    try:
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:
        raise DeploymentError(
            f"{name}: JAX {jax.__version__} cannot read the file (written by {wrote}): {error}"
        ) from error
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
