"""Impedance control: the frame responds to forces like a spring and a damper, with its own inertia, and stays passive."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..dynamics import coriolis_matrix, frame_pose, gravity_force, jacobian, jacobian_derivative, resistive_force
from ..model._chain import Chain
from ..model._compiled import compiled
from ..spatial.so3 import rotation_log, rotation_log_rate
from ._joint_pd import gravity_compensation
from ._reference import Gain, TaskReference, apply_gain
from ._task_space import Task, TaskTorque, task_rows, task_state, task_torque


class Spring(NamedTuple):
    """The result of `task_spring`.

    Attributes:
        wrench: wrench on the frame, world axes, about its origin: the halves that the task controls [N m, N].
        energy: stored energy [J].
    """

    wrench: Float[Array, " k"]
    energy: Float[Array, ""]


def task_spring(t: Float[Array, "4 4"], wanted: Float[Array, "4 4"], stiffness: Gain, task: Task = "pose") -> Spring:
    """A spring between a pose and the desired one: energy x . K x / 2 of x = (log(R_d^T R), R_d^T (p - p_d)), and its force.

    The wrench is the exact gradient of the energy for every symmetric K and rotations up to pi, hence conservative.

    Args:
        stiffness: K in the axes of the desired pose, one number, one per task direction, or a matrix [N m/rad, N/m].

    Raises:
        ControlError: a stiffness of wrong shape, an unknown task.
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
    """tau = J^T (F_spring - D V) + g + k - D_q v: a spring about a fixed goal (Salisbury 1980) [N m].

    Kinetic energy plus the spring's obeys dE/dt = -V . D V - v . D_q v + v . tau_ext: passive everywhere, including
    singularities, for any inertias; only g and k of the model must be right. Uses the transposed Jacobian, without an
    inverse: O(n).

    Args:
        stiffness: K as in `task_spring`.
        damping: D in world axes, one number, one per task direction, or a matrix [N m s/rad, N s/m].
        joint_damping: D_q, required for redundant robots [N m s/rad].

    Raises:
        ControlError: a gain of wrong shape, an unknown task.
        ModelError: unknown frame.
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
    """Lambda dV~/dt + mu V~ + D V~ - F_spring = F_ext for V~ = V - V_d: a moving spring and damper (Hogan 1985; Ott 2008).

    The controller keeps the task's inertia and its Coriolis matrix mu = (J_bar^T C - Lambda dJ/dt) J_bar, with
    dLambda/dt - 2 mu skew-symmetric, so it needs no force measurement, and E = V~ . Lambda V~ / 2 + the spring's energy obeys
    dE/dt = -V~ . D V~ + V~ . F_ext. Passive from F_ext to V~ while the axes of the desired pose do not rotate, or for a
    isotropic stiffness; with an exact model, away from singularities. tau_0 acts in the dynamically
    consistent null space of the task and does not disturb it. Near singularities the task is damped as in
    `task_space`; `stiffness_control` needs no damping. O(n^3).

    Args:
        stiffness: K as in `task_spring`.
        damping: D in world axes, one number, one per task direction, or a matrix [N m s/rad, N s/m];
            `impedance_damping` finds one.
        posture: tau_0 [N m]; zero if None. See `posture_torque`.
        frame: link or frame; the chain's tip if None.
        task: the controlled part of the pose.
        threshold: conditioning below which the task is damped.

    Raises:
        ControlError: a gain of wrong shape, an unknown task.
        ModelError: unknown frame.
    """
    state = task_state(chain, q, v, reference, frame, task, threshold)
    space, rate = state.space, state.rate
    spring = task_spring(state.pose, reference.pose, stiffness, task).wrench
    # only mu V~ of the Coriolis forces remains: those of V_d and of the null-space motion are compensated
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
    """E = V~ . Lambda V~ / 2 + the spring's energy, the energy that `impedance_control` stores [J]; same arguments."""
    state = task_state(chain, q, v, reference, frame, task, threshold)
    spring = task_spring(state.pose, reference.pose, stiffness, task)
    return 0.5 * (state.rate @ (state.space.inertia @ state.rate)) + spring.energy


def impedance_damping(
    inertia: Float[Array, "k k"], stiffness: Float[Array, "k k"], ratio: float | Float[Array, ""] = 1.0
) -> Float[Array, "k k"]:
    """D = 2 ratio L (L^-1 K L^-T)^(1/2) L^T, Lambda = L L^T: every mode of (Lambda, D, K) has this damping ratio.

    Double diagonalisation (Albu-Schaeffer, Ott, Frese & Hirzinger 2003).

    Args:
        inertia: Lambda, positive definite.
        stiffness: K in the same axes, symmetric and positive semidefinite.
    """
    lower = jnp.linalg.cholesky(inertia)
    white = solve_triangular(lower, solve_triangular(lower, stiffness, lower=True).T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (white + white.T))
    root = (vectors * jnp.sqrt(jnp.maximum(values, jnp.zeros_like(values)))[None, :]) @ vectors.T
    return 2 * ratio * (lower @ root @ lower.T)
