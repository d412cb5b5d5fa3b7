"""Inverse kinematics of a batch of poses: success rate and speed for a Panda, and its workspace with the hand pointing down.

First, random reachable poses are solved with 1 to 16 starts. Then the workspace is sampled on a grid in a vertical plane
through the base, with the flange pointing down and free to rotate about the vertical. Writes inverse_kinematics.png.
"""

import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
count, across = (64, 10) if FAST else (2048, 60)

robot = jaxdyn.robots.panda()
keys = jax.random.split(jax.random.key(0), count)
positions = jax.vmap(functools.partial(jaxdyn.random_configuration, robot))(keys)
targets = jax.jit(jax.vmap(functools.partial(jaxdyn.frame_pose, robot)))(positions)


def solver(**named):
    one = lambda target: jaxdyn.inverse_kinematics(robot, target, **named)
    return jax.jit(lambda targets: jax.lax.map(one, targets, batch_size=64))


rates = {}
for starts in (16,) if FAST else (1, 2, 4, 8, 16):
    solve = solver(starts=starts)
    found = jax.block_until_ready(solve(targets))  # compilation is not timed
    begin = time.perf_counter()
    found = jax.block_until_ready(solve(targets))
    seconds = time.perf_counter() - begin
    rates[starts] = float((found.status == jaxdyn.trajectory.Status.CONVERGED).mean())
    print(f"{starts:2d} starts: {100 * rates[starts]:.2f} % of {count} poses, {1e6 * seconds / count:.0f} us per pose")
misses = jnp.linalg.norm(found.error, axis=1)
assert rates[16] >= 0.995

x, z = np.meshgrid(np.linspace(-1.0, 1.0, across), np.linspace(-0.5, 1.2, across))
down = jnp.diag(jnp.array([1.0, -1.0, -1.0, 1.0]))
plane = jnp.tile(down, (across * across, 1, 1)).at[:, 0, 3].set(x.ravel()).at[:, 2, 3].set(z.ravel())
found = solver(weights=(1, 1, 0, 1, 1, 1))(plane)
reached = np.asarray(found.status == jaxdyn.trajectory.Status.CONVERGED).reshape(across, across)
print(f"{found.message}")

figure = Figure(figsize=(11, 3.4), layout="constrained")
left, middle, right = figure.subplots(1, 3)
left.bar([str(k) for k in rates], [100 * r for r in rates.values()], color="tab:blue")
left.set(xlabel="starts", ylabel="poses reached [%]", ylim=(0, 105))
middle.hist(np.log10(np.maximum(misses, 1e-17)), bins=40, color="tab:blue")
middle.set(xlabel="log10 |error| [rad, m]", ylabel="poses", title=f"{count} random poses, 16 starts")
right.pcolormesh(x, z, reached, cmap="Blues", vmin=0, vmax=1.3, shading="nearest")
right.plot(0, 0, "k^", label="base")
right.set(xlabel="x [m]", ylabel="z [m]", title="reached with the flange down", aspect="equal")
right.legend(loc="lower right")
figure.savefig("inverse_kinematics.png", dpi=120)
