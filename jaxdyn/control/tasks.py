"""Control of a frame: operational-space control, stiffness control, and impedance control.

`task_space` computes the Jacobian and the inertia of the task, damped near singularities; a posture torque acts in the
null space of the task. Gains are those of `joint_space`, with one value per direction of the task. The controllers
raise a `ControlError` if a gain has the wrong shape or the task is unknown, and a `ModelError` if the frame is unknown.
"""

from enum import IntEnum
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from ..dynamics import (
    bias_force,
    coriolis_matrix,
    frame_acceleration,
    frame_pose,
    generalised_momentum,
    gravity_force,
    jacobian,
    jacobian_derivative,
    mass_matrix_inverse,
    resistive_force,
)
from ..dynamics.composite_body import inverse_of_mass_matrix
from ..errors import ControlError
from ..model.chain import Chain, Force, Position, Velocity
from ..model.compiled import checked, compiled
from ..model.configuration import difference
from ..spatial.so3 import rotation_log, rotation_log_rate
from .joint_space import Gain, Scalar, TaskReference, apply_gain, gravity_compensation

Task = Literal["pose", "position", "orientation"]
# lower bound on the mean mobility of one half (angular or linear), relative to the other: a half that cannot move at all, such
# as the rotation of a gantry, would otherwise be scaled by zero
_IMMOBILE = 1e-8
_ROWS = {"pose": slice(0, 6), "position": slice(3, 6), "orientation": slice(0, 3)}


class TaskStatus(IntEnum):
    """Status of a task-space controller, as the integer `TaskTorque.status`."""

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
    """The result of `task_space`, which describes it."""

    jacobian: Float[Array, "k nv"]
    drift: Float[Array, " k"]
    inertia: Float[Array, "k k"]
    inverse: Float[Array, "nv k"]
    conditioning: Float[Array, ""]
    damped: Int[Array, ""]


def task_rows(task: str) -> slice:
    """The rows of a twist that a task controls."""
    if task not in _ROWS:
        raise ControlError(f"the task must be 'pose', 'position' or 'orientation', not {task!r}")
    return _ROWS[task]


@compiled
def task_space(
    chain: Chain, q: Position, qd: Velocity, frame: str | None = None, task: Task = "pose", threshold: Scalar = 1e-2
) -> TaskSpace:
    """Jacobian, inertia and dynamically consistent inverse of a task, damped near singularities; O(n^3).

    The conditioning x is the smallest eigenvalue of D^-1 A D^-1, where A = J M^-1 J^T is the mobility of the frame, and
    D^2 is diagonal with the mean mobility of the angular and of the linear half of A, so that x does not depend on
    units and axes.

    If x is below the threshold e, D^2 (e - x)^2 / e is added to A (after Nakamura & Hanafusa 1986). The inertia in any
    direction is then at most 4 / (3 e) times the inverse of the mean mobility, and Lambda is continuously
    differentiable. JAX's derivatives treat the damping as constant.

    Args:
        frame: name of a link or frame; None: the chain's tip.
        threshold: conditioning e.

    Returns:
        - jacobian: Jacobian J of the task.
        - drift: acceleration dJ/dt qd of the frame at zero joint accelerations [rad/s^2, m/s^2].
        - inertia: task inertia Lambda = (J M^-1 J^T + damping)^-1 [kg m^2, kg].
        - inverse: dynamically consistent inverse J_bar = M^-1 J^T Lambda.
        - conditioning: ratio x of the smallest to the mean mobility, between 0 (J is singular) and 1.
        - damped: 1 if damping was added, otherwise 0.
    """
    rows = task_rows(task)
    j = jacobian(chain, q, frame, "mixed")[rows]
    drift = frame_acceleration(chain, q, qd, jnp.zeros_like(qd), frame)[rows]
    solved = mass_matrix_inverse(chain, q) @ j.T
    mobility = j @ solved
    mobility = 0.5 * (mobility + mobility.T)
    fixed = jax.lax.stop_gradient(mobility)
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
    """Actual and desired state of a frame; `error` and `rate` as in `TaskTorque`, and the desired acceleration of the task."""

    space: TaskSpace
    pose: Float[Array, "4 4"]
    error: Float[Array, " k"]
    rate: Float[Array, " k"]
    acceleration: Float[Array, " k"]


