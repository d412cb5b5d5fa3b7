"""Joints and their coordinates.

Every link moves by one screw joint. A joint with several degrees of freedom consists of several links without mass
between them; its type is a class in `JOINT_TYPES`. A new type is also described in docs/conventions.md (with its layout in
MuJoCo and Pinocchio, `model/layouts.py`) and in `Topology.compound_joints`, and tested in tests/test_joints.py. If a robot
format has a tag for it, see `_COMPOUND` in io/urdf.py, `_TYPES` in io/mjcf.py, and the writers. A type whose positions are no
vector is a `CurvedJoint`, whose methods are all that the algorithms need.
"""

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..spatial.se3 import pose, pose_exp, pose_inverse, pose_log, twist_cross
from ..spatial.so3 import quaternion_exp, quaternion_log, quaternion_multiply, quaternion_to_rotation, skew


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint with one degree of freedom (or one coordinate of coupled joints), and the base class of all others.

    The positions of a joint form a vector x with dx/dt = v, unless it is a `CurvedJoint`.

    Attributes:
        name: the name in the robot's description.
        link: index of the joint's first link.
        column: index of its first velocity in v.
        start: index of its first position in q.
    """

    name: str
    link: int
    column: int
    start: int

    kind: ClassVar[str] = "single"
    parts: ClassVar[tuple[str, ...]] = ("",)
    """Endings of the names of the links' joints, J_wx for J; their number is that of the velocities."""
    positions: ClassVar[tuple[tuple[str, str], ...]] = (("", ""),)
    """Label and unit of each position."""
    curved: ClassVar[bool] = False
    """True for a `CurvedJoint`."""
    driven: ClassVar[bool] = True
    """True if the joint can have a drive and friction."""
    at_base: ClassVar[bool] = False
    """True if the joint must be attached to the base, at its origin, so that its pose is that of its body in the base."""

    @property
    def size(self) -> int:
        """Number of velocities, and of links."""
        return len(self.parts)

    @property
    def columns(self) -> slice:
        """Slice of v that contains the joint's velocities."""
        return slice(self.column, self.column + self.size)

    @property
    def entries(self) -> slice:
        """Slice of q that contains the joint's positions."""
        return slice(self.start, self.start + len(self.positions))

    @property
    def links(self) -> slice:
        """Slice of the joint's links."""
        return slice(self.link, self.link + self.size)

    @classmethod
    def has_screws(cls, screws: Float[np.ndarray, "size 6"]) -> bool:
        """True if the links' screws are those of a joint of this type; the links' frames coincide at zero."""
        return True

    def neutral(self) -> Float[np.ndarray, " positions"]:
        """Default positions."""
        return np.zeros(len(self.positions))

    def integrate(self, x: Array, step: Array) -> Array:
        """Positions reached from x by the constant velocity `step`, held for unit time."""
        return x + step

    def difference(self, x0: Array, x1: Array) -> Array:
        """The step with integrate(x0, step) = x1."""
        return x1 - x0

    def fault(self, x: Float[np.ndarray, " positions"]) -> bool:
        """True for positions that mean nothing, a quaternion of length zero."""
        return False

    def normalised(self, x: Array) -> Array:
        """Positions without drift from their manifold, which is the unit sphere for quaternions."""
        return x


class CurvedJoint(Joint, abc.ABC):
    """A joint whose positions x end with a unit quaternion (w, x, y, z), so that dx/dt is not v.

    Its links have local coordinates u about the pose at x: there, u = 0 and du/dt = v; elsewhere, du/dt = B(u)^-1 v. Hence
    dv/dt = d2u/dt2 + g(v), where the `rate_terms` g(v) depend on the order of the links' screws S_j: g(v) = sum_{j<k} [S_j,
    S_k] v_j v_k.
    """

    curved = True

    @property
    def quaternion(self) -> slice:
        """Slice of q that contains the joint's quaternion."""
        return slice(self.entries.stop - 4, self.entries.stop)

    def neutral(self):
        return np.eye(len(self.positions))[-4]

    def fault(self, x):
        return not np.any(x[-4:])

    @abc.abstractmethod
    def random(self, turn: PRNGKeyArray, place: PRNGKeyArray, extent: Any, dtype: Any) -> Array:
        """Random positions: a uniformly distributed orientation, and a point in a cube with half the edge length `extent`."""

    @abc.abstractmethod
    def pose(self, x: Array) -> Float[Array, "4 4"]:
        """Pose at which the local coordinates of the links are zero, relative to the placement of the first link."""

    @abc.abstractmethod
    def integrate(self, x: Array, step: Array) -> Array: ...

    @abc.abstractmethod
    def difference(self, x0: Array, x1: Array) -> Array: ...

    @abc.abstractmethod
    def normalised(self, x: Array) -> Array: ...

    @abc.abstractmethod
    def bracket(self, u: Array) -> Float[Array, "size size"]:
        """The matrix [u, .] of the Lie bracket of velocities."""

    @abc.abstractmethod
    def rate_terms(self, v: Float[Array, "size *lanes"]) -> Float[Array, "size *lanes"]:
        """The difference g(v) between dv/dt and the accelerations of the local coordinates."""

    @abc.abstractmethod
    def rate_block(self, v: Float[Array, " size"]) -> Float[Array, "size size"]:
        """The rate dB/dt at u = 0, with dB/dt v = g(v)."""


