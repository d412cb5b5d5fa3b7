"""Operational-space control: a frame behaves like a unit mass; a posture torque acts in the null space of the task."""

from jaxtyping import Array, Float

from ..dynamics import bias_force, generalised_momentum, resistive_force
from ..model._chain import Chain
from ..model._compiled import compiled
from ..model._configuration import difference
from ._reference import Gain, TaskReference, apply_gain
from ._task_space import Task, TaskTorque, task_state, task_torque


@compiled
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
    """Operational-space control (Khatib 1987), O(n^3).

    The torques are tau = J^T Lambda (a_d + Kd (V_d - V) + Kp e - dJ/dt v) + C v + g + k + f + (1 - J^T J_bar^T) tau_0. With an
    exact model and away from singularities, the position error of the frame's origin satisfies e'' + Kd e' + Kp e = 0; a small
    orientation error satisfies the same equation. Near singularities, Lambda is damped as in `task_space`, and the frame lags
    in the singular directions; `TaskTorque.status` reports this.

    The posture torque tau_0 does not affect these errors, because the null-space projector is dynamically consistent: J M^-1
    (1 - J^T J_bar^T) = 0. A redundant robot needs damping in the null space, which `posture_torque` can provide.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        reference: desired motion of the frame.
        kp: position gain [1/s^2], given as a scalar, one value per task direction, or a matrix.
        kd: velocity gain [1/s], given as a scalar, one value per task direction, or a matrix.
        posture: posture torque tau_0 [N m or N]; zero by default.
        frame: name of a link or frame; by default, the chain's tip.
        task: controlled part of the pose; the reference always contains the whole pose.
        threshold: value of `TaskSpace.conditioning` below which the task is damped.

    Raises:
        ControlError: a gain has the wrong shape, or the task is unknown.
        ModelError: the frame is unknown.
    """
    state = task_state(chain, q, v, reference, frame, task, threshold)
    wanted = state.acceleration + apply_gain("kd", kd, state.rate) + apply_gain("kp", kp, state.error)
    wrench = state.space.inertia @ (wanted - state.space.drift)
    return task_torque(state, wrench, bias_force(chain, q, v) + resistive_force(chain, q, v), posture)


@compiled
def posture_torque(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], rest: Float[Array, " nq"], kp: Gain, kd: Gain
) -> Float[Array, " nv"]:
    """The posture torque tau_0 = M (Kp difference(q, rest) - Kd v) [N m or N], which pulls the joints towards a posture.

    Task-space controllers project this torque into the null space of the task.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        rest: desired posture [rad or m].
        kp: position gain [1/s^2], given as a scalar, one value per joint, or a matrix.
        kd: velocity gain [1/s], given as a scalar, one value per joint, or a matrix.

    Raises:
        ControlError: a gain has the wrong shape.
    """
    wanted = apply_gain("kp", kp, difference(chain, q, rest)) - apply_gain("kd", kd, v)
    return generalised_momentum(chain, q, wanted)
