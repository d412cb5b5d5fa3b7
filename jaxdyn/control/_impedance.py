"""Impedance control: a frame moves with its natural inertia as if it were held by a spring and a damper."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..dynamics import coriolis_matrix, frame_pose, gravity_force, jacobian, jacobian_derivative, resistive_force
from ..model._chain import Chain
from ..model._compiled import checked, compiled
from ..spatial.so3 import rotation_log, rotation_log_rate
from ._joint_pd import gravity_compensation
from ._reference import Gain, TaskReference, apply_gain
from ._task_space import Task, TaskTorque, task_rows, task_state, task_torque


class Spring(NamedTuple):
    """Wrench and energy of the spring computed by `task_spring`.

    Attributes:
        wrench: wrench on the frame, in world axes and about the frame's origin, with only the components that the task controls
            [N m, N].
        energy: energy stored in the spring [J].
    """

    wrench: Float[Array, " k"]
    energy: Float[Array, ""]


@checked
def task_spring(t: Float[Array, "4 4"], wanted: Float[Array, "4 4"], stiffness: Gain, task: Task = "pose") -> Spring:
    """Wrench and energy of a spring between a pose (R, p) and the desired pose (R_d, p_d).

    The energy is x . K x / 2 with the deflection x = (log(R_d^T R), R_d^T (p - p_d)). If K is symmetric and the rotation does
    not exceed pi, the wrench is the exact negative gradient of the energy, so the spring is conservative.

    Args:
        t: pose (R, p) of the frame in the world [m].
        wanted: desired pose (R_d, p_d) in the world [m].
        stiffness: stiffness K in the axes of the desired pose, given as a scalar, one value per task direction, or a matrix
            [N m/rad, N/m].
        task: controlled part of the pose: "pose", "position" or "orientation".

    Raises:
        ControlError: the stiffness has the wrong shape, or the task is unknown.
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
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    goal: Float[Array, "4 4"],
    stiffness: Gain,
    damping: Gain,
    joint_damping: Gain = 0.0,
    frame: str | None = None,
    task: Task = "pose",
) -> Float[Array, " nv"]:
    """Stiffness control about a fixed goal (Salisbury 1980): tau = J^T (F_spring - D V) + g + k - D_q v [N m or N], O(n).

    Let E be the kinetic energy of the robot plus the energy of the task spring. Without friction, dE/dt = -V . D V - v . D_q
    v + v . tau_ext, where V is the twist of the frame and tau_ext are the external torques; friction dissipates further energy.
    The robot is therefore passive in every configuration, including singular ones.

    The inertias of the model need not be correct, but its gravity torques g and spring torques k must be. The controller
    requires only the transpose of the Jacobian and no inverse.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        goal: desired pose of the frame in the world [m].
        stiffness: stiffness K, as in `task_spring`.
        damping: damping D in world axes, given as a scalar, one value per task direction, or a matrix [N m s/rad, N s/m].
        joint_damping: joint damping D_q, given as a scalar, one value per joint, or a matrix [N m s/rad or N s/m]. A redundant
            robot needs D_q, since D does not damp motion in the null space of the task.
        frame: name of a link or frame; by default, the chain's tip.
        task: controlled part of the pose.

    Raises:
        ControlError: a gain has the wrong shape, or the task is unknown.
        ModelError: the frame is unknown.
    """
    j = jacobian(chain, q, frame, "mixed")[task_rows(task)]
    wrench = task_spring(frame_pose(chain, q, frame), goal, stiffness, task).wrench
    wrench = wrench - apply_gain("damping", damping, j @ v)
    return gravity_compensation(chain, q, v, joint_damping) + j.T @ wrench


