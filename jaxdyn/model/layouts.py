"""States, accelerations and forces in the layouts of MuJoCo and Pinocchio.

The layouts of jaxdyn, MuJoCo and Pinocchio differ in the order of quaternion components and in the velocity of a free
joint (see the table in docs/conventions.md):

    jaxdyn     quaternion (w, x, y, z); free joint (w, v): angular and linear velocity in body axes
    MuJoCo     quaternion (w, x, y, z); free joint (R v, w): linear velocity in world axes, angular velocity in body axes
    Pinocchio  quaternion (x, y, z, w); free joint (v, w): linear and angular velocity in body axes

R is the rotation of the body in the world. Forces are conjugate to the velocities, so the power is the same in all
layouts. Pinocchio represents the position of a continuous joint by (cos q, sin q), and that of a planar joint by (x, y,
cos, sin).

If the other program orders the joints differently, pass its joint names as `names`; by default, they are those of the
chain. A joint with several degrees of freedom has the name used in the model file: J if the chain's joints are J_wx,
J_wy, ... Planar, universal and cylindrical joints are several joints in MuJoCo, and one joint in Pinocchio unless
`names` contains their parts. Every function raises a `ModelError` if the names are not those of the joints.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..spatial.so3 import quaternion_to_rotation
from .chain import Acceleration, Chain, Force, Position, Velocity, layout
from .compiled import checked
from .joints import Free, Joint, Planar

Names = Sequence[str] | None


@checked
def to_mujoco_state(chain: Chain, q: Position, v: Velocity, names: Names = None) -> tuple[Position, Velocity]:
    """Convert a state (q, v) to MuJoCo's (qpos, qvel)."""
    joints = _ordered(chain, names)
    qpos = jnp.concatenate([q[j.entries] for j in joints])
    return qpos, jnp.concatenate([_to_world(j, q, v[j.columns]) for j in joints])


@checked
def from_mujoco_state(chain: Chain, qpos: Position, qvel: Velocity, names: Names = None) -> tuple[Position, Velocity]:
    """Convert MuJoCo's (qpos, qvel) to a state (q, v): the inverse of `to_mujoco_state`."""
    joints = _ordered(chain, names)
    q = _put(joints, _parts(joints, qpos, True))
    return q, _put(joints, [_to_body(j, q, x) for j, x in zip(joints, _parts(joints, qvel), strict=True)])


@checked
def to_mujoco_acceleration(
    chain: Chain, q: Position, v: Velocity, a: Acceleration, names: Names = None
) -> Acceleration:
    """Convert an acceleration a = dv/dt to MuJoCo's qacc [rad/s^2 or m/s^2].

    For a free joint, the linear part a_v becomes R (a_v + w x v), with the rotation R of the body and its twist (w, v).
    """
    return jnp.concatenate([_to_world(j, q, a[j.columns] + _turning(j, v)) for j in _ordered(chain, names)])


@checked
def from_mujoco_acceleration(
    chain: Chain, qpos: Position, qvel: Velocity, qacc: Acceleration, names: Names = None
) -> Acceleration:
    """Convert MuJoCo's qacc to an acceleration dv/dt in the state (qpos, qvel): the inverse of `to_mujoco_acceleration`."""
    joints = _ordered(chain, names)
    q, v = from_mujoco_state(chain, qpos, qvel, names)
    parts = [_to_body(j, q, x) - _turning(j, v) for j, x in zip(joints, _parts(joints, qacc), strict=True)]
    return _put(joints, parts)


@checked
def to_mujoco_force(chain: Chain, q: Position, tau: Force, names: Names = None) -> Force:
    """Convert a generalised force tau to MuJoCo's qfrc. For a free joint, the wrench (n, f) becomes (R f, n)."""
    return jnp.concatenate([_to_world(j, q, tau[j.columns]) for j in _ordered(chain, names)])


