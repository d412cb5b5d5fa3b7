"""Check whether a robot can be identified from joint logs, and convert its model to double precision."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import IdentificationError
from ...model._chain import Chain


def check_identifiable(chain: Chain) -> None:
    """Raise an error if joint positions alone do not determine the robot's configuration.

    Raises:
        IdentificationError: the robot has a floating base or spherical joints.
    """
    quaternions = chain.topology.quaternion_joints
    if any(size == 6 for _, size in quaternions):
        raise IdentificationError(
            "this robot has a floating base: a log of its joints describes neither the motion of the base nor the contacts. "
            "Pass the base's pose and the contact wrenches (or the fixed frames) to identify_mechanism"
        )
    if quaternions:
        name = chain.joint_names[quaternions[0][0]]
        raise IdentificationError(
            f"{name!r} is a spherical joint, whose orientation a log of joint positions does not contain: pass samples with "
            "quaternions to identify_mechanism"
        )


def check_one_by_one(chain: Chain, what: str) -> None:
    """Raise an error if the robot has coupled joints, for features that need uncoupled ones.

    Raises:
        IdentificationError: some joints mimic others, or the robot's coordinates differ from its joints.
    """
    if chain.coupling is not None:
        raise IdentificationError(
            f"{what} needs a robot with uncoupled joints, but {chain.n} joints of this one depend on {chain.nv} coordinates. "
            "The drive terms viscous, coulomb and offset also work with coupled joints"
        )


def as_float64(chain: Chain) -> Chain:
    """Convert a chain to double precision, without its single-precision rounding errors.

    Call this function under `jax.enable_x64(True)`. Rotations are orthonormalised, axes are normalised, and screw
    pitches that are zero up to rounding errors are set to zero. Otherwise, rounding errors would make additional
    parameters seem identifiable, with a small effect on the torques.
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
