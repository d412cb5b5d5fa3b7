"""A fast motion of a Panda within its torque limits, and the sensitivity of its cost to these limits.

`solve_by_shooting` finds the motion. The derivative of its cost with respect to the torque limits, computed by implicit
differentiation of the solution, shows which motor is worth upgrading. Writes reach_with_limits.png.
"""

import dataclasses
import os

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
fast = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
steps, duration = (20, 0.6) if fast else (60, 0.6)

robot = jaxdyn.robots.panda()
start = jnp.array([0.0, -0.4, 0.0, -2.0, 0.0, 1.6, 0.8])
goal = jnp.array([1.2, 0.5, -0.4, -1.2, 0.3, 2.0, 0.2])
rest = jnp.zeros(7)
problem = jaxdyn.trajectory.OptimalControlProblem(
    robot,
    start,
    rest,
    steps,
    duration / steps,
    running=(jaxdyn.trajectory.StateCost(goal, rest, 0.5, 0.2), jaxdyn.trajectory.TorqueCost(0.02)),
    terminal=(jaxdyn.trajectory.StateCost(goal, rest, 20.0, 5.0),),
    torque_limits=jaxdyn.trajectory.torque_limits(robot, 0.6),
)


def cost(limits):
    """Cost of the optimal motion within the given torque limits, and the solution."""
    found = jaxdyn.trajectory.solve_by_shooting(dataclasses.replace(problem, torque_limits=limits))
    return found.cost, found


# a single program computes the solution and the derivative
(_, solution), slope = jax.jit(jax.value_and_grad(cost, has_aux=True))(problem.torque_limits)
print(f"{solution.message} after {int(solution.iterations)} iterations; cost {float(solution.cost):.4f}")
print(f"largest residual {float(solution.residuals.largest):.1e}")
motion = solution.trajectory
print(f"ends {float(jnp.abs(motion.q[-1] - goal).max()):.1e} rad from the goal")
used = jnp.abs(motion.tau) / problem.torque_limits[:, 1]
assert used.max() <= 1 + 1e-9

worth = (slope * problem.torque_limits).sum(axis=1)  # d cost / d log(limit) of each motor
for name, value in zip(robot.joint_names, worth, strict=True):
    print(f"{name}: 1 % more torque changes the cost by {0.01 * float(value):+.1e}")

figure = Figure(figsize=(8, 3.5), layout="constrained")
left, right = figure.subplots(1, 2)
lines = left.plot(motion.t, motion.q, label=[f"joint {j + 1}" for j in range(7)])
for line, wanted in zip(lines, goal, strict=True):
    left.plot(motion.t[-1], wanted, "o", color=line.get_color(), markersize=4)
left.set(xlabel="time [s]", ylabel="position [rad]")
figure.legend(loc="outside lower center", ncols=7, fontsize="small")
right.step(motion.t[:-1], motion.tau / problem.torque_limits[:, 1], where="post")
for limit in (-1, 1):
    right.axhline(limit, color="0.6", linewidth=0.8, linestyle="--")
right.set(xlabel="time [s]", ylabel="torque / limit")
figure.savefig("reach_with_limits.png", dpi=120)
