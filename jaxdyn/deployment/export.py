"""Export of a function of one robot to a file, and its use without the robot description or the code.

The file is a zip archive with a JSON description and a program written by `jax.export`, so that any tool can show what it is.
Trees become plain containers that any process can read.
"""

import dataclasses
import hashlib
import importlib
import inspect
import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from .._jax_compat import Tracer
from .._version import version_of
from ..errors import DeploymentError, OutputError
from ..io.files import read_bytes, write_whole
from ..model.chain import Chain

FORMAT = "jaxdyn exported function"
VERSION = 2  # version 1, which has no checksum, can also be read
_DESCRIPTION, _PROGRAM, _CHECKSUM = "description.json", "program.jax_export", "sha256"
_LARGEST = {_DESCRIPTION: 1 << 24, _PROGRAM: 1 << 31, _CHECKSUM: 64}  # bytes; limits memory if a size is damaged
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same function always yields the same file


def write_archive(path: str | os.PathLike[str], description: dict[str, Any], program: bytes) -> None:
    """Write the description and the program to one file, atomically."""
    content = io.BytesIO()
    text = json.dumps({"format": FORMAT, "version": VERSION, **description}, indent=2).encode()
    parts = {_DESCRIPTION: text, _PROGRAM: program, _CHECKSUM: _checksum(text, program)}
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), part, zipfile.ZIP_DEFLATED)
    write_whole(path, content.getvalue(), OutputError)


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Read the description and the serialised program of an exported function."""
    name = os.fspath(path)
    content = read_bytes(path, "exported file", DeploymentError)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(part.file_size > _LARGEST.get(part.filename, 0) for part in archive.infolist()):
                raise ValueError("a part of that length")
            text, program = archive.read(_DESCRIPTION), archive.read(_PROGRAM)
            digest = archive.read(_CHECKSUM) if _CHECKSUM in archive.namelist() else b""
        description = json.loads(text)
        if description["format"] != FORMAT:
            raise KeyError("format")
        version, wrote = description["version"], description["versions"]["jaxdyn"]
    except Exception:  # zipfile, zlib and json raise exceptions of many types
        raise _damaged(name) from None
    if version not in (1, VERSION):
        fault = f"{name}: the file has format version {version}, but this jaxdyn reads versions up to {VERSION}"
        raise DeploymentError(fault, f"use jaxdyn {wrote}, which wrote the file, or export the function again")
    if digest != (b"" if version == 1 else _checksum(text, program)):
        raise _damaged(name)
    return description, program


def _damaged(name: str) -> DeploymentError:
    fault = f"{name}: the file is damaged, or not a function exported by jaxdyn"
    return DeploymentError(fault, "export the function again with export_function")


def _checksum(description: bytes, program: bytes) -> bytes:
    return hashlib.sha256(description + program).hexdigest().encode()


Signature = Sequence[tuple[str, Sequence[int | str], str]]


def plain(tree: Any) -> Any:
    """Replace named tuples, modules and other objects in a tree by dictionaries that map field names to values."""
    if tree is None or jax.tree_util.all_leaves([tree]):
        return tree
    children, _ = tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)
    if type(tree) in (tuple, list):
        return type(tree)(plain(child) for _, child in children)
    return {keystr(path, simple=True): plain(child) for path, child in children}


def signature(tree: Any, names: Sequence[str] = ()) -> list[tuple[str, list[int | str], str]]:
    """Name, shape and type of each leaf; symbolic dimensions are strings, and `names` labels the top-level entries."""
    leaves, _ = tree_flatten_with_path(tree)
    found = []
    for path, x in leaves:
        at = getattr(path[0], "idx", len(names)) if path else len(names)
        named = at < len(names)
        rest = keystr(path[named:], simple=True, separator=".")
        name = ".".join(part for part in (names[at] if named else "", rest) if part) or "result"
        found.append((name, [d if isinstance(d, int) else str(d) for d in x.shape], str(x.dtype)))
    return found


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

    The function, for example a controller, is traced once, for the shapes and types of the examples, and saved as StableHLO by
    `jax.export`. The loaded function returns dictionaries with field names as keys instead of named tuples, modules and other
    objects. Export requires flatbuffers: `pip install "jaxdyn[deploy]"`.

    Args:
        example_arguments: arrays, numbers or `jax.ShapeDtypeStruct`s, or tuples, lists and dictionaries of these; only
            their shapes and types matter.
        platforms: target platforms ("cpu", "cuda", "rocm" or "tpu"); one file can support several.
        batch: True to map the function over batches of all arguments by `jax.vmap`, for batches of any size.
        vjp_order: number of times that `jax.vjp` or `jax.grad` can differentiate the loaded function.

    Raises:
        DeploymentError: the function cannot be traced for these shapes, calls back to Python, or calls a routine that is not
            covered by JAX's compatibility guarantee; a platform is unknown; an argument is not an array or a plain container
            of arrays; or flatbuffers is missing.
        OutputError: the file cannot be written; an existing file is left unchanged.
    """
    need_flatbuffers()
    unknown = [platform for platform in platforms if platform not in PLATFORMS]
    if unknown or not platforms:
        raise DeploymentError(f"platforms must be among {', '.join(PLATFORMS)}, not {', '.join(unknown) or 'empty'}")
    if jax.tree.structure(example_arguments) != jax.tree.structure(plain(example_arguments)):
        fault = "arguments of an exported function must be arrays, or tuples, lists and dictionaries of arrays"
        raise DeploymentError(fault, "for any other object, pass the arrays that it contains")
    examples = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), example_arguments)

    def single(*arguments):
        return jax.tree.map(jnp.asarray, plain(function(chain, *arguments)))

    leading = jax.export.symbolic_shape("b") if batch else ()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*leading, *x.shape), x.dtype), examples)
    name = getattr(function, "__name__", type(function).__name__)
    try:
        exported = jax.export.export(jax.jit(jax.vmap(single) if batch else single), platforms=platforms)(*shapes)
        program = exported.serialize(vjp_order=vjp_order)
    except DeploymentError:
        raise
    except Exception as error:
        text = str(error).strip()
        reason = text if len(text) < 600 else f"{text[:600]} ..."
        raise DeploymentError(f"{name} cannot be exported: {reason}") from error
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
    """Check that flatbuffers, which JAX requires for exported functions, is installed."""
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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExportedFunction:
    """Function loaded by `load_exported`, with the robot as a constant instead of an argument.

    The function may be called under `jax.jit`, and differentiated by `jax.vjp` and `jax.grad` up to `vjp_order` times, but not
    mapped by `jax.vmap` or `jax.jacrev`: export it with batch=True, or export its Jacobian. It is compiled at the first call
    with each batch size.

    Attributes:
        arguments: name, shape and type of every argument array; "b" denotes the batch size.
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
        """Call the function; arguments are converted to its types, except that floats are not converted to integers."""
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
        DeploymentError: the file is missing, damaged, not an exported function, or of an unsupported version; the function was
            exported for other platforms, or uses float64 but float64 is disabled in this process; or flatbuffers is missing.
    """
    name = os.fspath(path)
    need_flatbuffers()
    description, program = read_archive(path)
    try:
        return _loaded(name, description, program)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if description["version"] > 1 or isinstance(error, DeploymentError):  # the checksum of version 2 is correct
            raise
        raise _damaged(name) from error


