"""Batches of states evaluated on one device and on eight devices, with the same results.

By default, a CPU is a single XLA device, which uses about one core for small programs like these; several virtual devices
use several cores. On a machine with accelerators, omit the setting `jax_num_cpu_devices`: `sharded_vmap` uses all of them.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn

jax.config.update("jax_num_cpu_devices", 8)  # must precede the first computation
jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
states, arms, steps, dt = (4096, 64, 50, 2e-3) if FAST else (131_072, 1024, 500, 2e-3)

robot = jaxdyn.robots.panda()
goal = jnp.array([0.5, 0.3, -0.4, -1.5, 0.2, 1.8, 0.3])
rng = np.random.default_rng(0)


def motion(robot, q, qd):
    """Final state of an arm under PD control with gravity compensation."""
    inertia = jaxdyn.mass_matrix(robot, goal)

    def policy(t, q, qd):
        return jaxdyn.gravity_force(robot, q) + inertia @ (80 * (goal - q) - 16 * qd)

    positions, velocities = jaxdyn.rollout(robot, q, qd, policy, dt, steps)
    return positions[-1], velocities[-1]


def timed(function, *arguments):
    """Result of a call, and the shortest duration of three calls after compilation [s]."""
    result, best = jax.block_until_ready(function(*arguments)), np.inf
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        best = min(best, time.perf_counter() - start)
    return result, best


one = jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1], axis_types=(jax.sharding.AxisType.Auto,))
work = {
    "inverse dynamics": (jaxdyn.inverse_dynamics, rng.normal(size=(3, states, 7)), "states", states),
    "rollout": (motion, rng.normal(size=(2, arms, 7)) * 0.3, "steps", arms * steps),
}
print(f"{jax.device_count()} {jax.devices()[0].platform} devices")
for name, (function, batch, unit, count) in work.items():
    in_axes = (None,) + (0,) * len(batch)  # the robot is the same for all rows; all other arguments are batched
    alone, slow = timed(jaxdyn.sharded_vmap(function, in_axes, one), robot, *batch)
    together, fast = timed(jaxdyn.sharded_vmap(function, in_axes), robot, *batch)
    pairs = zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True)
    error = max(float(np.abs(np.asarray(x) - np.asarray(y)).max() / np.abs(x).max()) for x, y in pairs)
    print(f"{name}: 1 device {count / slow:,.0f} {unit}/s, {jax.device_count()} devices {count / fast:,.0f} {unit}/s")
    print(f"  largest relative difference {error:.0e}")
    assert error < 1e-10

few = rng.normal(size=(3, 13, 7))  # 13 states on 8 devices are padded to 16; the padding is removed from the result
uneven = jaxdyn.sharded_vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0))(robot, *few)
assert np.allclose(uneven, jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0))(robot, *few), rtol=1e-12)
print(f"{len(uneven)} states on {jax.device_count()} devices: also correct")
