"""Friction with memory: identification of an elbow arm whose joints have presliding friction.

The logs are simulated. To use logs of your robot, read them with `jaxdyn.read_log("run.csv")`. The script lets `identify`
select the friction of each joint, and compares it with viscous and Coulomb friction on a run that was not fitted. It writes
friction.png.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
RATE, SECONDS = 100.0, 15.0 if FAST else 30.0

arm = jaxdyn.textbook.planar_elbow()
truth = jaxdyn.identification.FrictionModel(
    (
        jaxdyn.identification.Viscous(),
        jaxdyn.identification.MaxwellSlip(width=1e-3),
        jaxdyn.identification.LoadedSlip(width=1e-3),
    )
)
torques = np.array([2.0, 1.5, 0.05, 1.0, 0.8, 0.04])  # fv1, fz1, fzl1, fv2, fz2, fzl2


def run(seed: int) -> jaxdyn.Log:
    """A motion that repeatedly slows down to creep speed, with its torques."""
    t = np.arange(round(SECONDS * RATE)) / RATE
    clock = np.cumsum(np.clip(1.3 * np.sin(0.9 * t) + 0.6, 0.002, None)) / RATE
    rng = np.random.default_rng(seed)
    f, p = rng.uniform(0.1, 0.9, (2, 2, 3))
    q = 0.8 * np.sin(2 * np.pi * (clock[:, None, None] * f + p)).sum(2)
    qd = np.gradient(q, 1 / RATE, axis=0)
    qdd = np.gradient(qd, 1 / RATE, axis=0)
    samples = jaxdyn.identification.Samples(t, q, qd, qdd, np.zeros_like(q), RATE, ((0, len(t)),), 8.0, 8.0)
    load = np.asarray(jax.vmap(lambda *x: jaxdyn.inverse_dynamics(arm, *x))(*map(jnp.asarray, (q, qd, qdd))))
    noise = 0.05 * rng.normal(size=q.shape)
    return jaxdyn.Log(t, q, None, load + truth.signals(samples, load) @ torques + noise, f"run {seed}")


*runs, unseen = (run(seed) for seed in range(3))
found = jaxdyn.identify(arm, runs, unseen)
print(found.choice)
for name, value, deviation, unit in zip(*found.friction.rows(), strict=True):
    print(f"{name:22s} {value:9.3g} +- {deviation:.2g} {unit}")
plain = jaxdyn.identify(arm, runs, unseen, terms=jaxdyn.identification.Terms(choose=()))

errors = [result.validation[0].fit.rms for result in (plain, found)]
print("RMS torque error on a run that was not fitted [N m]: plain", errors[0].round(3), "selected", errors[1].round(3))
assert np.all(errors[1] < 0.5 * errors[0])

figure = Figure(figsize=(9, 4), layout="constrained")
left, right = figure.subplots(1, 2)
for result, label in ((plain, "plain"), (found, "with memory and load")):
    shown = result.validation[0]
    s, error = shown.samples, shown.samples.tau - shown.prediction
    left.plot(s.t[s.t < 10], error[s.t < 10, 0], lw=0.8, label=label)
    rigid = np.asarray(jax.vmap(result.model.load)(*map(jnp.asarray, (s.q, s.qd, s.qdd))))
    right.plot(s.qd[:, 0], (shown.prediction - rigid)[:, 0], ".", ms=2, label=label)
left.set(xlabel="t [s]", ylabel="torque error of joint 1 [N m]", title="run that was not fitted")
right.set(xlabel="speed of joint 1 [rad/s]", ylabel="friction of joint 1 [N m]")
left.legend()
right.legend()
figure.savefig("friction.png")
print("written: friction.png")
