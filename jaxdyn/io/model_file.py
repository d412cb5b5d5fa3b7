"""`save_model` and `load_model`: a chain in a single bit-exact file, independent of the robot description.

The file consists of a line of JSON, followed by the leaves (arrays) of the chain, each in NumPy's `.npy` format. This is
the layout that Equinox's `tree_serialise_leaves` writes after a line of hyperparameters. The JSON contains the version of
the format, names and parents, and the name, shape and type of every leaf, so that any program can read the file.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from .._jax_compat import Tracer
from .._version import version_of
from ..errors import ModelError, ModelWarning, warn
from ..model.chain import (
    STRIBECK_VELOCITY,
    Chain,
    Coupling,
    Friction,
    JointLimits,
    Springs,
    Topology,
    Transmission,
    named_leaves,
)
from ..model.joints import Free, Spherical
from .files import checksum, packed, read_headed, unpacked, write_headed

FORMAT = "jaxdyn model"
# All versions can be read. In version 1, the checksum covers only the arrays. In versions 1 and 2, leaves have other names. In
# version 4, the file has terms that a chain cannot represent.
VERSION, VERSION_OF_CHAINS = 4, 3
BEYOND = "beyond."
_MODULES = {
    "friction": Friction,
    "springs": Springs,
    "limits": JointLimits,
    "transmission": Transmission,
    "coupling": Coupling,
}
_IF_USED = "unrounded", "rounding", "compound_joints"
_OPTIONAL = "base_pose", "transmission", "coupling"
_OLD_NAMES = {
    "viscous_friction": "friction.viscous",
    "coulomb_friction": "friction.coulomb",
    "coulomb_velocity": "friction.coulomb_velocity",
    "stribeck_friction": "friction.stribeck",
    "stribeck_velocity": "friction.stribeck_velocity",
    "torque_offset": "friction.offset",
    "stiffness": "springs.stiffness",
    "rest_position": "springs.rest_position",
    "position_limits": "limits.position",
    "velocity_limit": "limits.velocity",
    "effort_limit": "limits.effort",
}
_READ = 1, 2, VERSION_OF_CHAINS, VERSION
_TYPES = ("float32", "float64", "float16")


def save_model(chain: Chain, path: str | os.PathLike[str], about: Mapping[str, str] | None = None) -> None:
    """Write a chain to a single file (`model.eqx`), from which `load_model` restores all names and bit-exact numbers.

    Trees, quaternion joints, couplings (mimic joints), transmissions, base poses and batches of robots are supported. The
    file does not depend on the original robot description, and saving the same chain again yields the same bytes.

    Args:
        about: notes on the model, such as its origin, saved as text in the first line.

    Raises:
        ModelError: a leaf is traced by JAX (`save_model` was called inside `jit` or `grad`) or is not an array of floats; or
            the file cannot be written, in which case an existing file is left unchanged.
    """
    write_model(chain, path, about)


def write_model(
    chain: Chain,
    path: str | os.PathLike[str],
    about: Mapping[str, str] | None = None,
    beyond: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> None:
    """Write a chain as `save_model` does, together with a JSON description (`beyond`) and further named arrays."""
    further = {f"{BEYOND}{name}": array for name, array in (arrays or {}).items()}
    leaves = _leaves(named_leaves(chain) | further)
    content = packed(leaves.values())
    header = {
        "format": FORMAT,
        "version": VERSION if further or beyond else VERSION_OF_CHAINS,
        "jaxdyn": version_of(),
        "about": dict(about or {}),
        "topology": _topology_fields(chain.topology),
        "leaves": [{"name": k, "shape": list(a.shape), "dtype": str(a.dtype)} for k, a in leaves.items()],
        "bytes": len(content),
    }
    if further or beyond:
        header["beyond"] = dict(beyond or {})
    write_headed(path, header, content)


def load_model(path: str | os.PathLike[str], *, dtype: DTypeLike | None = None) -> Chain:
    """Read a chain written by `save_model`, with exactly the same structure, names and numbers.

    If the file was written by `identification.save_torque_model` and has terms that a chain cannot represent, the
    nearest chain is returned, with a warning.

    Args:
        dtype: floating-point type of the leaves. If None, the type in the file is used, except that float64 becomes float32,
            with a warning, if float64 is disabled in JAX.

    Raises:
        ModelError: the file is not a model file, is truncated or modified, or has an unsupported version; or float64 is
            requested, but disabled in this process.
    """
    chain, beyond, _ = read_model(path, dtype)
    if beyond:
        what = f"{os.fspath(path)} contains terms that a Chain cannot represent ({', '.join(beyond)})"
        warn(f"{what}: the nearest chain is returned; use identification.load_torque_model for the complete model")
    return chain


def read_model(
    path: str | os.PathLike[str], dtype: DTypeLike | None = None
) -> tuple[Chain, dict[str, Any], dict[str, Any]]:
    """Read the chain, the JSON description and the further arrays (by name) from a file written by `write_model`."""
    name = os.fspath(path)
    header, content = _parts_of(path, name)
    try:
        arrays = _arrays(header, content, name, dtype)
        further = {key.removeprefix(BEYOND): arrays.pop(key) for key in list(arrays) if key.startswith(BEYOND)}
        fields = {**dict.fromkeys(_OPTIONAL), **arrays, "topology": _topology(header["topology"])}
        return _rebuilt(Chain, fields), dict(header.get("beyond", {})), further
    except (ModelError, ModelWarning):  # ModelWarning: if warnings are treated as errors
        raise
    except Exception:  # JSON with another structure can cause any exception
        raise ModelError(f"{name}: the first line does not describe a model: was it edited by hand?") from None


def _arrays(header: Mapping[str, Any], content: bytes, name: str, dtype: DTypeLike | None) -> dict[str, Any]:
    """Read all leaves, by their current names."""
    names = [leaf["name"] for leaf in header["leaves"]]
    held = dict(zip(names, unpacked(content, len(names)), strict=True))
    if dtype is not None:
        held = {key: array.astype(jnp.dtype(dtype), copy=False) for key, array in held.items()}
    double = any(array.dtype == np.float64 for array in held.values())
    if double and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        remedy = 'call jax.config.update("jax_enable_x64", True) first'
        if dtype is not None:
            raise ModelError("float64 is requested, but disabled in this process", remedy, place=name)
        what = f"{name}: the model is in float64, which is disabled in this process: its numbers are rounded"
        warn(f'{what}. To keep float64, {remedy}; to suppress this warning, load the model with dtype="float32"')
        held = {key: array.astype(np.float32, copy=False) for key, array in held.items()}
    arrays: dict[str, Any] = {key: jnp.asarray(array) for key, array in held.items()}
    return _renamed(arrays) if header["version"] < VERSION_OF_CHAINS else arrays


def _renamed(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the leaves of old files to their current names, and add the motor friction leaves that these files lack."""
    found = {}
    for name, x in arrays.items():
        part, dot, leaf = name.rpartition(".")
        found[f"{part}{dot}{_OLD_NAMES.get(leaf, leaf)}"] = x
    if (viscous := found.get("transmission.friction.viscous")) is not None:
        for leaf, value in (("stribeck", 0.0), ("stribeck_velocity", STRIBECK_VELOCITY), ("offset", 0.0)):
            found[f"transmission.friction.{leaf}"] = jnp.full_like(viscous, value)
    return found


