"""States, accelerations and forces in the layouts of MuJoCo and Pinocchio.

The layouts of jaxdyn, MuJoCo and Pinocchio differ in the order of quaternion components and in the velocity of a free joint
(see the table in docs/conventions.md):

    jaxdyn     quaternion (w, x, y, z); free joint (w, v): angular and linear velocity in body axes
    MuJoCo     quaternion (w, x, y, z); free joint (R v, w): linear velocity in world axes, angular velocity in body axes
    Pinocchio  quaternion (x, y, z, w); free joint (v, w): linear and angular velocity in body axes

R is the rotation of the body in the world. In MuJoCo, the linear acceleration of a free joint is d(R v)/dt = R (dv/dt + w x v).
Forces are conjugate to the velocities, so the power is the same in all layouts. Joints with one degree of freedom have the
same values in all layouts, except that Pinocchio represents the position of a continuous joint by (cos q, sin q).

If the other program orders the joints differently, pass its joint names as `names`. A free or spherical joint has the name
used in the model file: J if the chain's joints are J_wx, J_wy, ...
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..spatial.so3 import quaternion_to_rotation
from .chain import Chain
from .compiled import checked, layout

Names = Sequence[str] | None
_LINEAR_FIRST = np.array([3, 4, 5, 0, 1, 2])


class _Joint(NamedTuple):
    """Name of a joint, its first indices in q and v, and its number of velocities: 1, 3 (spherical) or 6 (free)."""

    name: str
    start: int
    column: int
    size: int

    def of_q(self, q: Array) -> Array:
        return q[self.start : self.start + self.size + (self.size > 1)]

    def of_v(self, v: Array) -> Array:
        return v[self.column : self.column + self.size]

    def rotation(self, q: Array) -> Array:
        """Rotation R of a free body in the world."""
        return quaternion_to_rotation(q[self.start + 3 : self.start + 7])


@checked
def to_mujoco_state(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], names: Names = None
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Convert a state (q, v) to MuJoCo's (qpos, qvel) [rad or m, rad/s or m/s].

    Args:
        names: joint names in MuJoCo's order; by default, those of the chain in its own order.

    Raises:
        ModelError: the names are not those of the chain's joints, or a shape is wrong.
    """
    joints = _ordered(chain, names)
    qpos = jnp.concatenate([j.of_q(q) for j in joints])
    return qpos, jnp.concatenate([_to_world(j, q, j.of_v(v)) for j in joints])


