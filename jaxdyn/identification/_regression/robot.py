"""The robot as identification takes it: joints that move one by one, numbers in double precision."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import IdentificationError
from ...model._chain import Chain


def check_identifiable(chain: Chain) -> None:
    """Refuse robots whose joints are not logged one by one.

    Raises:
        IdentificationError: joints mimic others, have rotors or springs of their own, or hold quaternions.
    """
    topology = chain.topology
    found = {
        "coupled or mimicking joints": chain.coupling is not None,
        "a transmission (put its inertia into the armature)": chain.transmission is not None,
        "joint springs": bool(np.any(np.asarray(chain.springs.stiffness))),
        "spherical joints or a free base": bool(topology.quaternion_joints),
    }
    if kinds := [kind for kind, there in found.items() if there]:
        raise IdentificationError(
            f"identification takes robots whose joints move one by one; this one has {' and '.join(kinds)}",
            "lock joints that mimic others with {lock}" if chain.coupling is not None else "",
            lock="{..}",
        )


def as_float64(chain: Chain) -> Chain:
    """The chain in double precision, under `jax.enable_x64(True)`; what single precision has rounded is made whole.

    Rotations are rotations again, axes have unit length, and a pitch within rounding of zero is zero: otherwise such errors
    look like parameters of small effect.
    """
    whole = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
    if chain.dtype == np.float64:
        return whole
    u, _, vt = np.linalg.svd(np.asarray(whole.rotation))
    w, v = np.split(np.array(whole.screw), 2, axis=1)
    turns = np.any(w != 0, axis=1, keepdims=True)
    size = np.linalg.norm(np.where(turns, w, v), axis=1, keepdims=True)
    w, v = w / size, np.where(turns, v, v / size)
    pitch = (w * v).sum(1, keepdims=True)
    v = np.where(np.abs(pitch) < 1e-6 * np.linalg.norm(v, axis=1, keepdims=True), v - pitch * w, v)
    return dataclasses.replace(whole, rotation=jnp.asarray(u @ vt), screw=jnp.asarray(np.hstack([w, v])))
