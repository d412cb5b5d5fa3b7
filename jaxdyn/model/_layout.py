"""Layout of q and v: the entries that belong to each joint."""

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._jax_compat import Tracer
from ..errors import ModelError
from ._chain import Chain, Topology


class QuaternionJoint(NamedTuple):
    """A spherical or free joint: its first link, number of links (3 or 6), first index in v and first index in q."""

    link: int
    size: int
    column: int
    start: int

    @property
    def quaternion(self) -> slice:
        """Slice of q that contains the joint's quaternion."""
        start = self.start + self.size - 3
        return slice(start, start + 4)

    @property
    def columns(self) -> slice:
        """Slice of v that contains the joint's velocities."""
        return slice(self.column, self.column + self.size)


def turning_joints(chain: Chain) -> Bool[np.ndarray, " n"]:
    """Mask of revolute and helical joints, whose positions are angles [rad]."""
    return np.any(np.asarray(chain.screw)[:, :3] != 0, axis=1)


class Layout(NamedTuple):
    """The quaternion joints, and the indices of all other joints in v (`columns`) and q (`entries`)."""

    quaternions: tuple[QuaternionJoint, ...]
    columns: np.ndarray
    entries: np.ndarray


def layout(chain: Chain) -> Layout:
    """Layout of the chain's q and v."""
    return _layout(chain.topology, chain.nv)


@functools.lru_cache(maxsize=256)
def _layout(topology: Topology, nv: int) -> Layout:
    # even with a coupling, the column indices of a quaternion joint are those of its links
    joints, columns, entries, start, column = [], [], [], 0, 0
    first = dict(topology.quaternion_joints)
    while column < nv:
        if column in first:
            joints.append(QuaternionJoint(column, first[column], column, start))
            start += first[column] + 1
            column += first[column]
        else:
            columns.append(column)
            entries.append(start)
            start, column = start + 1, column + 1
    return Layout(tuple(joints), np.array(columns, int), np.array(entries, int))


def is_ordinary(chain: Chain) -> bool:
    """True if the chain has no quaternion joints and no coupling, so that q and v are the joint positions and rates."""
    return chain.coupling is None and not chain.topology.quaternion_joints


def with_bodies(topology: Topology) -> Bool[np.ndarray, " n"]:
    """Mask of links that are bodies: all except the massless links before the last link of a quaternion joint."""
    found = np.ones(len(topology.parents), bool)
    for link, size in topology.quaternion_joints:
        found[link : link + size - 1] = False
    return found


def driven_joints(topology: Topology) -> Bool[np.ndarray, " n"]:
    """Mask of joints that can have a drive and friction: all except free joints."""
    found = np.ones(len(topology.parents), bool)
    for link, size in topology.quaternion_joints:
        found[link : link + size] = size != 6
    return found


def leading_joints(chain: Chain) -> Int[np.ndarray, " nv"]:
    """For each coordinate, the index of the joint that it moves most.

    If several joints move equally, this is the first of them; without a coupling, each coordinate moves only its own joint.
    """
    if chain.coupling is None:
        return np.arange(chain.n)
    return np.abs(np.asarray(chain.coupling.matrix, float)).argmax(axis=0)


def coordinate_limits(chain: Chain) -> dict[str, Float[np.ndarray, " nv"]]:
    """Limits of a chain's coordinates; a coordinate that moves several joints satisfies the limits of all of them.

    The torque limit of a coordinate is derived from that of the joint that it moves most. Position and velocity limits of a
    joint that depends on several coordinates are ignored; include them in the `clearance` of
    `jaxdyn.identification.optimal_excitation`.
    """
    lower, upper = np.asarray(chain.limits.position, float).T
    velocity, effort = np.asarray(chain.limits.velocity, float), np.asarray(chain.limits.effort, float)
    if chain.coupling is not None:
        matrix, offset = np.asarray(chain.coupling.matrix, float), np.asarray(chain.coupling.offset, float)
        s = np.where(((matrix != 0).sum(axis=1) == 1)[:, None], matrix, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.sort(np.stack([(x - offset)[:, None] / s for x in (lower, upper)]), axis=0)
            least, most, fastest = (
                np.where(s != 0, x, y)
                for x, y in ((ends[0], -np.inf), (ends[1], np.inf), (velocity[:, None] / np.abs(s), np.inf))
            )
        lower, upper, velocity = least.max(axis=0), most.min(axis=0), fastest.min(axis=0)
        leading = leading_joints(chain)
        effort = effort[leading] * np.abs(matrix[leading, np.arange(chain.nv)])
    return {"lower": lower, "upper": upper, "velocity": velocity, "torque": effort}


def check_quaternions(chain: Chain, q: Any) -> None:
    """Check that the quaternions in q are nonzero, except inside `jax.jit`, where their values are unknown.

    Raises:
        ModelError: a quaternion is zero; the message names the joint.
    """
    if isinstance(q, Tracer) or np.shape(q) != (chain.nq,):
        return
    for joint in layout(chain).quaternions:
        if not np.any(np.asarray(q)[joint.quaternion]):
            name = chain.joint_names[joint.link]
            raise ModelError(f"the quaternion of joint {name!r} in q is zero; start from `neutral_configuration`")
