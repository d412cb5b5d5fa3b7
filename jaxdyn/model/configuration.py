"""Support for batches on device meshes with explicit axes (`jax.sharding.AxisType.Explicit`).

Configurations: how positions q and velocities v relate to the joints.

The entries of q and v are in the order of the joints:

- ordinary joint: one position, one velocity;
- spherical joint: a unit quaternion (w, x, y, z), and the angular velocity in the body frame;
- free joint: a point and a unit quaternion (px, py, pz, w, x, y, z), and the angular and linear velocity in the body frame.

A small motion dq has the shape of v.

`place` converts a robot with quaternion joints to one with only ordinary joints, as the algorithms require. The pose of a
quaternion joint becomes part of the placement of its first link, and the positions of its three or six ordinary joints are
zero. If a single free joint carries all links, its pose becomes part of `base_pose` instead, so that a batch of states
shares all link constants."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec, auto_axes
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import ModelError
from ..spatial.se3 import pose, pose_exp, pose_inverse, pose_log, twist_cross
from ..spatial.so3 import (
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
    quaternion_to_rotation,
    skew,
)
from .chain import Chain, Topology
from .compiled import QuaternionJoint, check_quaternions, compiled, is_ordinary, layout
from .tree import ancestor_mask

F = TypeVar("F", bound=Callable[..., Any])


def any_axis_types(function: F) -> F:
    """Wrap a function of one state so that JAX chooses its sharding automatically on a mesh with explicit axes.

    Explicit sharding supports neither scatters nor the concatenation or stacking of literals with rows of a batch.
    """

    names = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or AxisType.Explicit not in mesh.axis_types:
            return function(*arguments, **named)
        given = names.bind(*arguments, **named)  # auto_axes accepts only positional arguments
        return auto_axes(function, out_sharding=PartitionSpec())(*given.args)

    return wrapped  # type: ignore[return-value]


# -- configuration


def place(chain: Chain, q: Float[Array, " nq"]) -> tuple[Chain, Float[Array, " n"]]:
    """Convert a robot and its configuration to a chain of ordinary joints and their positions.

    Raises:
        ModelError: q does not have `nq` entries, or (outside `jax.jit`) contains a quaternion of length zero.
    """
    if is_ordinary(chain):
        return chain, q
    if q.shape != (chain.nq,):
        raise ModelError(f"q has shape {q.shape}, but this robot has {chain.nq} positions (and {chain.nv} velocities)")
    check_quaternions(chain, q)
    leaves, positions = _placed(chain, q)
    return dataclasses.replace(chain, **leaves, topology=_ordinary_topology(chain.topology), coupling=None), positions


@any_axis_types
def _placed(chain: Chain, q: Array) -> tuple[dict[str, Array], Float[Array, " n"]]:
    """The leaves that depend on the poses of quaternion joints, and the positions of all ordinary joints."""
    where = layout(chain)
    joints = where.quaternions
    if len(joints) == 1 and _carries_all(chain.topology, joints[0]):
        t = _pose_of(joints[0], q)
        leaves = {"base_pose": t if chain.base_pose is None else chain.base_pose @ t}
    else:
        rotation, translation = chain.rotation, chain.translation
        for joint in joints:
            t, placed = _pose_of(joint, q), chain.rotation[joint.link]
            rotation = rotation.at[joint.link].set(placed @ t[:3, :3])
            translation = translation.at[joint.link].add(placed @ t[:3, 3])
        leaves = {"rotation": rotation, "translation": translation}
    positions = jnp.zeros(chain.nv, q.dtype).at[where.columns].set(q[where.entries], unique_indices=True)
    if chain.coupling is not None:
        positions = chain.coupling.matrix @ positions + chain.coupling.offset
    return leaves, positions


def _pose_of(joint: QuaternionJoint, q: Array) -> Float[Array, "4 4"]:
    rotation = quaternion_to_rotation(q[joint.quaternion])
    point = q[joint.start : joint.start + 3] if joint.size == 6 else jnp.zeros(3, q.dtype)
    return pose(rotation, point)


@functools.lru_cache(maxsize=256)
def _ordinary_topology(topology: Topology) -> Topology:
    return dataclasses.replace(topology, quaternion_joints=(), coordinate_names=None)


@functools.lru_cache(maxsize=256)
def _carries_all(topology: Topology, joint: QuaternionJoint) -> bool:
    """True for a free joint that is attached to the base without a placement (`check_coordinates`) and carries all links."""
    return joint.size == 6 and bool(ancestor_mask(topology.parents)[joint.link].all())


def check_coordinates(chain: Chain) -> None:
    """Check quaternion joints and the coupling.

    Raises:
        ModelError: a quaternion joint or the coupling is invalid; the message names the joint and the fault.
    """
    topology, n = chain.topology, chain.n
    unit, screw = np.eye(6), np.asarray(chain.screw)
    rotation, translation = np.asarray(chain.rotation), np.asarray(chain.translation)
    for link, size in topology.quaternion_joints:
        if size not in (3, 6) or not 0 <= link <= n - size:
            raise ModelError(f"quaternion joint ({link}, {size}): pass first link and size, 3 (spherical) or 6 (free)")
        name, rest = topology.joint_names[link], slice(link + 1, link + size)
        for what, x, wanted in (
            ("screws", screw[link : link + size], unit[:size]),
            ("placements", rotation[rest], np.eye(3)),
            ("offsets", translation[rest], 0.0),
        ):
            if np.abs(x - wanted).max() > 1e-12:
                raise ModelError(
                    f"the {size} joints starting with {name!r} do not form a quaternion joint: wrong {what}"
                )
        if topology.parents[link + 1 : link + size] != tuple(range(link, link + size - 1)):
            raise ModelError(
                f"the {size} joints starting with {name!r} do not form a quaternion joint: they are not a serial chain"
            )
        moved = np.abs(rotation[link] - np.eye(3)).max() > 0 or bool(translation[link].any())
        if size == 6 and (topology.parents[link] >= 0 or moved):
            raise ModelError(
                f"the free joint {name!r} must be attached to the base, at its origin; its position defines the placement"
            )
    names = topology.coordinate_names
    if chain.coupling is None:
        if names is not None:
            raise ModelError(
                "coordinate names require a coupling; without a coupling, coordinates have the joint names"
            )
        return
    matrix = np.asarray(chain.coupling.matrix)
    if matrix.ndim != 2 or matrix.shape[0] != n or chain.coupling.offset.shape != (n,):
        raise ModelError(f"a coupling requires a matrix ({n}, coordinates) and an offset ({n},), not {matrix.shape}")
    if names is not None and len(names) != matrix.shape[1]:
        raise ModelError(f"{len(names)} coordinate names are given for {matrix.shape[1]} coordinates")
    for link, size in topology.quaternion_joints:
        own = np.zeros((n, size))
        own[link : link + size] = np.eye(size)
        if matrix.shape[1] < link + size or (matrix[:, link : link + size] != own).any():
            raise ModelError(f"the coupling must not change the quaternion joint {topology.joint_names[link]!r}")
        if (matrix[link : link + size].sum(1) != 1).any():
            raise ModelError(f"the coupling must not move the quaternion joint {topology.joint_names[link]!r}")


def neutral_configuration(chain: Chain) -> Float[Array, " nq"]:
    """Configuration with ordinary joints at 0, quaternions (1, 0, 0, 0), and free joints at the origin [rad or m]."""
    q = np.zeros(chain.nq)
    for joint in layout(chain).quaternions:
        q[joint.quaternion.start] = 1.0
    return jnp.asarray(q, chain.dtype)


@compiled
def random_configuration(chain: Chain, key: PRNGKeyArray, size: float = 1.0) -> Float[Array, " nq"]:
    """Random configuration with uniformly distributed joint positions [rad or m] and orientations.

    Ordinary joints are within their limits, or within +-pi if a limit is infinite; coupled coordinates are within +-1.

    Args:
        key: key of `jax.random`.
        size: half the edge length of the cube, centred at the origin, in which free joints are placed [m].
    """
    where = layout(chain)
    angles, quaternions, points = jax.random.split(key, 3)
    limits = chain.limits.position
    finite = jnp.isfinite(limits).all(1)
    low, high = jnp.where(finite, limits[:, 0], -jnp.pi), jnp.where(finite, limits[:, 1], jnp.pi)
    if chain.coupling is not None:  # limits apply to joints, not to coordinates
        low, high = jnp.full(chain.nv, -1.0, chain.dtype), jnp.full(chain.nv, 1.0, chain.dtype)
    values = jax.random.uniform(angles, (chain.nv,), chain.dtype) * (high - low) + low
    q = jnp.zeros(chain.nq, chain.dtype).at[where.entries].set(values[where.columns])
    for k, joint in enumerate(where.quaternions):
        x = jax.random.normal(jax.random.fold_in(quaternions, k), (4,), chain.dtype)
        q = q.at[joint.quaternion].set(x / jnp.linalg.norm(x))
        if joint.size == 6:
            point = jax.random.uniform(jax.random.fold_in(points, k), (3,), chain.dtype, -size, size)
            q = q.at[joint.start : joint.start + 3].set(point)
    return q


@compiled
@any_axis_types
def normalise_configuration(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """The configuration q with quaternions normalised to unit length; other entries are unchanged.

    Raises:
        RuntimeError: a quaternion has length zero (`equinox.error_if`, also under `jax.jit`).
    """
    for joint in layout(chain).quaternions:
        x = q[joint.quaternion]
        length = jnp.sqrt(x @ x)
        length = eqx.error_if(length, length < 1e-6, f"the quaternion of {chain.joint_names[joint.link]!r} is zero")
        q = q.at[joint.quaternion].set(x / length)
    return q


@compiled
@any_axis_types
def integrate(chain: Chain, q: Float[Array, " nq"], dq: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """The configuration reached from q by the motion dq: q + dq for ordinary joints.

    The motion dq is a constant velocity held for unit time. Quaternion joints move by the exponential of their body twist:
    R' = R exp([w]), p' = p + R V(w) v, with the left Jacobian V(w) of exp (Lynch & Park 2017, sec. 3.3.3). Quaternions keep
    unit length to within rounding. Units of q and dq: [rad or m].
    """
    where = layout(chain)
    if not where.quaternions:
        return q + dq
    new = q.at[where.entries].add(dq[where.columns], unique_indices=True)
    for joint in where.quaternions:
        step, x = dq[joint.columns], q[joint.quaternion]
        turned = quaternion_multiply(x, quaternion_exp(step[:3]))
        new = new.at[joint.quaternion].set(turned)
        if joint.size == 6:
            moved = quaternion_to_rotation(x) @ pose_exp(step)[:3, 3]
            new = new.at[joint.start : joint.start + 3].add(moved)
    return new


@any_axis_types
def motion_rate(chain: Chain, u: Float[Array, " nv"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Rate du/dt of the displacement u from a fixed configuration to one that moves with velocity v.

    du/dt = v + [u, v] / 2 + [u, [u, v]] / 12 + O(u^4), where [., .] is the Lie bracket.
    """
    for joint in layout(chain).quaternions:
        # a spherical joint has only the angular part of the bracket
        bracket = twist_cross(u[joint.columns]) if joint.size == 6 else skew(u[joint.columns])
        once = bracket @ v[joint.columns]
        v = v.at[joint.columns].add(once / 2 + bracket @ once / 12)
    return v


@compiled
@any_axis_types
def difference(chain: Chain, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """The motion dq with integrate(chain, q0, dq) = q1 [rad or m].

    For ordinary joints, dq is q1 - q0. For quaternion joints, dq is the logarithm of the relative pose, in the body frame
    at q0.
    """
    where = layout(chain)
    if not where.quaternions:
        return q1 - q0
    dq = jnp.zeros(chain.nv, jnp.result_type(q0, q1))
    dq = dq.at[where.columns].set((q1 - q0)[where.entries], unique_indices=True)
    for joint in where.quaternions:
        if joint.size == 6:
            step = pose_log(pose_inverse(_pose_of(joint, q0)) @ _pose_of(joint, q1))
        else:
            back = q0[joint.quaternion] * jnp.asarray([1, -1, -1, -1], q0.dtype)
            step = quaternion_log(quaternion_multiply(back, q1[joint.quaternion]))
        dq = dq.at[joint.columns].set(step)
    return dq