class TaskTorque(NamedTuple):
    """The result of the task-space controllers.

    Attributes:
        tau: joint torques [N m or N].
        error: orientation error log(R_d R^T) and position error p_d - p in world axes, or only the one that the task
            controls [rad, m].
        rate: velocity error V_d - V of the task, in world axes [rad/s, m/s].
        conditioning: as in `task_space`.
        status: a `TaskStatus` as an integer.
    """

    tau: Float[Array, " nv"]
    error: Float[Array, " k"]
    rate: Float[Array, " k"]
    conditioning: Float[Array, ""]
    status: Int[Array, ""]


def task_state(
    chain: Chain, q: Position, qd: Velocity, reference: TaskReference, frame: str | None, task: Task, threshold: Scalar
) -> TaskState:
    """State of a task, as required by all task-space controllers."""
    rows = task_rows(task)
    space = task_space(chain, q, qd, frame, task, threshold)
    pose = frame_pose(chain, q, frame)
    error = pose_error(pose, reference.pose)[rows]
    return TaskState(space, pose, error, reference.twist[rows] - space.jacobian @ qd, reference.acceleration[rows])


def task_torque(state: TaskState, wrench: Float[Array, " k"], rest: Force, posture: Force | None) -> TaskTorque:
    """The torque J^T wrench + rest + (1 - J^T J_bar^T) posture, with the status of the task."""
    space = state.space
    if posture is not None:
        wrench, rest = wrench - space.inverse.T @ posture, rest + posture
    tau = space.jacobian.T @ wrench + rest
    finite = jnp.isfinite(tau).all()
    status = jnp.where(finite, space.damped, jnp.full_like(space.damped, int(TaskStatus.NOT_FINITE)))
    return TaskTorque(tau, state.error, state.rate, space.conditioning, status)


@compiled
def operational_space_control(
    chain: Chain,
    q: Position,
    qd: Velocity,
    reference: TaskReference,
    kp: Gain,
    kd: Gain,
    posture: Force | None = None,
    frame: str | None = None,
    task: Task = "pose",
    threshold: Scalar = 1e-2,
) -> TaskTorque:
    """Operational-space control (Khatib 1987), O(n^3).

    The torques are

        tau = J^T Lambda (a_d + Kd (V_d - V) + Kp e - dJ/dt qd) + C qd + g + k + f + (1 - J^T J_bar^T) tau_0.

    With an exact model and away from singularities, the position error of the origin satisfies e'' + Kd e' + Kp e = 0;
    a small orientation error satisfies the same equation. Near singularities, Lambda is damped as in `task_space`, and
    the frame lags in the singular directions; `TaskTorque.status` reports this.

    The posture torque tau_0 does not affect these errors, since J M^-1 (1 - J^T J_bar^T) = 0. A redundant robot needs
    damping in the null space, which `posture_torque` can provide.

    Args:
        reference: desired motion, which always contains the whole pose.
        kp: position gain [1/s^2].
        kd: velocity gain [1/s].
        posture: posture torque tau_0 [N m or N]; None: zero.
        frame: name of a link or frame; None: the chain's tip.
        threshold: conditioning below which Lambda is damped.
    """
    state = task_state(chain, q, qd, reference, frame, task, threshold)
    wanted = state.acceleration + apply_gain("kd", kd, state.rate) + apply_gain("kp", kp, state.error)
    wrench = state.space.inertia @ (wanted - state.space.drift)
    return task_torque(state, wrench, bias_force(chain, q, qd) + resistive_force(chain, q, qd), posture)


