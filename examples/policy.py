"""Policy optimisation through thousands of rollouts: a cart that swings up its pole, with unknown masses and friction.

A small network maps positions and velocities to a bounded force on the cart. The gradient of the mean cost is backpropagated
through every step of every rollout. Each rollout has its own initial state and robot: masses vary by +-20 %, and friction
varies as well. The trained policy is then tested on unseen robots. Writes policy.png and policy.gif.
"""

import dataclasses
import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
rollouts, batch, updates, steps, dt = (16, 8, 10, 20, 0.05) if FAST else (4096, 256, 700, 70, 0.03)

# a slider along x with a rod of 0.6 m on a hinge about y: the rod hangs down at q = 0 and is upright at q = pi
cart = jaxdyn.spatial.solids.point(1.0)
rod = jaxdyn.spatial.solids.rod(
    0.3, 0.6, pose=np.block([[np.eye(3), np.array([[0], [0], [-0.3]])], [np.zeros((1, 3)), 1]])
)
robot = jaxdyn.make_chain(
    rotation=np.tile(np.eye(3), (2, 1, 1)),
    translation=np.zeros((2, 3)),
    screw=[[0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]],
    inertia=np.stack([cart, rod]),
    frames={"pole_end": (1, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, -0.6], [0, 0, 0, 1]])},
    friction=jaxdyn.Friction(viscous=[0.1, 0.005]),
    topology=jaxdyn.Topology.serial(2, tip_name="pole_end"),
)


def at_goal(chain, knot, weights):
    (x, angle), (speed, turning) = knot.q, knot.v
    return weights * jnp.stack([x, jnp.sqrt(2 * (1 + jnp.cos(angle)) + 1e-6), speed, turning])


problem = jaxdyn.trajectory.OptimalControlProblem(
    robot,
    q0=jnp.zeros(2),
    v0=jnp.zeros(2),
    steps=steps,
    dt=dt,
    running=(
        jaxdyn.trajectory.UserCost(at_goal, jnp.array([0.7, 1.5, 0.1, 0.1])),
        jaxdyn.trajectory.TorqueCost(jnp.array([0.03, 0.0])),
    ),
    terminal=(jaxdyn.trajectory.UserCost(at_goal, jnp.array([1.0, 3.0, 0.5, 0.5])),),
    torque_limits=jnp.array([[-20.0, 20.0], [0.0, 0.0]]),  # the hinge has no motor
)


class Swing(eqx.Module):
    net: eqx.nn.MLP

    def __call__(self, t, q, v):
        seen = jnp.stack([q[0], jnp.cos(q[1]), jnp.sin(q[1]), v[0] / 3, v[1] / 8])
        return jnp.stack([20.0 * self.net(seen), jnp.zeros((), q.dtype)])


def robots(key, count):
    masses, friction = jax.random.split(key)
    scale = jax.random.uniform(masses, (count, 2, 1), minval=0.8, maxval=1.2)
    damping = jax.random.uniform(friction, (count, 2), maxval=jnp.array([0.3, 0.02]))
    return eqx.tree_at(lambda c: (c.inertia, c.friction.viscous), robot, (robot.inertia * scale, damping))


def starts(key, count):
    q, v = jax.random.split(key)
    return 0.2 * jax.random.normal(q, (count, 2)), 0.2 * jax.random.normal(v, (count, 2))


keys = jax.random.split(jax.random.key(0), 5)
policy = Swing(eqx.nn.MLP(5, "scalar", 32, 2, jnp.tanh, final_activation=jnp.tanh, key=keys[0]))
begin = time.perf_counter()
found = jaxdyn.trajectory.optimise_policy(
    policy,
    problem,
    *starts(keys[1], rollouts),
    robots(keys[2], rollouts),
    batch=batch,
    updates=updates,
    optimiser=jaxdyn.trajectory.clipped_adam(optax.cosine_decay_schedule(6e-3, updates)),
    # checkpoint=1 requires little memory and compiles faster
    settings=jaxdyn.trajectory.PolicySettings(checkpoint=None if FAST else 1),
)
print(f"{found.message}, {time.perf_counter() - begin:.0f} s: {rollouts} robots, {batch} per update")

# evaluate on unseen robots and initial states, and compare with the untrained policy
unseen, fresh = robots(keys[3], rollouts), starts(keys[4], rollouts)
before, after = (np.asarray(jaxdyn.trajectory.policy_costs(p, problem, *fresh, unseen)) for p in (policy, found.policy))
print(
    f"on {rollouts} unseen robots: cost {before.mean():.2f} untrained, {after.mean():.2f} trained, worst {after.max():.2f}"
)
assert after.mean() < before.mean()
swing = jax.jit(
    jax.vmap(
        lambda m, f, q, v: jaxdyn.trajectory.policy_trajectory(
            found.policy,
            dataclasses.replace(
                problem, chain=jaxdyn.model.with_leaves(robot, {"inertia": m, "friction.viscous": f}), q0=q, v0=v
            ),
        )
    )
)
motions = swing(unseen.inertia[:200], unseen.friction.viscous[:200], *(x[:200] for x in fresh))

figure = Figure(figsize=(10, 3.2), layout="constrained")
left, middle, right = figure.subplots(1, 3)
left.plot(found.history["cost"], color="tab:blue")
left.set(xlabel="update", ylabel="mean cost of a batch", yscale="log")
height = -0.6 * np.cos(np.asarray(motions.q[..., 1]))
middle.plot(np.asarray(motions.t[0]), height.T, color="tab:blue", alpha=0.1, linewidth=0.8)
middle.axhline(0.6, color="black", linestyle=":", linewidth=1)
middle.set(xlabel="time [s]", ylabel="height of the pole's tip [m]", title=f"{len(height)} unseen robots")
bins = np.linspace(0, np.quantile(np.concatenate([before, after]), 0.99), 40)
right.hist([before, after], bins=bins, label=["untrained", "trained"], color=["tab:gray", "tab:blue"])
right.set(xlabel="cost of a rollout", ylabel="number of unseen robots")
right.legend()
figure.savefig("policy.png", dpi=120)
jaxdyn.view.animate(
    robot, motions.t[0], motions.q[0], "policy.gif", fps=4 if FAST else 20, direction=(8, -90), size=(420, 320)
)