@checked
def from_mujoco_state(
    chain: Chain, qpos: Float[Array, " nq"], qvel: Float[Array, " nv"], names: Names = None
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Convert MuJoCo's (qpos, qvel) to a state (q, v) [rad or m, rad/s or m/s]: the inverse of `to_mujoco_state`.

    For `names` and the errors raised, see `to_mujoco_state`.
    """
    joints = _ordered(chain, names)
    q = _put(chain, joints, _parts(joints, qpos, True))
    return q, _put(chain, joints, [_to_body(j, q, x) for j, x in zip(joints, _parts(joints, qvel), strict=True)])


@checked
def to_mujoco_acceleration(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"], names: Names = None
) -> Float[Array, " nv"]:
    """Convert an acceleration a = dv/dt to MuJoCo's qacc [rad/s^2 or m/s^2].

    For a free joint, the linear part a_v becomes R (a_v + w x v), with the rotation R of the body and its twist (w, v).
    For `names` and the errors raised, see `to_mujoco_state`.
    """
    return jnp.concatenate([_to_world(j, q, j.of_v(a) + _turning(j, v)) for j in _ordered(chain, names)])


@checked
def from_mujoco_acceleration(
    chain: Chain, qpos: Float[Array, " nq"], qvel: Float[Array, " nv"], qacc: Float[Array, " nv"], names: Names = None
) -> Float[Array, " nv"]:
    """Convert MuJoCo's qacc to an acceleration dv/dt [rad/s^2 or m/s^2]: the inverse of `to_mujoco_acceleration`.

    The state (qpos, qvel) is also in MuJoCo's layout. For `names` and the errors raised, see `to_mujoco_state`.
    """
    joints = _ordered(chain, names)
    q, v = from_mujoco_state(chain, qpos, qvel, names)
    parts = [_to_body(j, q, x) - _turning(j, v) for j, x in zip(joints, _parts(joints, qacc), strict=True)]
    return _put(chain, joints, parts)


@checked
def to_mujoco_force(
    chain: Chain, q: Float[Array, " nq"], tau: Float[Array, " nv"], names: Names = None
) -> Float[Array, " nv"]:
    """Convert a generalised force tau to MuJoCo's qfrc, which has the same power [N m or N].

    For a free joint, the wrench (n, f) becomes (R f, n), with the rotation R of the body. For `names` and the errors raised,
    see `to_mujoco_state`.
    """
    return jnp.concatenate([_to_world(j, q, j.of_v(tau)) for j in _ordered(chain, names)])


@checked
def from_mujoco_force(
    chain: Chain, qpos: Float[Array, " nq"], qfrc: Float[Array, " nv"], names: Names = None
) -> Float[Array, " nv"]:
    """Convert MuJoCo's qfrc to a generalised force tau [N m or N]: the inverse of `to_mujoco_force`.

    The position qpos is also in MuJoCo's layout. For `names` and the errors raised, see `to_mujoco_state`.
    """
    joints = _ordered(chain, names)
    q = _put(chain, joints, _parts(joints, qpos, True))
    return _put(chain, joints, [_to_body(j, q, x) for j, x in zip(joints, _parts(joints, qfrc), strict=True)])


@checked
def to_pinocchio_state(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    names: Names = None,
    continuous: Sequence[str] = (),
) -> tuple[Float[Array, " pinocchio_nq"], Float[Array, " nv"]]:
    """Convert a state (q, v) to Pinocchio's layout [rad or m, rad/s or m/s].

    Args:
        names: joint names in Pinocchio's order (`model.names[1:]`); by default, those of the chain in its own order.
        continuous: names of the joints that Pinocchio represents by (cos q, sin q), which have the type "continuous" in a
            URDF.

    Raises:
        ModelError: the names are not those of the chain's joints, `continuous` contains another name, or a shape is wrong.
    """
    joints = _ordered(chain, names)
    circles = _circles(joints, continuous)
    parts = []
    for j in joints:
        part = j.of_q(q)
        if j.name in circles:
            part = jnp.concatenate([jnp.cos(part), jnp.sin(part)])
        elif j.size > 1:
            part = jnp.concatenate([part[:-4], part[-3:], part[-4:-3]])
        parts.append(part)
    return jnp.concatenate(parts), to_pinocchio_vector(chain, v, names)


@checked
def from_pinocchio_state(
    chain: Chain,
    q: Float[Array, " pinocchio_nq"],
    v: Float[Array, " nv"],
    names: Names = None,
    continuous: Sequence[str] = (),
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Convert a state (q, v) from Pinocchio's layout [rad or m, rad/s or m/s]: the inverse of `to_pinocchio_state`.

    Angles of continuous joints are returned between -pi and pi. For `names`, `continuous` and the errors raised, see
    `to_pinocchio_state`.
    """
    joints = _ordered(chain, names)
    circles = _circles(joints, continuous)
    start, parts = 0, []
    for j in joints:
        size = 2 if j.name in circles else j.size + (j.size > 1)
        part = q[start : start + size]
        if j.name in circles:
            part = jnp.arctan2(part[1:], part[:1])
        elif j.size > 1:
            part = jnp.concatenate([part[:-4], part[-1:], part[-4:-1]])
        parts.append(part)
        start += size
    if q.shape != (start,):
        raise ModelError(f"q has shape {q.shape}, but in Pinocchio's layout this robot has {start} positions")
    return _put(chain, joints, parts), from_pinocchio_vector(chain, v, names)


@checked
def to_pinocchio_vector(chain: Chain, x: Float[Array, " nv"], names: Names = None) -> Float[Array, " nv"]:
    """Convert a velocity, an acceleration or a generalised force to Pinocchio's layout.

    The conversion is the same for all three, and units are unchanged. For `names` and the errors raised, see
    `to_pinocchio_state`.
    """
    return jnp.concatenate([_swapped(j, j.of_v(x)) for j in _ordered(chain, names)])


@checked
def from_pinocchio_vector(chain: Chain, x: Float[Array, " nv"], names: Names = None) -> Float[Array, " nv"]:
    """Convert a velocity, an acceleration or a generalised force from Pinocchio's layout.

    This is the inverse of `to_pinocchio_vector`. For `names` and the errors raised, see `to_pinocchio_state`.
    """
    joints = _ordered(chain, names)
    return _put(chain, joints, [_swapped(j, part) for j, part in zip(joints, _parts(joints, x), strict=True)])


def _joints(chain: Chain) -> list[_Joint]:
    """The chain's joints, or its coordinates if joints are coupled, in the order of q."""
    where, topology = layout(chain), chain.topology
    names = topology.coordinate_names
    if names is None or chain.coupling is None:
        names = topology.joint_names if chain.coupling is None else tuple(f"q{i + 1}" for i in range(chain.nv))
    joints = [_Joint(names[c], int(e), int(c), 1) for c, e in zip(where.columns, where.entries, strict=True)]
    joints += [_Joint(names[j.column].removesuffix("_wx"), j.start, j.column, j.size) for j in where.quaternions]
    return sorted(joints, key=lambda joint: joint.start)


def _ordered(chain: Chain, names: Names) -> list[_Joint]:
    joints = _joints(chain)
    if names is None:
        return joints
    known, given = {joint.name: joint for joint in joints}, tuple(names)
    if len(given) != len(joints) or set(given) != set(known):
        odd = sorted(set(given) ^ set(known)) or sorted({x for x in given if given.count(x) > 1})
        raise ModelError(
            f"names must contain every joint of this robot once: {', '.join(map(repr, odd))} "
            f"{'is' if len(odd) == 1 else 'are'} missing, unknown or repeated; the joints are {', '.join(known)}"
        )
    return [known[name] for name in given]


def _circles(joints: list[_Joint], continuous: Sequence[str]) -> frozenset[str]:
    known = {joint.name for joint in joints if joint.size == 1}
    if wrong := sorted(set(continuous) - known):
        raise ModelError(
            f"continuous contains {wrong[0]!r}, which is not a joint with one degree of freedom; "
            f"choose among {', '.join(known)}"
        )
    return frozenset(continuous)


def _parts(joints: list[_Joint], x: Array, positions: bool = False) -> list[Array]:
    """Split a vector into one part per joint, in the order of `joints`."""
    ends = np.cumsum([0, *(j.size + (positions and j.size > 1) for j in joints)])
    if x.shape != (ends[-1],):
        kind = "positions" if positions else "velocities"
        raise ModelError(f"the vector has shape {x.shape}, but this robot has {ends[-1]} {kind}")
    return [x[a:b] for a, b in itertools.pairwise(ends)]


def _put(chain: Chain, joints: list[_Joint], parts: list[Array]) -> Array:
    """Concatenate the parts of `joints` in the chain's order."""
    order = sorted(range(len(joints)), key=lambda i: joints[i].start)
    return jnp.concatenate([parts[i] for i in order])


def _swapped(joint: _Joint, x: Array) -> Array:
    """Swap the angular and linear parts of a free joint; leave other joints unchanged."""
    return x[_LINEAR_FIRST] if joint.size == 6 else x


def _to_world(joint: _Joint, q: Array, x: Array) -> Array:
    return jnp.concatenate([joint.rotation(q) @ x[3:], x[:3]]) if joint.size == 6 else x


def _to_body(joint: _Joint, q: Array, x: Array) -> Array:
    return jnp.concatenate([x[3:], joint.rotation(q).T @ x[:3]]) if joint.size == 6 else x


def _turning(joint: _Joint, v: Array) -> Array:
    """Acceleration of a free body's origin minus dv/dt, in body axes: (0, w x v); zero for other joints."""
    x = joint.of_v(v)
    return jnp.concatenate([jnp.zeros_like(x[:3]), jnp.cross(x[:3], x[3:])]) if joint.size == 6 else jnp.zeros_like(x)
