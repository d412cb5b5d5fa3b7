"""Friction with memory: identification of an elbow arm whose joints have presliding friction.

The logs are simulated. To use logs of your robot, read them with `jaxdyn.read_log("run.csv")` and preprocess them at the
full rate with `stride=1`. The script selects the friction model of each joint by cross-validation, fits it, and compares it
with viscous and Coulomb friction on a held-out run. It writes friction.png.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
RATE, SECONDS = 100.0, 12.0 if FAST else 30.0

arm = jaxdyn.textbook.planar_elbow()
truth = jaxdyn.identification.FrictionModel(
    (
        jaxdyn.identification.Viscous(),
        jaxdyn.identification.MaxwellSlip(width=1e-3),
        jaxdyn.identification.LoadedSlip(width=1e-3),
    )
)
torques = np.array([2.0, 1.5, 0.05, 1.0, 0.8, 0.04])  # fv1, fz1, fzl1, fv2, fz2, fzl2


def run(seed: int) -> jaxdyn.identification.Samples:
    """Samples of a motion that repeatedly slows down to creep speed, with its torques."""
    t = np.arange(round(SECONDS * RATE)) / RATE
    clock = np.cumsum(np.clip(1.3 * np.sin(0.9 * t) + 0.6, 0.002, None)) / RATE
    rng = np.random.default_rng(seed)
    f, p = rng.uniform(0.1, 0.9, (2, 2, 3))
    q = 0.8 * np.sin(2 * np.pi * (clock[:, None, None] * f + p)).sum(2)
    qd = np.gradient(q, 1 / RATE, axis=0)
    qdd = np.gradient(qd, 1 / RATE, axis=0)
    still = jaxdyn.identification.Samples(t, q, qd, qdd, np.zeros_like(q), RATE, ((0, len(t)),), 8.0, 8.0)
    load = np.asarray(jax.vmap(lambda *x: jaxdyn.inverse_dynamics(arm, *x))(*map(jnp.asarray, (q, qd, qdd))))
    noise = 0.05 * rng.normal(size=q.shape)
    tau = load + truth.signals(still, load) @ torques + noise
    return jaxdyn.identification.Samples(t, q, qd, qdd, tau, RATE, ((0, len(t)),), 8.0, 8.0)


runs = [run(seed) for seed in range(3)]
every = jaxdyn.identification.friction_candidates()
models = {name: every[name] for name in ("plain", "slip", "slip, load")}
choice = jaxdyn.identification.choose_friction(arm, runs[:2], models, stride=2)
print(choice)
fit = jaxdyn.identification.fit_friction(arm, runs[:2], choice.model, stride=2)
names = fit.model.nonlinear_names()
for j, row in enumerate(fit.nonlinear):
    print(f"joint {j + 1}: " + ", ".join(f"{name} = {x:.3g}" for name, x in zip(names, row, strict=True)))
plain = jaxdyn.identification.fit_friction(arm, runs[:2], models["plain"], stride=2)

unseen = runs[2]
errors = [np.sqrt(((unseen.tau - each.predict(unseen)) ** 2).mean(0)) for each in (plain, fit)]
print("RMS torque error on a held-out run [N m]: plain", errors[0].round(3), "selected", errors[1].round(3))
assert np.all(errors[1] < 0.08) and choice.best == ("slip, load", "slip, load")

figure = Figure(figsize=(9, 4), layout="constrained")
left, right = figure.subplots(1, 2)
shown = slice(0, int(10 * RATE))
for each, label in ((plain, "plain"), (fit, "with memory and load")):
    left.plot(unseen.t[shown], (unseen.tau - each.predict(unseen))[shown, 0], lw=0.8, label=label)
    friction = each.predict(unseen) - each.load(unseen)
    right.plot(unseen.qd[:, 0], friction[:, 0], ".", ms=2, label=label)
left.set(xlabel="t [s]", ylabel="torque error of joint 1 [N m]", title="held-out run")
right.set(xlabel="speed of joint 1 [rad/s]", ylabel="friction of joint 1 [N m]")
left.legend()
right.legend()
figure.savefig("friction.png")
print("written: friction.png")