@checked
def from_mujoco_force(chain: Chain, qpos: Position, qfrc: Force, names: Names = None) -> Force:
    """Convert MuJoCo's qfrc at the position qpos to a generalised force tau: the inverse of `to_mujoco_force`."""
    joints = _ordered(chain, names)
    q = _put(joints, _parts(joints, qpos, True))
    return _put(joints, [_to_body(j, q, x) for j, x in zip(joints, _parts(joints, qfrc), strict=True)])


@checked
def to_pinocchio_state(
    chain: Chain, q: Position, v: Velocity, names: Names = None, continuous: Sequence[str] = ()
) -> tuple[Float[Array, " pinocchio_nq"], Velocity]:
    """Convert a state (q, v) to Pinocchio's layout.

    Args:
        names: joint names in Pinocchio's order (`model.names[1:]`).
        continuous: names of the joints that have the type "continuous" in a URDF, which Pinocchio represents by (cos q,
            sin q).
    """
    joints = _ordered(chain, names, compound=True)
    circles = _circles(joints, continuous)
    positions = [_to_pinocchio(j, q[j.entries], j.name in circles) for j in joints]
    return jnp.concatenate(positions), jnp.concatenate([_of_body(j, v[j.columns], q, -1) for j in joints])


@checked
def from_pinocchio_state(
    chain: Chain, q: Float[Array, " pinocchio_nq"], v: Velocity, names: Names = None, continuous: Sequence[str] = ()
) -> tuple[Position, Velocity]:
    """Convert a state from Pinocchio's layout, with continuous joints in [-pi, pi]: the inverse of `to_pinocchio_state`."""
    joints = _ordered(chain, names, compound=True)
    circles = _circles(joints, continuous)
    sizes = [len(j.positions) + (j.name in circles or isinstance(j, Planar)) for j in joints]
    if q.shape != (sum(sizes),):
        raise ModelError(f"q has shape {q.shape}, but in Pinocchio's layout this robot has {sum(sizes)} positions")
    parts = jnp.split(q, np.cumsum(sizes)[:-1])
    q = _put(joints, [_from_pinocchio(j, x, j.name in circles) for j, x in zip(joints, parts, strict=True)])
    return q, _put(joints, [_of_body(j, x, q, 1) for j, x in zip(joints, _parts(joints, v), strict=True)])


@checked
def to_pinocchio_vector(chain: Chain, x: Float[Array, " nv"], names: Names = None) -> Float[Array, " nv"]:
    """Convert a velocity, an acceleration or a generalised force to Pinocchio's layout; units are unchanged.

    Raises:
        ModelError: the names are wrong, or the robot has a planar joint, whose conversion depends on its position.
    """
    return jnp.concatenate([_of_body(j, x[j.columns]) for j in _ordered(chain, names, compound=True)])


@checked
def from_pinocchio_vector(chain: Chain, x: Float[Array, " nv"], names: Names = None) -> Float[Array, " nv"]:
    """Convert a velocity, an acceleration or a force from Pinocchio's layout: the inverse of `to_pinocchio_vector`."""
    joints = _ordered(chain, names, compound=True)
    return _put(joints, [_of_body(j, part) for j, part in zip(joints, _parts(joints, x), strict=True)])


def _ordered(chain: Chain, names: Names, compound: bool = False) -> list[Joint]:
    """The joints in the other program's order. Joints that are several joints there are split, if `compound` is False."""
    named = () if names is None else tuple(names)
    parts = chain.joint_names
    joints: list[Joint] = []
    for j in layout(chain).joints:
        split = j.size > 1 and not j.curved and (not compound or parts[j.column] in named)
        each = [Joint(parts[j.column + k], j.link, j.column + k, j.start + k) for k in range(j.size)]
        joints += each if split else [j]
    if names is None:
        return joints
    known = {joint.name: joint for joint in joints}
    if len(named) != len(joints) or set(named) != set(known):
        odd = sorted(set(named) ^ set(known)) or sorted({x for x in named if named.count(x) > 1})
        fault = f"names must contain every joint once: {', '.join(map(repr, odd))} are missing, unknown or repeated"
        raise ModelError(fault, f"the joints are {', '.join(known)}")
    return [known[name] for name in named]