@compiled
def posture_torque(chain: Chain, q: Position, qd: Velocity, rest: Position, kp: Gain, kd: Gain) -> Force:
    """The posture torque tau_0 = M (Kp difference(q, rest) - Kd qd) [N m or N], which pulls the joints towards a posture.

    Task-space controllers project this torque into the null space of the task. Kp is in [1/s^2], and Kd in [1/s].
    """
    wanted = apply_gain("kp", kp, difference(chain, q, rest)) - apply_gain("kd", kd, qd)
    return generalised_momentum(chain, q, wanted)


class Spring(NamedTuple):
    """The result of `task_spring`, which describes it."""

    wrench: Float[Array, " k"]
    energy: Float[Array, ""]


@checked
def task_spring(t: Float[Array, "4 4"], wanted: Float[Array, "4 4"], stiffness: Gain, task: Task = "pose") -> Spring:
    """Wrench and energy of a spring between a pose (R, p) and the desired pose (R_d, p_d).

    The energy is x . K x / 2 with the deflection x = (log(R_d^T R), R_d^T (p - p_d)) and the stiffness K in the axes of
    the desired pose [N m/rad, N/m]. If K is symmetric and the rotation does not exceed pi, the wrench is the exact
    negative gradient of the energy, so the spring is conservative.

    Returns:
        - wrench: wrench on the frame, in world axes about its origin [N m, N].
        - energy: energy of the spring [J].
    """
    rows = task_rows(task)
    back = wanted[:3, :3].T
    angle = rotation_log(back @ t[:3, :3])
    x = jnp.concatenate([angle, back @ (t[:3, 3] - wanted[:3, 3])])[rows]
    force = apply_gain("stiffness", stiffness, x)
    energy = 0.5 * (x @ force)
    turning = wanted[:3, :3] @ rotation_log_rate(angle).T
    if task == "orientation":
        return Spring(-turning @ force, energy)
    if task == "position":
        return Spring(-wanted[:3, :3] @ force, energy)
    return Spring(-jnp.concatenate([turning @ force[:3], wanted[:3, :3] @ force[3:]]), energy)


@compiled
def stiffness_control(
    chain: Chain,
    q: Position,
    qd: Velocity,
    goal: Float[Array, "4 4"],
    stiffness: Gain,
    damping: Gain,
    joint_damping: Gain = 0.0,
    frame: str | None = None,
    task: Task = "pose",
) -> Force:
    """Stiffness control about a fixed goal (Salisbury 1980): tau = J^T (F_spring - D V) + g + k - D_q qd [N m or N], O(n).

    Let E be the kinetic energy of the robot plus the energy of the task spring. With the twist V of the frame and the
    external torques tau_ext, dE/dt = -V . D V - qd . D_q qd + qd . tau_ext, less the power that friction dissipates.
    The robot is therefore passive in every configuration, including singular ones. The inertias of the model need not
    be correct, but its gravity torques g and spring torques k must be.

    Args:
        goal: desired pose of the frame in the world [m].
        stiffness: stiffness K, as in `task_spring`.
        damping: damping D in world axes [N m s/rad, N s/m].
        joint_damping: joint damping D_q [N m s/rad or N s/m]. A redundant robot needs D_q, since D does not damp motion
            in the null space of the task.
        frame: name of a link or frame; None: the chain's tip.
    """
    j = jacobian(chain, q, frame, "mixed")[task_rows(task)]
    wrench = task_spring(frame_pose(chain, q, frame), goal, stiffness, task).wrench
    wrench = wrench - apply_gain("damping", damping, j @ qd)
    return gravity_compensation(chain, q, qd, joint_damping) + j.T @ wrench


