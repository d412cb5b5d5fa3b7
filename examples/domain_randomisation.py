"""Batched rollouts: a thousand 7R arms with different masses and friction under one controller, one compiled program.

A batch of robots is a chain whose leaves have a batch axis; `kernel_vmap` does the rest: on a CPU as `jax.vmap`,
on a GPU in one kernel for all steps of all robots. Writes domain_randomisation.png.
"""

import os
import time

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
robots, steps, dt = (64, 200, 2e-3) if FAST else (1024, 1000, 2e-3)

nominal = jaxdyn.robots.panda()
goal = jnp.array([0.5, 0.3, -0.4, -1.5, 0.2, 1.8, 0.3])
inertia = jaxdyn.mass_matrix(nominal, goal)
start = jnp.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8])


def controller(t, q, qd):
    """PD shaped by the nominal mass matrix plus the nominal gravity compensation: what the real arm would run."""
    return inertia @ (80 * (goal - q) - 16 * qd) + jaxdyn.gravity_force(nominal, q)


def randomised(key):
    masses, friction = jax.random.split(key)
    scale = 1 + 0.1 * jax.random.normal(masses, (nominal.n, 1))
    damping = jax.random.uniform(friction, (nominal.n,), minval=0.0, maxval=0.5)
    return jaxdyn.model.with_leaves(nominal, {"inertia": nominal.inertia * scale, "friction.viscous": damping})


chains = jax.vmap(randomised)(jax.random.split(jax.random.key(0), robots))
simulate = jaxdyn.parallel.kernel_vmap(lambda c: jaxdyn.rollout(c, start, jnp.zeros(c.n), controller, dt, steps)[0])
jax.block_until_ready(simulate(chains))  # compiles
begin = time.perf_counter()
q = jax.block_until_ready(simulate(chains))
elapsed = time.perf_counter() - begin
print(f"{robots} robots x {steps} steps in {elapsed:.2f} s: {robots * steps / elapsed:,.0f} steps per second")
error = q[:, -1] - goal
print("steady-state error, RMS per joint [rad]:", jnp.sqrt((error**2).mean(0)))
assert bool(jnp.isfinite(q).all())

figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
times = jnp.arange(steps + 1) * dt
for joint, colour in ((1, "tab:blue"), (3, "tab:orange")):
    low, middle, high = jnp.quantile(q[:, :, joint], jnp.array([0.05, 0.5, 0.95]), axis=0)
    axes.fill_between(times, low, high, color=colour, alpha=0.3)
    axes.plot(times, middle, color=colour, label=f"joint {joint + 1}: median and 5 to 95 %")
    axes.axhline(float(goal[joint]), color=colour, linestyle=":", linewidth=1)
axes.set(xlabel="time [s]", ylabel="position [rad]")
axes.legend()
figure.savefig("domain_randomisation.png", dpi=120)