def _circles(joints: list[Joint], continuous: Sequence[str]) -> frozenset[str]:
    known = {joint.name for joint in joints if joint.size == 1}
    if wrong := sorted(set(continuous) - known):
        fault = f"continuous contains {wrong[0]!r}, which is not a joint with one degree of freedom"
        raise ModelError(fault, f"choose among {', '.join(known)}")
    return frozenset(continuous)


def _parts(joints: list[Joint], x: Array, positions: bool = False) -> list[Array]:
    """Split a vector into one part per joint, in the order of `joints`."""
    ends = np.cumsum([len(j.positions) if positions else j.size for j in joints])
    if x.shape != (ends[-1],):
        kind = "positions" if positions else "velocities"
        raise ModelError(f"the vector has shape {x.shape}, but this robot has {ends[-1]} {kind}")
    return jnp.split(x, ends[:-1])


def _put(joints: list[Joint], parts: list[Array]) -> Array:
    """Concatenate the parts of `joints` in the chain's order."""
    order = sorted(range(len(joints)), key=lambda i: joints[i].start)
    return jnp.concatenate([parts[i] for i in order])


def _to_world(joint: Joint, q: Array, x: Array) -> Array:
    if isinstance(joint, Free):
        x = jnp.concatenate([quaternion_to_rotation(q[joint.quaternion]) @ x[3:], x[:3]])
    return x


def _to_body(joint: Joint, q: Array, x: Array) -> Array:
    if isinstance(joint, Free):
        x = jnp.concatenate([x[3:], quaternion_to_rotation(q[joint.quaternion]).T @ x[:3]])
    return x


@checked
def free_turning(chain: Chain, v: Velocity) -> Acceleration:
    """Acceleration of the origins of free bodies minus dv/dt, (0, w x v) in body axes [m/s^2]; zero for other joints."""
    turning = jnp.zeros_like(v)
    for joint in layout(chain).curved:
        if isinstance(joint, Free):
            turning = turning.at[joint.columns].set(_turning(joint, v))
    return turning


def _turning(joint: Joint, v: Array) -> Array:
    """Acceleration of a free body's origin minus dv/dt, in body axes: (0, w x v); zero for other joints."""
    x = v[joint.columns]
    if not isinstance(joint, Free):
        return jnp.zeros_like(x)
    return jnp.concatenate([jnp.zeros(3, x.dtype), jnp.cross(x[:3], x[3:])])


def _to_pinocchio(joint: Joint, x: Array, circle: bool) -> Array:
    if joint.curved:
        return jnp.concatenate([x[:-4], x[-3:], x[-4:-3]])
    if circle or isinstance(joint, Planar):
        return jnp.concatenate([x[:-1], jnp.cos(x[-1:]), jnp.sin(x[-1:])])
    return x


def _from_pinocchio(joint: Joint, x: Array, circle: bool) -> Array:
    if joint.curved:
        return jnp.concatenate([x[:-4], x[-1:], x[-4:-1]])
    if circle or isinstance(joint, Planar):
        return jnp.concatenate([x[:-2], jnp.arctan2(x[-1:], x[-2:-1])])
    return x


def _of_body(joint: Joint, x: Array, q: Array | None = None, sign: int = 1) -> Array:
    """Swap the parts of a free joint; turn (x, y) of a planar joint at q by its angle, or back; leave others unchanged."""
    if isinstance(joint, Planar):
        if q is None:
            fault = f"Pinocchio describes the planar joint {joint.name!r} in the axes of the body, which depend on the position"
            remedy = "use to_pinocchio_state and from_pinocchio_state, or pass `names` with the joint's parts"
            raise ModelError(fault, remedy)
        sin, cos = sign * jnp.sin(q[joint.entries][2]), jnp.cos(q[joint.entries][2])
        return jnp.stack([cos * x[0] - sin * x[1], sin * x[0] + cos * x[1], x[2]])
    return jnp.concatenate([x[3:], x[:3]]) if isinstance(joint, Free) else x
