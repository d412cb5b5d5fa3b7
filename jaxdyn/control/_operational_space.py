"""Operational-space control: a frame moves like a unit mass, and a posture torque acts in the null space of the task."""

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
    """tau = J^T Lambda (a_d + Kd (V_d - V) + Kp e - dJ/dt v) + C v + g + k + f + (1 - J^T J_bar^T) tau_0 (Khatib 1987).

    With an exact model and away from singularities the frame's origin obeys e'' + Kd e' + Kp e = 0 and its
    orientation the same for small errors, for any tau_0: the null-space projector is dynamically consistent,
    J M^-1 (1 - J^T J_bar^T) = 0. tau_0 acts in the null space, where a redundant robot needs damping, such as
    M (k (q_0 - q) - d v). Near singularities Lambda is damped (`task_space`), as the status shows, and the frame lags in
    the singular directions. O(n^3).

    Args:
        kp: [1/s^2], one number, one per task direction, or a matrix; so kd [1/s].
        posture: tau_0 [N m]; zero if None.
        frame: link or frame; the chain's tip if None.
        task: the controlled part of the pose; the reference is always complete.
        threshold: conditioning below which the task is damped.

    Raises:
        ControlError: a gain of wrong shape, an unknown task.
        ModelError: unknown frame.
    """
    state = task_state(chain, q, v, reference, frame, task, threshold)
    wanted = state.acceleration + apply_gain("kd", kd, state.rate) + apply_gain("kp", kp, state.error)
    wrench = state.space.inertia @ (wanted - state.space.drift)
    return task_torque(state, wrench, bias_force(chain, q, v) + resistive_force(chain, q, v), posture)


@compiled
def posture_torque(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], rest: Float[Array, " nq"], kp: Gain, kd: Gain
) -> Float[Array, " nv"]:
    """M (Kp difference(q, rest) - Kd v): a tau_0 that pulls the joints towards a posture in the null space of the task [N m].

    Args:
        kp: [1/s^2]; kd: [1/s].

    Raises:
        ControlError: a gain of wrong shape.
    """
    wanted = apply_gain("kp", kp, difference(chain, q, rest)) - apply_gain("kd", kd, v)
    return generalised_momentum(chain, q, wanted)
