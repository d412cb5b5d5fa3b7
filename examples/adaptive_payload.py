"""Adaptive control: a 7R arm picks up an unknown load, tracks its reference nevertheless, and estimates the mass.

The controller adapts the ten parameters of the last link by the natural law, so that they stay physically consistent.
Beside it the same controller without adaptation. Draws tracking errors and the estimate: adaptive_payload.png.
"""

import os

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
DT, SECONDS, LOAD = 1e-3, 8.0 if FAST else 20.0, 1.5

model = jaxdyn.robots.panda(friction=jaxdyn.Friction(viscous=0.5))
load = jaxdyn.spatial.solids.box(
    LOAD, (0.1, 0.06, 0.12), jaxdyn.spatial.se3.pose(jnp.eye(3), jnp.array([0.02, -0.01, 0.17]))
)
robot = jaxdyn.with_inertial_parameters(model, model.inertia.at[-1].add(load))

centre = jnp.array([0.0, -0.3, 0.0, -2.0, 0.0, 2.0, 0.8])
amplitude = jnp.array([0.5, 0.3, 0.4, 0.4, 0.5, 0.4, 0.6])
frequency = 2 * jnp.pi * jnp.array([0.30, 0.25, 0.35, 0.40, 0.45, 0.50, 0.55])


def position(t):
    return centre + amplitude * (1 - jnp.cos(frequency * t)) * (1 - jnp.exp(-t))


def reference(t):
    """Position, velocity and acceleration wanted."""
    velocity = jax.jacfwd(position)
    return jaxdyn.control.JointReference(position(t), velocity(t), jax.jacfwd(velocity)(t))


@jax.jit
def run(gain):
    controller = jaxdyn.control.AdaptiveControl(
        slope=10.0,
        damping=jnp.array([20.0, 20.0, 15.0, 15.0, 4.0, 4.0, 2.0]),
        bodies=jaxdyn.control.NaturalAdaptation(gain),
        links=(model.link_names[-1],),
    )

    def law(state, t, q, v):
        tau = controller.torque(model, state, q, v, reference(t))
        return tau, controller.update(model, state, q, v, reference(t), DT)

    motion = jaxdyn.control.controlled_rollout(
        robot, centre, jnp.zeros(7), (law, controller.start(model)), DT, round(SECONDS / DT), every=10
    )
    estimate = jax.vmap(lambda state: controller.estimate(model, state).inertia[-1])(motion.state)
    return motion.t, jax.vmap(position)(motion.t) - motion.q, estimate


t, error, estimate = run(10.0)
_, without, _ = run(0.0)
last = slice(-round(1.0 / DT / 10), None)
rms = [float(jnp.sqrt((e[last] ** 2).mean())) for e in (without, error)]
weighed = estimate[:, 0] - model.inertia[-1, 0]
print(
    f"tracking error, RMS of the last second: {1e3 * rms[0]:.2f} mrad without adaptation, {1e3 * rms[1]:.2f} mrad with it"
)
print(f"load {LOAD:.2f} kg, weighed {float(weighed[-1]):.2f} kg")
bodies = jax.vmap(jaxdyn.spatial.inertia.pseudo_inertia)(estimate)
assert float(jnp.linalg.eigvalsh(bodies).min()) > 0  # physically consistent at every instant
assert rms[1] < rms[0] / (3 if FAST else 10)

figure = Figure(figsize=(9, 3.4), layout="constrained")
left, right = figure.subplots(1, 2)
for e, label in ((without, "fixed model"), (error, "adaptive")):
    left.semilogy(t, jnp.maximum(jnp.linalg.norm(e, axis=1), 1e-6), label=label)
left.set(xlabel="time [s]", ylabel="tracking error |q_d - q| [rad]", ylim=(1e-4, None))
left.legend()
right.plot(t, weighed, label="mass [kg]")
right.axhline(LOAD, color="tab:blue", linestyle=":", linewidth=1)
moment = estimate[:, 3] - model.inertia[-1, 3]
right.plot(t, moment, color="tab:orange", label="first moment along the flange [kg m]")
right.axhline(float(load[3]), color="tab:orange", linestyle=":", linewidth=1)
right.set(xlabel="time [s]", ylabel="estimate of the load (dotted: true)", ylim=(-0.2, 2.5 * LOAD))
right.legend()
figure.savefig("adaptive_payload.png", dpi=120)