class Spherical(CurvedJoint):
    """A ball joint: a unit quaternion (w, x, y, z), and the angular velocity in body axes."""

    kind = "spherical"
    parts = ("_wx", "_wy", "_wz")
    positions = tuple((f"quaternion {x}", "") for x in "wxyz")

    @classmethod
    def has_screws(cls, screws):
        return bool(np.abs(screws - np.eye(6)[: len(cls.parts)]).max() <= 1e-12)

    def random(self, turn, place, extent, dtype):
        x = jax.random.normal(turn, (4,), dtype)
        return x / jnp.linalg.norm(x)

    def pose(self, x):
        return pose(quaternion_to_rotation(x), jnp.zeros(3, x.dtype))

    def integrate(self, x, step):
        return quaternion_multiply(x, quaternion_exp(step))

    def difference(self, x0, x1):
        back = x0 * jnp.asarray([1, -1, -1, -1], x0.dtype)
        return quaternion_log(quaternion_multiply(back, x1))

    def normalised(self, x):
        length = jnp.sqrt(x @ x)
        return x / eqx.error_if(length, length < 1e-6, f"the quaternion of {self.name + self.parts[0]!r} is zero")

    def bracket(self, u):
        return skew(u)

    def rate_terms(self, v):
        x, y, z = v[:3]
        return jnp.stack([y * z, -x * z, x * y])

    def rate_block(self, v):
        zero, y, z = jnp.zeros_like(v[0]), v[1], v[2]
        return jnp.stack([zero, z, zero, -z, zero, zero, y, zero, zero]).reshape(3, 3)


class Free(Spherical):
    """A floating base: a point and a unit quaternion (px, py, pz, w, x, y, z), and the twist (w, v) in body axes."""

    kind = "free"
    parts = ("_wx", "_wy", "_wz", "_vx", "_vy", "_vz")
    positions = (("x", "m"), ("y", "m"), ("z", "m"), *Spherical.positions)
    driven = False
    at_base = True

    @property
    def point(self) -> slice:
        """Slice of q that contains the joint's point."""
        return slice(self.start, self.start + 3)

    def random(self, turn, place, extent, dtype):
        point = jax.random.uniform(place, (3,), dtype, -extent, extent)
        return jnp.concatenate([point, super().random(turn, place, extent, dtype)])

    def pose(self, x):
        return pose(quaternion_to_rotation(x[3:]), x[:3])

    def integrate(self, x, step):
        moved = quaternion_to_rotation(x[3:]) @ pose_exp(step)[:3, 3]
        return jnp.concatenate([x[:3] + moved, super().integrate(x[3:], step[:3])])

    def difference(self, x0, x1):
        return pose_log(pose_inverse(self.pose(x0)) @ self.pose(x1))

    def normalised(self, x):
        return jnp.concatenate([x[:3], super().normalised(x[3:])])

    def bracket(self, u):
        return twist_cross(u)

    def rate_terms(self, v):
        return jnp.concatenate([super().rate_terms(v[:3]), jnp.cross(v[:3], v[3:], axis=0)])

    def rate_block(self, v):
        turning = super().rate_block(v[:3])
        zero = jnp.zeros_like(turning)
        return jnp.block([[turning, zero], [-skew(v[3:]), zero]])


class Planar(Joint):
    """Two perpendicular slides and a turn: positions (x, y, angle), and their rates in axes of the joint's placement."""

    kind = "planar"
    parts = ("_x", "_y", "")
    positions = (("x", "m"), ("y", "m"), ("angle", "rad"))

    @classmethod
    def has_screws(cls, screws):
        a, b, turn = screws[0, 3:], screws[1, 3:], screws[2, :3]
        return _are_zero(screws[:2, :3], screws[2, 3:], a @ b, np.cross(a, b) - turn)


class Universal(Joint):
    """A Cardan joint: turns about two perpendicular axes through the link's origin; the second axis moves with the first."""

    kind = "universal"
    parts = ("_1", "_2")
    positions = (("first angle", "rad"), ("second angle", "rad"))

    @classmethod
    def has_screws(cls, screws):
        return _are_zero(screws[:, 3:], screws[0, :3] @ screws[1, :3])


class Cylindrical(Joint):
    """A turn about an axis through the link's origin, and a slide along it."""

    kind = "cylindrical"
    parts = ("_angle", "_slide")
    positions = (("angle", "rad"), ("slide", "m"))

    @classmethod
    def has_screws(cls, screws):
        return _are_zero(screws[0, 3:], screws[1, :3], screws[0, :3] - screws[1, 3:])


JOINT_TYPES: dict[str, type[Joint]] = {cls.kind: cls for cls in (Spherical, Free, Planar, Universal, Cylindrical)}


def _are_zero(*values: Any) -> bool:
    return all(np.abs(x).max() <= 1e-12 for x in values)
