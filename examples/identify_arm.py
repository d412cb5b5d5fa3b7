"""Identification from Python: from a log to a validated model; here for a simulated UR10 with a user-defined coupling term.

Replace the synthetic logs by `jaxdyn.read_log("run.csv")`. Writes the folder identified_arm.
"""

import dataclasses
import os

import jax.numpy as jnp
import numpy as np

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))

kinematics = jaxdyn.robots.ur10()
truth = jaxdyn.model.with_leaves(
    kinematics,
    {
        "armature": jnp.array([3.0, 3.0, 1.5, 0.4, 0.4, 0.4]),
        "friction.viscous": jnp.array([15.0, 15.0, 9.0, 2.0, 2.0, 2.0]),
        "friction.coulomb": jnp.array([10.0, 12.0, 6.0, 2.0, 2.0, 1.5]),
    },
)
model = dataclasses.replace(kinematics, inertia=kinematics.inertia * 0.8)  # what the CAD file says

seconds = 10.0 if FAST else 20.0
logs = [
    jaxdyn.identification.synthetic_log(
        truth,
        jaxdyn.identification.random_excitation(truth, seconds, 5, seed),
        rate=250.0,
        torque_noise=1.0,
        seed=seed,
        source=name,
    )
    for seed, name in ((1, "excitation"), (2, "validation"))
]
result = jaxdyn.identify(model, logs[0], logs[1], progress=None)

print(f"{result.base.size} base parameters, condition number {result.wls.condition:.0f}")
for name, value, deviation in list(
    zip(result.base.names, result.wls.values, result.wls.standard_deviations, strict=True)
)[:6]:
    print(f"  {value:10.4f} +- {deviation:.4f}  {name}")
unseen = result.validation[0].fit
print(
    "torque error on the validation run, N m RMS:", np.round(unseen.rms, 2), f"({unseen.total_relative:.1f} % in all)"
)
print("viscous friction found:", np.round(np.asarray(result.chain.friction.viscous), 2))
assert unseen.total_relative < 5

paths = jaxdyn.report.write_all(result, "identified_arm")
print("written:", ", ".join(sorted(str(p) for p in paths.values())))