def _loaded(name: str, description: dict[str, Any], program: bytes) -> ExportedFunction:
    """Create the function from its description and program, if this process can run it."""
    versions = description["versions"]
    wrote = ", ".join(f"{package} {version}" for package, version in versions.items())
    oldest = jax.export.minimum_supported_calling_convention_version
    newest = jax.export.maximum_supported_calling_convention_version
    convention = description["calling_convention"]
    if not oldest <= convention <= newest:
        fault = f"{name}: written by {wrote} with version {convention} of JAX's calling convention"
        raise DeploymentError(
            f"{fault}, but JAX {jax.__version__} reads versions {oldest} to {newest}",
            "export the function again, or use the version of JAX that wrote the file",
        )
    platform = jax.export.default_export_platform()
    if platform not in description["platforms"]:
        other = f"set JAX_PLATFORMS={description['platforms'][0]} before starting Python"
        raise DeploymentError(
            f"{name}: exported for {', '.join(description['platforms'])}, but this process runs on {platform}",
            f"export the function with platforms=({platform!r}, ...), or {other}",
        )
    wide = any(dtype in ("float64", "complex128") for _, _, dtype in description["arguments"] + description["results"])
    if wide and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        remedy = 'first call jax.config.update("jax_enable_x64", True), or export it in float32'
        raise DeploymentError(f"{name}: the function uses float64", remedy)
    try:
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:
        fault = f"JAX {jax.__version__} cannot read the file (written by {wrote}): {error}"
        raise DeploymentError(f"{name}: {fault}") from error
    flat = jax.jit(lambda *leaves: exported.call(*jax.tree.unflatten(exported.in_tree, leaves)[0]))
    arguments, results = (
        [(part, tuple(shape), dtype) for part, shape, dtype in description[which]] for which in ("arguments", "results")
    )
    return ExportedFunction(
        name=description["function"],
        joint_names=tuple(description["joint_names"]),
        platforms=tuple(description["platforms"]),
        arguments=arguments,
        results=results,
        **{key: description[key] for key in ("nq", "nv", "batch", "vjp_order", "versions")},
        _call=flat,
        _structure=exported.in_tree,
        _expected=[(shape, np.dtype(dtype)) for _, shape, dtype in arguments],
    )


def _spoken(arguments: Any) -> str:
    arrays = jax.tree.map(lambda x: x if isinstance(x, Tracer) else jax.eval_shape(jnp.asarray, x), plain(arguments))
    return _listed(signature(arrays))


def _listed(arrays: Signature) -> str:
    return ", ".join(f"{name} {dtype}[{', '.join(map(str, shape))}]" for name, shape, dtype in arrays) or "nothing"
