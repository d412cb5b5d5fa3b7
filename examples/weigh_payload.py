"""Weighing with an arm that measures motor currents: a known weight calibrates the drive gains.

A UR10 with friction, whose drive gains differ from their nominal values, is simulated in three runs: without load, with a
weight of 2.8 kg, and with a tool. The figure, weigh_payload.png, shows the estimated gains, and the mass of the tool identified
with nominal and with estimated gains.
"""

import dataclasses
import os

import equinox as eqx
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
SECONDS, RATE = (10.0, 50.0) if FAST else (30.0, 100.0)

robot = jaxdyn.robots.ur10()
arm = jaxdyn.model.with_leaves(
    robot,
    {
        "armature": jnp.array([3.0, 3.0, 1.5, 0.4, 0.4, 0.4]),
        "friction.viscous": jnp.array([15.0, 15.0, 9.0, 2.0, 2.0, 2.0]),
        "friction.coulomb": jnp.array([10.0, 12.0, 6.0, 2.0, 2.0, 1.5]),
    },
)
believed = np.array([14.9, 13.3, 11.1, 10.6, 11.0, 11.5])  # nominal gains from the data sheet [N m/A]
true = believed * np.array([0.85, 0.92, 0.90, 0.97, 0.88, 0.93])


def record(mass, com, seed):
    """A log with a body at the tip, whose torques are computed from the currents with the nominal gains."""
    inertia = 0.4 * mass * 0.05**2 * jnp.eye(3)
    payload = jaxdyn.spatial.inertia.inertial_parameters_from_com(jnp.asarray(mass), jnp.asarray(com), inertia)
    loaded = eqx.tree_at(lambda c: c.inertia, arm, arm.inertia.at[-1].add(payload))
    motion = jaxdyn.identification.random_excitation(loaded, SECONDS, 5, seed)
    log = jaxdyn.identification.synthetic_log(loaded, motion, None, RATE, 1e-5, 1.0, seed, f"{mass:g} kg")
    return dataclasses.replace(log, tau=log.tau / true * believed)


empty = record(0.0, [0.0, 0.0, 0.0], 1)
weight = record(2.8, [0.0, 0.05, 0.10], 2)
tool = record(1.7, [0.04, 0.0, 0.12], 3)
tip = robot.link_names[-1]

for finding in jaxdyn.identification.diagnose(robot, empty):
    print("!", finding.text)
before = jaxdyn.identification.identify_payload(robot, tool, unloaded=empty, frame=tip)
gains = jaxdyn.identification.calibrate_gains(robot, empty, weight, 2.8, frame=tip, gains=believed)
after = jaxdyn.identification.identify_payload(robot, tool, unloaded=empty, frame=tip, gains=gains)
for name, k, sd, right in zip(robot.joint_names, gains.gains, gains.standard_deviations, true, strict=True):
    print(f"{name:22s} {k:7.3f} +- {sd:.3f} N m/A (true: {right:.3f})")
print(f"tool: {before.mass:.3f} kg with the nominal gains,")
print(f"      {after.mass:.3f} +- {after.standard_deviations[0]:.3f} kg with the estimated gains (true: 1.7 kg)")
assert abs(after.mass - 1.7) < 0.05

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(2, 1), layout="constrained")
joints = np.arange(1, 7)
left.errorbar(
    joints, gains.gains / believed, 2 * gains.standard_deviations / believed, fmt="o", label="estimate ± 2 sd"
)
left.plot(joints, true / believed, "_", color="black", markersize=22, label="truth")
left.axhline(1, color="grey", lw=0.8, ls=":", label="nominal")
left.set(xlabel="joint", ylabel="drive gain / nominal gain", xticks=joints)
figure.legend(loc="outside lower left", ncols=3)
for x, found in enumerate((before, after)):
    right.errorbar([x], [found.mass], [2 * found.standard_deviations[0]], fmt="o", color="C0")
right.axhline(1.7, color="black", lw=0.8, label="truth")
right.set(ylabel="mass of the tool [kg]", xticks=(0, 1), xlim=(-0.5, 1.5))
right.set_xticklabels(["nominal gains", "estimated gains"])
right.legend()
figure.savefig("weigh_payload.png", dpi=120)
print("written: weigh_payload.png")
