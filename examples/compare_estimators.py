"""Estimators of `identify` on three logs of one arm: clean, with collisions, and with coarse positions.

All estimators give the identified robot, its intervals and its report in the same way; only the weights of the rows differ.
Weighted least squares suits clean logs. Huber's weights withstand collisions. Commanded positions as instruments remove the
bias that noisy positions cause.
"""

import dataclasses
import os

import jax
import matplotlib
import numpy as np

import jaxdyn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
SECONDS = 10.0 if FAST else 30.0
ESTIMATORS = ("ordinary", "weighted", "huber", "instrumental")
SETTINGS = {
    "filters": jaxdyn.identification.Filters(position_cutoff=15.0, delay=0.0),
    "terms": jaxdyn.identification.Terms(choose=()),
}


def logs_of(arm):
    """Logs of the same motion: clean, with 20 collisions of 50 ms, and with position noise of 0.1 degrees."""
    motion = jaxdyn.identification.random_excitation(arm, 10.0, 5, seed=1)
    clean = jaxdyn.identification.synthetic_log(arm, motion, SECONDS, 250.0, 1e-5, 0.2, seed=2)
    exact = jaxdyn.identification.synthetic_log(arm, motion, SECONDS, 250.0, 0.0, 0.0)
    clean = dataclasses.replace(clean, command=exact.q)
    rng = np.random.default_rng(0)
    tau = clean.tau.copy()
    for start in rng.integers(0, len(tau) - 12, 20):
        tau[start : start + 12] += rng.normal(size=arm.n) * [200.0, 200.0, 100.0, 30.0, 30.0, 30.0]
    noisy = clean.q + np.deg2rad(0.1) * rng.normal(size=clean.q.shape)
    return {
        "clean": clean,
        "collisions": dataclasses.replace(clean, tau=tau),
        "coarse positions": dataclasses.replace(clean, q=noisy),
    }


def main():
    jax.config.update("jax_enable_x64", True)
    arm = jaxdyn.robots.ur10()
    clean = logs_of(arm)
    errors = np.zeros((len(ESTIMATORS), len(clean)))
    for column, (name, log) in enumerate(clean.items()):
        for row, estimator in enumerate(ESTIMATORS):
            result = jaxdyn.identify(arm, log, estimator=estimator, **SETTINGS)
            torque = [jaxdyn.identification.base.model_torque(x, result.fitted[0].samples) for x in (arm, result.chain)]
            errors[row, column] = 100 * np.linalg.norm(torque[1] - torque[0]) / np.linalg.norm(torque[0])
            print(f"{name:18s}{estimator:14s}torques of the identified robot wrong by {errors[row, column]:.3f} %")
    weighted, huber, instrumental = (errors[ESTIMATORS.index(x)] for x in ("weighted", "huber", "instrumental"))
    assert huber[1] < 0.5 * weighted[1] and instrumental[2] < weighted[2]
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for k, estimator in enumerate(ESTIMATORS):
        axes.bar(np.arange(errors.shape[1]) + 0.2 * (k - 1.5), errors[k], 0.18, label=estimator)
    axes.set(yscale="log", ylabel="error of the torques [%]", xticks=range(errors.shape[1]), xticklabels=list(clean))
    axes.legend()
    figure.savefig("compare_estimators.png", dpi=110)


if __name__ == "__main__":
    main()
