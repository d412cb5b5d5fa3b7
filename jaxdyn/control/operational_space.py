"""Operational-space control: a frame moves as a unit mass, and what the task leaves free is the posture's."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from ..dynamics.friction import passive_force
from ..dynamics.hamiltonian import generalised_momentum
from ..dynamics.inverse import bias_force
from ..model.chain import Chain
from ..model.configuration import difference
from .reference import Gain, TaskReference, apply_gain
from .task_space import Task, frame_error, task_rows, task_space, task_status


class TaskTorque(NamedTuple):
    """What task-space controllers return.

    Attributes:
        tau: joint torques [N m].
        error: of the task, world axes: log(R_d R^T) and p_d - p, or the half that the task is about [rad, m].
        rate: V_d - V of the task [rad/s, m/s].
        conditioning: of the task's inertia, from 0 (singular) to 1: see `task_space`.
        status: a number of `TaskStatus`.
    """

    tau: Float[Array, " nv"]
    error: Float[Array, " k"]
    rate: Float[Array, " k"]
    conditioning: Float[Array, ""]
    status: Int[Array, ""]


def operational_space_control(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    reference: TaskReference,
    kp: Gain,
    kd: Gain,
    posture: Float[Array, " nv"] | None = None,
    frame: str | None = None,
    task: Task = "pose",
    threshold: float | Float[Array, ""] = 1e-2,
) -> TaskTorque:
    """tau = J^T Lambda (a_d + Kd (V_d - V) + Kp e - dJ/dt v) + C v + g + k + f + (1 - J^T J_bar^T) tau_0 (Khatib 1987).

    On the model's own robot and away from singularities the frame's origin obeys e'' + Kd e' + Kp e = 0 and its
    orientation the same for small errors, whatever tau_0 is: the null-space projector is dynamically consistent,
    J M^-1 (1 - J^T J_bar^T) = 0. tau_0 moves what the task leaves free, and a robot with more joints than the task needs has
    to have some damping there, such as M (k (q_0 - q) - d v). Near singularities Lambda is damped (`task_space`), the
    status says so, and the frame lags in the directions that are being lost. O(n^3).

    Args:
        kp: [1/s^2], one number, one a direction of the task or a matrix; so kd [1/s].
        posture: tau_0 [N m]; zero where None.
        frame: link or frame; the chain's tip where None.
        task: what of the pose is controlled; the reference is always whole.
        threshold: conditioning below which the task is damped.

    Raises:
        ControlError: a gain of another shape, a task of another name.
        ModelError: no such frame.
    """
    rows = task_rows(task)
    space = task_space(chain, q, v, frame, task, threshold)
    error = frame_error(chain, q, reference.pose, frame)[rows]
    rate = reference.twist[rows] - space.jacobian @ v
    wanted = reference.acceleration[rows] + apply_gain("kd", kd, rate) + apply_gain("kp", kp, error)
    wrench = space.inertia @ (wanted - space.drift)
    if posture is not None:
        wrench = wrench - space.inverse.T @ posture
    tau = space.jacobian.T @ wrench + bias_force(chain, q, v) + passive_force(chain, q, v)
    tau = tau if posture is None else tau + posture
    return TaskTorque(tau, error, rate, space.conditioning, task_status(space.damped, tau))


def posture_torque(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], rest: Float[Array, " nq"], kp: Gain, kd: Gain
) -> Float[Array, " nv"]:
    """M (Kp difference(q, rest) - Kd v): a tau_0 that draws the joints to a posture as far as the task lets them [N m].

    Args:
        kp: [1/s^2]; kd: [1/s].

    Raises:
        ControlError: a gain of another shape.
    """
    wanted = apply_gain("kp", kp, difference(chain, q, rest)) - apply_gain("kd", kd, v)
    return generalised_momentum(chain, q, wanted)
