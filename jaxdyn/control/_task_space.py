"""Task space of a frame: Jacobian, task inertia and dynamically consistent inverse, regularised near singularities."""

from enum import IntEnum
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..dynamics import frame_acceleration, frame_pose, jacobian, mass_matrix_inverse
from ..dynamics._equations.mass_matrix_inverse import inverse_of_mass_matrix
from ..errors import ControlError
from ..model._chain import Chain
from ..model._compiled import compiled
from ..spatial.so3 import rotation_log
from ._reference import TaskReference

Task = Literal["pose", "position", "orientation"]
_IMMOBILE = 1e-8  # lower bound on the mobility of one half (angular or linear), relative to the other
_ROWS = {"pose": slice(0, 6), "position": slice(3, 6), "orientation": slice(0, 3)}


class TaskStatus(IntEnum):
    """Status of a task-space controller; `TaskTorque.status` contains its integer value."""

    REGULAR = 0
    DAMPED = 1
    NOT_FINITE = 2

    @property
    def message(self) -> str:
        """Description of the status in words."""
        return {
            TaskStatus.REGULAR: "the frame can move in every direction of the task",
            TaskStatus.DAMPED: "near a singularity: the task inertia is damped, and the frame lags in at least one direction",
            TaskStatus.NOT_FINITE: "state, reference or gains contain NaN or infinity: do not send the torques",
        }[self]


class TaskSpace(NamedTuple):
    """Motion and inertia of a frame along the k directions of a task, in world axes.

    Attributes:
        jacobian: Jacobian J of the task.
        drift: acceleration dJ/dt v of the frame at zero joint accelerations [rad/s^2, m/s^2].
        inertia: task inertia Lambda = (J M^-1 J^T + damping)^-1 [kg m^2, kg].
        inverse: dynamically consistent inverse J_bar = M^-1 J^T Lambda.
        conditioning: ratio x of the smallest to the mean mobility, between 0 (J is singular) and 1; see `task_space`.
        damped: 1 if damping was added, otherwise 0.
    """

    jacobian: Float[Array, "k nv"]
    drift: Float[Array, " k"]
    inertia: Float[Array, "k k"]
    inverse: Float[Array, "nv k"]
    conditioning: Float[Array, ""]
    damped: Int[Array, ""]


def task_rows(task: str) -> slice:
    """The rows of a twist that a task controls.

    Raises:
        ControlError: the task is unknown.
    """
    if task not in _ROWS:
        raise ControlError(f"the task must be 'pose', 'position' or 'orientation', not {task!r}")
    return _ROWS[task]


@compiled
def task_space(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | None = None,
    task: Task = "pose",
    threshold: float | Float[Array, ""] = 1e-2,
) -> TaskSpace:
    """Jacobian, inertia and dynamically consistent inverse of a task, damped near singularities; O(n^3).

    The conditioning x is the smallest eigenvalue of D^-1 A D^-1, where A = J M^-1 J^T is the mobility of the frame. The
    diagonal matrix D^2 contains the mean mobility of the angular half of A and that of the linear half, so that x does not
    depend on units and axes.

    If x is below the threshold e, D^2 (e - x)^2 / e is added to A (after Nakamura & Hanafusa 1986). The inertia in any
    direction is then at most 4 / (3 e) times the inverse of the mean mobility, and Lambda is continuously differentiable. JAX's
    derivatives treat the damping as constant.

    Args:
        q: positions [rad or m].
        v: velocities [rad/s or m/s].
        frame: name of a link or frame; by default, the chain's tip.
        task: "pose", "position" or "orientation" of the frame.
        threshold: conditioning e below which the task is damped.

    Raises:
        ControlError: the task is unknown.
        ModelError: the frame is unknown.
    """
    rows = task_rows(task)
    j = jacobian(chain, q, frame, "mixed")[rows]
    drift = frame_acceleration(chain, q, v, jnp.zeros_like(v), frame)[rows]
    solved = mass_matrix_inverse(chain, q) @ j.T
    mobility = j @ solved
    mobility = 0.5 * (mobility + mobility.T)
    fixed = jax.lax.stop_gradient(mobility)
    # scale the angular and the linear half by their own means; scale a half that cannot move by a fraction of the
    # other's mean
    means = jnp.mean(jnp.diagonal(fixed).reshape(-1, 3), axis=1)
    means = jnp.maximum(means, _IMMOBILE * jnp.max(means)) + jnp.finfo(j.dtype).tiny
    roots = jnp.sqrt(jnp.repeat(means, 3))
    scaled = fixed / (roots[:, None] * roots[None, :])
    finite = jnp.isfinite(scaled).all()
    least = jnp.linalg.eigvalsh(jnp.where(finite, scaled, jnp.eye(len(roots), dtype=j.dtype)))[0]
    limit = jnp.asarray(threshold, j.dtype)
    damped = least < limit
    added = jnp.where(damped, (limit - least) ** 2 / limit, jnp.zeros_like(limit))
    inertia = inverse_of_mass_matrix(mobility + jnp.diag(added * roots**2))
    conditioning = jnp.where(finite, jnp.clip(least, 0.0, 1.0), jnp.nan)
    return TaskSpace(j, drift, inertia, solved @ inertia, conditioning, damped.astype(jnp.int32))


