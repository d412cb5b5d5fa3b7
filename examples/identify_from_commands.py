"""Identify the position servos of a leg from commanded and measured positions, without torques.

The leg hangs from a stand. Its servos hold each command for 5 ms, react a few milliseconds later, and its encoders
have 14 bits. The log is simulated here; in practice, read it with `jaxdyn.read_log`, with columns t, q1 .. and q_cmd1 ..
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn

jax.config.update("jax_enable_x64", True)
RATE, STEPS, SECONDS = 200, 80, 8.0  # of the log [Hz], integration steps per row, duration [s]

leg = jaxdyn.make_chain(
    rotation=[np.eye(3)] * 2,
    translation=[[0, 0, 0], [0, 0, -0.21]],
    screw=[[0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]],
    inertia=[[1.15, 0, 0, -0.04, 0.007, 0, 0.007, 0, 0, 1e-3], [0.25, 0, 0, -0.03, 0.006, 0, 0.006, 0, 0, 5e-5]],
    limits=jaxdyn.JointLimits(position=[[-1.0, 1.6], [-2.3, -0.6]], velocity=[8.0, 8.0]),
)
friction = dataclasses.replace(leg.friction, viscous=jnp.array([0.3, 0.2]), coulomb=jnp.array([0.2, 0.15]))
real = dataclasses.replace(leg, armature=jnp.array([0.01, 0.006]), friction=friction)
kp, kd, bias = jnp.array([60.0, 40.0]), jnp.array([1.0, 0.6]), jnp.array([0.02, -0.03])
delay = np.array([0.007, 0.0115])

# the log: commands, each held for one row, and the positions that the encoders show
t = np.arange(round(SECONDS * RATE)) / RATE
command = jaxdyn.identification.random_excitation(leg, SECONDS, 20, seed=1, usage=0.7).sampled(t)[0]
now = np.arange(len(t) * STEPS) / (RATE * STEPS)
row = np.maximum(np.floor((now[:, None] - delay) * RATE + 1e-6).astype(int), 0)
acting = jnp.asarray(command[row, [0, 1]])


@jax.jit
def simulate(acting):
    def step(state, u):
        q, qd = state
        tau = kp * (u - q - bias) - kd * qd
        return jaxdyn.step(real, q, qd, tau, 1 / (RATE * STEPS)), q + bias

    return jax.lax.scan(step, (acting[0] - bias, jnp.zeros(2)), acting)[1]


bit = 2 * np.pi / 2**14
q = bit * np.round(np.asarray(simulate(acting))[::STEPS] / bit)
log = jaxdyn.Log(t, q, None, np.full_like(q, np.nan), "commands of a leg", command=command)

found = jaxdyn.identification.identify_from_commands(leg, log)
print(found)

truth = {"kp": kp, "delay": delay, "bias": bias, "armature": real.armature, "coulomb": friction.coulomb}
truth["viscous"] = friction.viscous + kd  # both act in the same way
for name, x in truth.items():
    off = np.abs(found[name] - np.asarray(x)) / found.deviations(name)
    print(f"{name:9} true {np.asarray(x)}, found {found[name].round(4)}, {off.round(1)} standard deviations away")
    assert np.all(off < 4), name
assert np.abs(found["delay"] - delay).max() < 2e-4