def _topology_fields(topology: Topology) -> dict[str, Any]:
    """The fields of a topology as JSON; free and spherical joints as (first link, number of links), as in version 0.2."""
    fields = {key: x for key, x in dataclasses.asdict(topology).items() if x or key not in _IF_USED}
    joints = fields.pop("compound_joints", ())
    sizes = {joint.kind: len(joint.parts) for joint in (Spherical, Free)}
    fields["quaternion_joints"] = [(i, sizes[kind]) for i, kind in joints if kind in sizes]
    others = [(i, kind) for i, kind in joints if kind not in sizes]
    return fields | ({"compound_joints": others} if others else {})


def _topology(fields: Mapping[str, Any]) -> Topology:
    rest = dict(fields)
    joints = [*rest.pop("quaternion_joints", ()), *rest.pop("compound_joints", ())]
    return Topology(**rest, compound_joints=tuple(joints))


def _rebuilt(kind: type[Any], leaves: Mapping[str, Any]) -> Any:
    """Create a module from its leaves. As in JAX, field converters are not called, because the leaves may be batches."""
    fields = {name: x for name, x in leaves.items() if "." not in name}
    for part in {name.partition(".")[0] for name in leaves if "." in name}:
        inner = {name.removeprefix(f"{part}."): x for name, x in leaves.items() if name.startswith(f"{part}.")}
        fields[part] = _rebuilt(_MODULES[part], inner)
    module = object.__new__(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    if names != set(fields):
        raise KeyError(", ".join(names ^ set(fields)))
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module


def model_about(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the notes that were passed to `save_model`, and the version of jaxdyn that wrote the file (key `jaxdyn`)."""
    header, _ = _parts_of(path, os.fspath(path))
    return {**header["about"], "jaxdyn": header["jaxdyn"]}


def _leaves(named: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Convert the leaves to NumPy arrays, by name and in order."""
    arrays = {}
    for name, value in named.items():
        if isinstance(value, Tracer):
            raise ModelError(f"{name} is being traced by JAX: call save_model outside of jit, vmap and grad")
        array = np.asarray(value)
        if str(array.dtype) not in _TYPES:
            raise ModelError(f"{name} has type {array.dtype}; a model file supports {', '.join(_TYPES)}")
        arrays[name] = array
    return arrays


def _parts_of(path: str | os.PathLike[str], name: str) -> tuple[dict[str, Any], bytes]:
    """Read and check the header and the bytes of the leaves."""
    header, content = read_headed(path, "model file")
    expected, again = header.get("bytes"), "save the model again with save_model"
    if header.get("format") != FORMAT or not isinstance(expected, int) or "version" not in header:
        fault = "this is not a model written by save_model, or its first line was truncated or changed"
        remedy = "URDF and MJCF files are read by load, and exported functions by load_exported"
    elif header["version"] not in _READ:
        fault = f"the file has format version {header['version']}, written by jaxdyn {header.get('jaxdyn')}, but this jaxdyn"
        fault, remedy = f"{fault} {version_of()} reads versions up to {VERSION}", f"use that version, or {again}"
    elif len(content) < expected:
        fault = f"the file is truncated: it contains {len(content)} of {expected} bytes of numbers"
        remedy = f"copy it again, or {again}"
    elif len(content) > expected or checksum(header, content) != header.get("sha256"):
        fault = "the checksum differs from the one in the first line: the file was modified or damaged"
        remedy = f"copy it again (in binary mode), or {again}"
    else:
        return header, content
    raise ModelError(fault, remedy, place=name)