@compiled
def impedance_control(
    chain: Chain,
    q: Position,
    qd: Velocity,
    reference: TaskReference,
    stiffness: Gain,
    damping: Gain,
    posture: Force | None = None,
    frame: str | None = None,
    task: Task = "pose",
    threshold: Scalar = 1e-2,
) -> TaskTorque:
    """Impedance control with a moving spring and damper (Hogan 1985; Ott 2008), O(n^3).

    The frame satisfies Lambda dV~/dt + mu V~ + D V~ - F_spring = F_ext, where V~ = V - V_d is its velocity error,
    F_spring the wrench of `task_spring` and F_ext the external wrench. The controller preserves the task inertia Lambda
    and the task's Coriolis matrix mu = (J_bar^T C - Lambda dJ/dt) J_bar, for which dLambda/dt - 2 mu is skew-symmetric.
    It therefore needs no force measurement.

    Let E be V~ . Lambda V~ / 2 plus the energy of the spring. Then dE/dt = -V~ . D V~ + V~ . F_ext, so the robot is
    passive from F_ext to V~. This result assumes an exact model, a configuration away from singularities, and either a
    desired pose whose axes do not rotate or an isotropic stiffness.

    Near singularities, the task inertia is damped as in `task_space`; `stiffness_control` needs no such damping.

    Args:
        stiffness: stiffness K, as in `task_spring`.
        damping: damping D in world axes [N m s/rad, N s/m]; see `impedance_damping`.
        posture: posture torque tau_0 [N m or N], for example from `posture_torque`; None: zero.

    The frame and threshold are those of `operational_space_control`.
    """
    state = task_state(chain, q, qd, reference, frame, task, threshold)
    space, rate = state.space, state.rate
    spring = task_spring(state.pose, reference.pose, stiffness, task).wrench
    # compensate the Coriolis forces due to V_d and to the null-space motion, so that only mu V~ remains
    coriolis = coriolis_matrix(chain, q, qd)
    kept = space.inverse @ rate  # joint velocities of V_d - V
    j_rate = jacobian_derivative(chain, q, qd, frame, "mixed")[task_rows(task)]
    coupling = space.inverse.T @ (coriolis @ (qd + kept)) - space.inertia @ (j_rate @ (qd + kept))
    wrench = spring + apply_gain("damping", damping, rate) + space.inertia @ state.acceleration + coupling
    return task_torque(state, wrench, gravity_force(chain, q) + resistive_force(chain, q, qd), posture)


@compiled
def impedance_energy(
    chain: Chain,
    q: Position,
    qd: Velocity,
    reference: TaskReference,
    stiffness: Gain,
    frame: str | None = None,
    task: Task = "pose",
    threshold: Scalar = 1e-2,
) -> Float[Array, ""]:
    """The energy E of a frame under `impedance_control`: V~ . Lambda V~ / 2 plus the energy of the spring [J]."""
    state = task_state(chain, q, qd, reference, frame, task, threshold)
    spring = task_spring(state.pose, reference.pose, stiffness, task)
    return 0.5 * (state.rate @ (state.space.inertia @ state.rate)) + spring.energy


@checked
def impedance_damping(
    inertia: Float[Array, "k k"], stiffness: Float[Array, "k k"], ratio: Scalar = 1.0
) -> Float[Array, "k k"]:
    """The damping matrix D for which every mode of the system (Lambda, D, K) has a given damping ratio [N m s/rad, N s/m].

    By double diagonalisation (Albu-Schaeffer, Ott, Frese & Hirzinger 2003), D = 2 ratio L (L^-1 K L^-T)^(1/2) L^T with
    Lambda = L L^T. K is in the axes of Lambda, symmetric and positive semidefinite.
    """
    lower = jnp.linalg.cholesky(inertia)
    white = solve_triangular(lower, solve_triangular(lower, stiffness, lower=True).T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (white + white.T))
    root = (vectors * jnp.sqrt(jnp.maximum(values, jnp.zeros_like(values)))[None, :]) @ vectors.T
    return 2 * ratio * (lower @ root @ lower.T)
