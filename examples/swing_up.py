"""Swing-ups of a pendulum with a weak motor, and of an acrobot, a double pendulum with a motor only at the elbow.

The motor of the pendulum can support less than half of the gravity torque of a horizontal pendulum, so the pendulum must build
up energy by swinging. The torque limits of the acrobot's shoulder are zero. `solve_by_shooting` solves each problem from a
batch of initial guesses with small random torques. Writes swing_up.png.
"""

import os

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
fast = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
tries = 2 if fast else 8


def problem(robot, limits, duration, steps):
    n = robot.n
    up, rest = jnp.zeros(n).at[0].set(jnp.pi), jnp.zeros(n)
    return jaxdyn.trajectory.OptimalControlProblem(
        robot,
        rest,
        rest,
        steps,
        duration / steps,
        running=(jaxdyn.trajectory.TorqueCost(0.1), jaxdyn.trajectory.StateCost(up, rest, 0.05, 0.05)),
        terminal=(jaxdyn.trajectory.StateCost(up, rest, 30.0, 10.0),),
        torque_limits=jnp.asarray(limits, float)[:, None] * jnp.array([[-1.0, 1.0]]),
    )


def from_random_torques(problem, key):
    tau = 0.3 * problem.torque_limits[:, 1] * jax.random.normal(key, (problem.steps, problem.chain.n))
    tau = jnp.clip(tau, problem.torque_limits[:, 0], problem.torque_limits[:, 1])
    return jaxdyn.trajectory.solve_by_shooting(
        problem, jaxdyn.trajectory.simulate_controls(problem, tau), max_iterations=60 if fast else 300
    )


robots = {"pendulum": problem(jaxdyn.textbook.pendulum(damping=0.05), [2.0], 4.0, 40 if fast else 160)}
if not fast:
    robots["acrobot"] = problem(jaxdyn.textbook.pendulum(2, damping=0.02), [0.0, 8.0], 4.0, 200)
figure = Figure(figsize=(8, 3.0 * len(robots)), layout="constrained")
rows = figure.subplots(len(robots), 2, squeeze=False)
for (name, task), (left, right) in zip(robots.items(), rows, strict=True):
    keys = jax.random.split(jax.random.key(0), tries)
    solutions = jax.jit(jax.vmap(from_random_torques, (None, 0)))(task, keys)
    miss = jnp.abs(solutions.trajectory.q[:, -1] - task.terminal[0].q).max(axis=1)
    up = miss < 0.1
    print(f"{name}: {int(up.sum())} of {tries} guesses swing up; costs {solutions.cost.round(2)}")
    cheapest = int(jnp.argmin(solutions.cost))
    best = jax.tree.map(lambda x, k=cheapest: x[k], solutions)
    assert fast or bool(up.any())
    time = best.trajectory.t
    left.plot(time, best.trajectory.q, label=[f"joint {j + 1}" for j in range(task.chain.n)])
    left.axhline(jnp.pi, color="0.6", linewidth=0.8, linestyle="--")
    left.set(title=name, xlabel="time [s]", ylabel="position [rad]")
    left.legend(fontsize="small")
    right.step(time[:-1], best.trajectory.tau, where="post")
    for limit in task.torque_limits[-1]:
        right.axhline(limit, color="0.6", linewidth=0.8, linestyle="--")
    right.set(title=f"solved in {int(best.iterations)} iterations", xlabel="time [s]", ylabel="torque [N m]")
figure.savefig("swing_up.png", dpi=120)
