"""Configurations: how positions q and velocities v relate to the joints.

The entries of q and v are in the order of the joints, and a small motion dq has the shape of v:

- ordinary joint: one position, one velocity;
- spherical joint: a unit quaternion (w, x, y, z), and the angular velocity in the body frame;
- free joint: a point and a unit quaternion (px, py, pz, w, x, y, z), and the angular and linear velocity in the body
  frame.

The algorithms use local coordinates about the current pose of such a joint, which `place` includes in the placement of
its first link (or in `base_pose`, if the joint carries all links, so that a batch of states shares all link constants).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import ModelError
from .chain import Chain, Topology, ancestor_mask, is_ordinary, layout
from .compiled import any_axis_types, check_quaternions, compiled
from .joints import Joint


def place(chain: Chain, q: Float[Array, " nq"]) -> tuple[Chain, Float[Array, " n"]]:
    """Convert a robot and its configuration to a chain of ordinary joints and their positions; check q."""
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
    joints = where.curved
    if len(joints) == 1 and _carries_all(chain.topology, joints[0]):
        t = joints[0].pose(q[joints[0].entries])
        leaves = {"base_pose": t if chain.base_pose is None else chain.base_pose @ t}
    else:
        rotation, translation = chain.rotation, chain.translation
        for joint in joints:
            t, placed = joint.pose(q[joint.entries]), chain.rotation[joint.link]
            rotation = rotation.at[joint.link].set(placed @ t[:3, :3])
            translation = translation.at[joint.link].add(placed @ t[:3, 3])
        leaves = {"rotation": rotation, "translation": translation}
    positions = jnp.zeros(chain.nv, q.dtype).at[where.columns].set(q[where.entries], unique_indices=True)
    if chain.coupling is not None:
        positions = chain.coupling.matrix @ positions + chain.coupling.offset
    return leaves, positions


@functools.lru_cache(maxsize=256)
def _ordinary_topology(topology: Topology) -> Topology:
    return dataclasses.replace(topology, compound_joints=(), coordinate_names=None)


@functools.lru_cache(maxsize=256)
def _carries_all(topology: Topology, joint: Joint) -> bool:
    """True for a joint that is attached to the base without a placement (`check_coordinates`) and carries all links."""
    return joint.at_base and bool(ancestor_mask(topology.parents)[joint.link].all())


def neutral_configuration(chain: Chain) -> Float[Array, " nq"]:
    """Configuration with ordinary joints at 0, quaternions (1, 0, 0, 0), and free joints at the origin [rad or m]."""
    return jnp.asarray(np.concatenate([joint.neutral() for joint in chain.joints]), chain.dtype)


@compiled
def random_configuration(chain: Chain, key: PRNGKeyArray, size: float | Float[Array, ""] = 1.0) -> Float[Array, " nq"]:
    """Random configuration with uniformly distributed joint positions [rad or m] and orientations.

    Ordinary joints are within their limits, or within +-pi if a limit is infinite; coupled coordinates are within +-1.
    The origins of free joints are in the cube with edge length 2 `size` [m], centred at the origin.
    """
    where = layout(chain)
    angles, turns, points = jax.random.split(key, 3)
    limits = chain.limits.position
    finite = jnp.isfinite(limits).all(1)
    low, high = jnp.where(finite, limits[:, 0], -jnp.pi), jnp.where(finite, limits[:, 1], jnp.pi)
    if chain.coupling is not None:  # limits apply to joints, not to coordinates
        low, high = jnp.full(chain.nv, -1.0, chain.dtype), jnp.full(chain.nv, 1.0, chain.dtype)
    values = jax.random.uniform(angles, (chain.nv,), chain.dtype) * (high - low) + low
    q = jnp.zeros(chain.nq, chain.dtype).at[where.entries].set(values[where.columns])
    for k, joint in enumerate(where.curved):
        keys = jax.random.fold_in(turns, k), jax.random.fold_in(points, k)
        q = q.at[joint.entries].set(joint.random(*keys, size, chain.dtype))
    return q


@compiled
@any_axis_types
def normalise_configuration(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """The configuration q with quaternions normalised to unit length; other entries are unchanged.

    Raises:
        RuntimeError: a quaternion has length zero (`equinox.error_if`, also under `jax.jit`).
    """
    for joint in layout(chain).curved:
        q = q.at[joint.entries].set(joint.normalised(q[joint.entries]))
    return q


@compiled
@any_axis_types
def integrate(chain: Chain, q: Float[Array, " nq"], dq: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """The configuration reached from q by the motion dq, a constant velocity held for unit time: q + dq for ordinary joints.

    Quaternion joints move by the exponential of their body twist: R' = R exp([w]), p' = p + R V(w) v, with the left
    Jacobian V(w) of exp (Lynch & Park 2017, sec. 3.3.3).
    """
    where = layout(chain)
    if not where.curved:
        return q + dq
    new = q.at[where.entries].add(dq[where.columns], unique_indices=True)
    for joint in where.curved:
        new = new.at[joint.entries].set(joint.integrate(q[joint.entries], dq[joint.columns]))
    return new


@any_axis_types
def motion_rate(chain: Chain, u: Float[Array, " nv"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Rate du/dt = v + [u, v] / 2 + [u, [u, v]] / 12 + O(u^4) of the displacement u from a fixed configuration."""
    for joint in layout(chain).curved:
        bracket = joint.bracket(u[joint.columns])
        once = bracket @ v[joint.columns]
        v = v.at[joint.columns].add(once / 2 + bracket @ once / 12)
    return v


