"""The fastest motion of a UR10 with a 10 kg payload through waypoints, within torque and velocity limits.

The path is a spline through the inverse-kinematics solutions for a few poses. `time_optimal_path` finds the fastest timing of
this path, which is compared with a quintic time scaling. Writes path_under_limits.png, which shows the phase plane, the
torques relative to their limits, and the positions.
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
points = 101 if FAST else 1001

robot = jaxdyn.robots.ur10()
load, away = 10.0, 0.1  # a point mass [kg] and its distance along the axis of the last link [m]
payload = load * jnp.array([1, 0, 0, away, away**2, 0, away**2, 0, 0, 0])
robot = jaxdyn.with_inertial_parameters(robot, robot.inertia.at[5].add(payload))
down = jnp.diag(jnp.array([1.0, -1.0, -1.0, 1.0]))
places = [(0.7, -0.5, 0.3), (0.8, 0.0, 0.8), (0.5, 0.6, 0.7), (0.3, 0.8, 0.2)]
waypoints, guess = [], jnp.array([-0.8, -1.2, 1.6, -2.0, -1.57, 0.0])
find = jax.jit(functools.partial(jaxdyn.inverse_kinematics, robot, starts=1))
for place in places:
    found = find(down.at[:3, 3].set(jnp.array(place)), guess=guess)
    assert found.status == jaxdyn.trajectory.Status.CONVERGED, found.message
    waypoints.append(found.q)
    guess = found.q
path = jaxdyn.trajectory.spline_path(jnp.stack(waypoints))

timing = jax.jit(lambda: jaxdyn.trajectory.time_optimal_path(robot, path, points=points))()
slow = jaxdyn.trajectory.shortest_duration(robot, path)
print(f"fastest: {timing.duration:.3f} s ({timing.message}); a quintic scaling takes {slow:.3f} s")
assert timing.status == jaxdyn.trajectory.Status.CONVERGED

t = jnp.linspace(0, timing.duration, 20 * points)[1:-1]
motion = jaxdyn.trajectory.motion_along(path, timing, t)
torque = jax.jit(jax.vmap(functools.partial(jaxdyn.inverse_dynamics, robot)))(*motion)
shares = torque / robot.limits.effort
excess = float(jnp.abs(shares).max() - 1)
speeds = float(jnp.abs(motion.qd / robot.limits.velocity).max())
print(
    f"between grid points, torques exceed their limits by {max(excess, 0):.1e}; velocities reach {speeds:.6f} of their limits"
)

figure = Figure(figsize=(11, 3.8), layout="constrained")
left, middle, right = figure.subplots(1, 3)
left.plot(timing.s, timing.speed_limit, color="0.6", label="limit")
left.fill_between(timing.s, *timing.controllable.T, color="tab:blue", alpha=0.15, label="controllable")
left.plot(timing.s, timing.speed, color="tab:red", label="fastest")
left.set(xlabel="s", ylabel="s' [1/s]", ylim=(0, 1.6 * float(timing.speed.max())))
left.legend(loc="upper center", ncols=3, fontsize="small")
middle.plot(t, shares, label=[name.removesuffix("_joint") for name in robot.joint_names])
names = middle.get_lines()
middle.axhline(1, color="0.6", lw=0.8)
middle.axhline(-1, color="0.6", lw=0.8)
middle.set(xlabel="time [s]", ylabel="torque / limit", ylim=(-1.2, 1.2))
figure.legend(handles=names, loc="outside lower center", ncols=6, fontsize="small")
right.plot(t, np.asarray(motion.q))
right.set(xlabel="time [s]", ylabel="position [rad]")
figure.savefig("path_under_limits.png", dpi=120)