@compiled
def impedance_control(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    reference: TaskReference,
    stiffness: Gain,
    damping: Gain,
    posture: Float[Array, " nv"] | None = None,
    frame: str | None = None,
    task: Task = "pose",
    threshold: float | Float[Array, ""] = 1e-2,
) -> TaskTorque:
    """Impedance control with a moving spring and damper (Hogan 1985; Ott 2008), O(n^3).

    The frame satisfies Lambda dV~/dt + mu V~ + D V~ - F_spring = F_ext, where V~ = V - V_d is its velocity error, F_spring the
    wrench of `task_spring` and F_ext the external wrench. The controller preserves the task inertia Lambda and the task's
    Coriolis matrix mu = (J_bar^T C - Lambda dJ/dt) J_bar, for which dLambda/dt - 2 mu is skew-symmetric. It therefore needs no
    force measurement.

    Let E be V~ . Lambda V~ / 2 plus the energy of the spring. Then dE/dt = -V~ . D V~ + V~ . F_ext, so the robot is passive
    from F_ext to V~. This result assumes an exact model, a configuration away from singularities, and either a desired pose
    whose axes do not rotate or an isotropic stiffness.

    The posture torque tau_0 acts in the dynamically consistent null space and does not disturb the task. Near singularities,
    the task inertia is damped as in `task_space`; `stiffness_control` needs no such damping.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        reference: desired motion of the frame.
        stiffness: stiffness K, as in `task_spring`.
        damping: damping D in world axes, given as a scalar, one value per task direction, or a matrix [N m s/rad, N s/m]; see
            `impedance_damping`.
        posture: posture torque tau_0 [N m or N], for example from `posture_torque`; zero by default.
        frame: name of a link or frame; by default, the chain's tip.
        task: controlled part of the pose.
        threshold: value of `TaskSpace.conditioning` below which the task is damped.

    Raises:
        ControlError: a gain has the wrong shape, or the task is unknown.
        ModelError: the frame is unknown.
    """
    state = task_state(chain, q, v, reference, frame, task, threshold)
    space, rate = state.space, state.rate
    spring = task_spring(state.pose, reference.pose, stiffness, task).wrench
    # compensate the Coriolis forces due to V_d and to the null-space motion, so that only mu V~ remains
    coriolis = coriolis_matrix(chain, q, v)
    kept = space.inverse @ rate  # joint velocities of V_d - V
    j_rate = jacobian_derivative(chain, q, v, frame, "mixed")[task_rows(task)]
    coupling = space.inverse.T @ (coriolis @ (v + kept)) - space.inertia @ (j_rate @ (v + kept))
    wrench = spring + apply_gain("damping", damping, rate) + space.inertia @ state.acceleration + coupling
    return task_torque(state, wrench, gravity_force(chain, q) + resistive_force(chain, q, v), posture)


@compiled
def impedance_energy(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    reference: TaskReference,
    stiffness: Gain,
    frame: str | None = None,
    task: Task = "pose",
    threshold: float | Float[Array, ""] = 1e-2,
) -> Float[Array, ""]:
    """The energy E of a frame under `impedance_control`: V~ . Lambda V~ / 2 plus the energy of the spring [J].

    The arguments and errors are the same as for `impedance_control`.
    """
    state = task_state(chain, q, v, reference, frame, task, threshold)
    spring = task_spring(state.pose, reference.pose, stiffness, task)
    return 0.5 * (state.rate @ (state.space.inertia @ state.rate)) + spring.energy


@checked
def impedance_damping(
    inertia: Float[Array, "k k"], stiffness: Float[Array, "k k"], ratio: float | Float[Array, ""] = 1.0
) -> Float[Array, "k k"]:
    """The damping matrix D for which every mode of the system (Lambda, D, K) has a given damping ratio [N m s/rad, N s/m].

    By double diagonalisation (Albu-Schaeffer, Ott, Frese & Hirzinger 2003), D = 2 ratio L (L^-1 K L^-T)^(1/2) L^T with
    Lambda = L L^T.

    Args:
        inertia: task inertia Lambda, positive definite [kg m^2, kg].
        stiffness: stiffness K in the same axes, symmetric and positive semidefinite [N m/rad, N/m].
        ratio: damping ratio; 1 is critical damping.
    """
    lower = jnp.linalg.cholesky(inertia)
    white = solve_triangular(lower, solve_triangular(lower, stiffness, lower=True).T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (white + white.T))
    root = (vectors * jnp.sqrt(jnp.maximum(values, jnp.zeros_like(values)))[None, :]) @ vectors.T
    return 2 * ratio * (lower @ root @ lower.T)