@compiled
@any_axis_types
def difference(chain: Chain, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """The motion dq with integrate(chain, q0, dq) = q1 [rad or m]: q1 - q0 for ordinary joints.

    For quaternion joints, dq is the logarithm of the relative pose, in the body frame at q0.
    """
    where = layout(chain)
    if not where.curved:
        return q1 - q0
    dq = jnp.zeros(chain.nv, jnp.result_type(q0, q1))
    dq = dq.at[where.columns].set((q1 - q0)[where.entries], unique_indices=True)
    for joint in where.curved:
        dq = dq.at[joint.columns].set(joint.difference(q0[joint.entries], q1[joint.entries]))
    return dq


def positions_at(
    chain: Chain, t: Float[np.ndarray, " N"], q: Float[np.ndarray, "N nq"], times: Float[np.ndarray, " M"]
) -> Float[np.ndarray, "M nq"]:
    """Positions of a sampled motion at other times [s], interpolated linearly, or along screws for quaternion joints."""
    times = np.clip(times, t[0], t[-1])
    k = np.clip(np.searchsorted(t, times, side="right") - 1, 0, len(t) - 2)
    share = (times - t[k]) / (t[k + 1] - t[k])
    if chain.nq == chain.nv:
        return q[k] + share[:, None] * (q[k + 1] - q[k])
    return np.asarray(_between(chain, *(jnp.asarray(x, chain.dtype) for x in (q[k], q[k + 1], share))), float)


def joint_positions(chain: Chain, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, "N n"]:
    """Positions of all joints [rad or m], also of coupled ones, in NumPy; zeros for quaternion joints."""
    where = layout(chain)
    x = np.zeros((len(q), chain.nv))
    x[:, where.columns] = q[:, where.entries]
    if chain.coupling is None:
        return x
    return x @ np.asarray(chain.coupling.matrix, float).T + np.asarray(chain.coupling.offset, float)


@jax.jit
def _between(chain: Chain, q0: Array, q1: Array, share: Array) -> Array:
    return jax.vmap(lambda a, b, s: integrate(chain, a, s * difference(chain, a, b)))(q0, q1, share)


def differences(
    chain: Chain, q0: Float[np.ndarray, "N nq"], q1: Float[np.ndarray, "N nq"]
) -> Float[np.ndarray, "N nv"]:
    """The `difference` of every pair of rows, in NumPy."""
    if chain.nq == chain.nv:
        return q1 - q0
    return np.asarray(_differences(chain, *(jnp.asarray(x, chain.dtype) for x in (q0, q1))), float)


@jax.jit
def _differences(chain: Chain, q0: Array, q1: Array) -> Array:
    return jax.vmap(lambda a, b: difference(chain, a, b))(q0, q1)