def pose_error(t: Float[Array, "4 4"], wanted: Float[Array, "4 4"]) -> Float[Array, "6"]:
    """Error of a pose (R, p) with respect to the desired pose (R_d, p_d), in world axes: log(R_d R^T) and p_d - p [rad, m]."""
    turn = rotation_log(wanted[:3, :3] @ t[:3, :3].T)
    return jnp.concatenate([turn, wanted[:3, 3] - t[:3, 3]])


class TaskState(NamedTuple):
    """Actual and desired state of a frame in the directions that a task controls.

    Attributes:
        space: motion and inertia of the task.
        pose: pose of the frame in the world [m].
        error: pose error, as in `TaskTorque`.
        rate: velocity error, as in `TaskTorque`.
        acceleration: desired acceleration dV_d/dt of the task [rad/s^2, m/s^2].
    """

    space: TaskSpace
    pose: Float[Array, "4 4"]
    error: Float[Array, " k"]
    rate: Float[Array, " k"]
    acceleration: Float[Array, " k"]


class TaskTorque(NamedTuple):
    """The result of the task-space controllers.

    Attributes:
        tau: joint torques [N m or N].
        error: orientation error log(R_d R^T) and position error p_d - p in world axes, or only the one that the task controls
            [rad, m].
        rate: velocity error V_d - V of the task, in world axes [rad/s, m/s].
        conditioning: conditioning of the task inertia, from 0 (singular) to 1; see `task_space`.
        status: a `TaskStatus` as an integer.
    """

    tau: Float[Array, " nv"]
    error: Float[Array, " k"]
    rate: Float[Array, " k"]
    conditioning: Float[Array, ""]
    status: Int[Array, ""]


def task_state(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    reference: TaskReference,
    frame: str | None,
    task: Task,
    threshold: float | Float[Array, ""],
) -> TaskState:
    """State of a task, as required by all task-space controllers; the arguments are described in `task_space`."""
    rows = task_rows(task)
    space = task_space(chain, q, v, frame, task, threshold)
    pose = frame_pose(chain, q, frame)
    error = pose_error(pose, reference.pose)[rows]
    return TaskState(space, pose, error, reference.twist[rows] - space.jacobian @ v, reference.acceleration[rows])


def task_torque(
    state: TaskState, wrench: Float[Array, " k"], rest: Float[Array, " nv"], posture: Float[Array, " nv"] | None
) -> TaskTorque:
    """The torque J^T wrench + rest + (1 - J^T J_bar^T) tau_0, with the status of the task.

    Args:
        wrench: wrench on the frame, in world axes and about the frame's origin [N m, N].
        rest: further torques, for example against gravity and friction [N m or N].
        posture: posture torque tau_0 [N m or N]; zero by default.
    """
    space = state.space
    if posture is not None:
        wrench, rest = wrench - space.inverse.T @ posture, rest + posture
    tau = space.jacobian.T @ wrench + rest
    finite = jnp.isfinite(tau).all()
    status = jnp.where(finite, space.damped, jnp.full_like(space.damped, int(TaskStatus.NOT_FINITE)))
    return TaskTorque(tau, state.error, state.rate, space.conditioning, status)
