"""Thousands of reaching problems of a Panda with different goals, solved in a single call.

On a GPU, `jax.jit(jax.vmap(...))` solves all problems simultaneously. On a CPU, the same code processes them in groups that
fit in the cache. Writes many_reaches.png.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn

fast = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
count, steps, most = (8, 10, 10) if fast else (4096, 50, 20)

robot = jaxdyn.robots.panda()
start = jnp.array([0.0, -0.4, 0.0, -2.0, 0.0, 1.6, 0.8])
rest = jnp.zeros(7)


def reach(goal):
    problem = jaxdyn.trajectory.OptimalControlProblem(
        robot,
        start,
        rest,
        steps,
        1.0 / steps,
        running=(jaxdyn.trajectory.StateCost(goal, rest, 0.5, 0.2), jaxdyn.trajectory.TorqueCost(0.02)),
        terminal=(jaxdyn.trajectory.StateCost(goal, rest, 5.0, 2.0),),
        torque_limits=jaxdyn.trajectory.torque_limits(robot),
    )
    return jaxdyn.trajectory.solve_by_shooting(problem, max_iterations=most)


goals = start + jax.random.uniform(jax.random.key(0), (count, 7), minval=-0.5, maxval=0.5)
solve = jax.jit(jax.vmap(reach)).lower(goals).compile()
before = time.perf_counter()
solutions = jax.block_until_ready(solve(goals))
seconds = time.perf_counter() - before
solved = solutions.status == jaxdyn.trajectory.Status.CONVERGED
miss = jnp.abs(solutions.trajectory.q[:, -1] - goals).max(axis=1)
print(f"{count} problems in {seconds:.2f} s, {count / seconds:.0f} per second; {int(solved.sum())} converged to 1e-3")
print(f"{float(solutions.iterations.mean()):.1f} iterations on average; median error {float(jnp.median(miss)):.1e} rad")

points = jax.vmap(jax.vmap(lambda q: jaxdyn.frame_pose(robot, q)[:3, 3]))(solutions.trajectory.q[:200])
figure = Figure(figsize=(8, 3.2), layout="constrained")
left, right = figure.subplots(1, 2)
for path in points:
    left.plot(path[:, 0], path[:, 2], linewidth=0.5)
left.set(xlabel="x [m]", ylabel="z [m]", title="paths of the flange", aspect="equal")
right.hist(solutions.iterations, bins=np.arange(most + 2) - 0.5)
right.set(xlabel="iterations", ylabel="number of problems")
figure.savefig("many_reaches.png", dpi=120)
