"""Plots of torques and positions with their limits, and an animation; `jaxdyn view` shows the same motion in the browser.

A 7R arm follows a smooth motion through three postures. Inverse dynamics computes its torques. Writes view_arm.csv, which
`jaxdyn view` can play, and view_arm_torques.png, view_arm_positions.png and view_arm.gif.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
robot = jaxdyn.robots.panda()
postures = jnp.array(
    [
        [0.0, -0.6, 0.0, -2.3, 0.0, 1.8, 0.8],
        [1.2, 0.6, -0.4, -1.2, 0.6, 2.2, 1.6],
        [-0.8, 0.2, 0.8, -1.8, -0.8, 1.4, 0.0],
        [0.0, -0.6, 0.0, -2.3, 0.0, 1.8, 0.8],
    ]
)
between = 0.45  # time between postures [s], so short that joint 2 exceeds its torque limits


def motion(t):
    """Positions at time t, interpolated by 10 u^3 - 15 u^4 + 6 u^5 between postures, so the arm is at rest in each posture."""
    k = jnp.clip(jnp.floor(t / between), 0, len(postures) - 2).astype(int)
    u = t / between - k
    return postures[k] + (10 * u**3 - 15 * u**4 + 6 * u**5) * (postures[k + 1] - postures[k])


@jax.jit
@jax.vmap
def sampled(t):
    q, qd, qdd = motion(t), jax.jacfwd(motion)(t), jax.jacfwd(jax.jacfwd(motion))(t)
    return q, jaxdyn.inverse_dynamics(robot, q, qd, qdd)


t = np.linspace(0, between * (len(postures) - 1), 28 if FAST else 331)
q, tau = sampled(t)
share = np.abs(np.asarray(tau)).max(axis=0) / np.asarray(robot.limits.effort)
print("largest torque relative to its limit:", ", ".join(f"{x:.0%}" for x in share))
jaxdyn.view.plot_torques(robot, t, tau, "view_arm_torques.png")
jaxdyn.view.plot_positions(robot, t, q, "view_arm_positions.png")
names = ["t", *robot.joint_names, *(f"tau_{name}" for name in robot.joint_names)]
np.savetxt("view_arm.csv", np.column_stack([t, q, tau]), delimiter=",", header=",".join(names), comments="")
again = jaxdyn.io.read_motion("view_arm.csv", robot)
pictures = jaxdyn.view.animate(robot, again.t, again.q, "view_arm.gif", fps=2 if FAST else 25, speed=0.5)
print(f"view_arm.gif: {pictures} frames")
