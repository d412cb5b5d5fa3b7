"""Two arms of the same type with different friction, identified together, and a tool identified on a known arm.

Two UR5e arms are simulated; the second has 1.5 times the friction of the first. Identifying them together determines the
parameters of the links more precisely than the log of one arm alone. In a second step, the first arm carries a tool, and only
its last link is identified; the other links are known exactly or to within 5 %. Writes two_arms.png, which shows standard
deviations and the identified mass of the tool.
"""

import os

import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import jaxdyn
from jaxdyn.identification import Knowledge, Terms, identify_together, random_excitation, synthetic_log

SECONDS = 10.0 if os.environ.get("JAXDYN_EXAMPLES_FAST") else 20.0


def arm(friction: float) -> jaxdyn.Chain:
    """A UR5e whose gear friction is scaled by the factor `friction`."""
    leaves = {
        "armature": jnp.array([1.0, 1.0, 0.6, 0.2, 0.2, 0.2]),
        "friction.viscous": friction * jnp.array([5.0, 5.0, 4.0, 1.0, 1.0, 1.0]),
        "friction.coulomb": friction * jnp.array([4.0, 4.0, 3.0, 1.0, 1.0, 1.0]),
    }
    return jaxdyn.model.with_leaves(jaxdyn.robots.ur5e(), leaves)


def record(robot: jaxdyn.Chain, seed: int) -> jaxdyn.Log:
    return synthetic_log(robot, random_excitation(robot, SECONDS, 5, seed), None, 100.0, 1e-6, 0.3, seed, f"run {seed}")


left, right = arm(1.0), arm(1.5)
model = jaxdyn.with_inertial_parameters(left, left.inertia * np.linspace(0.8, 1.3, 6)[:, None])
logs, plain = {"left": record(left, 1), "right": record(right, 2)}, Terms(choose=())
both, alone = identify_together(model, logs), jaxdyn.identify(model, logs["left"], terms=plain)
for name, found in both.items():
    print(f"{name:5s} viscous friction", np.array2string(np.asarray(found.chain.friction.viscous), precision=2))
ratio = both["left"].estimate.standard_deviations / alone.estimate.standard_deviations
of_links = np.array([name[0] in "Im" for name in alone.base.names])
print(f"standard deviations of the links: {np.median(ratio[of_links]):.2f} times those from one log")
assert np.median(ratio[of_links]) < 0.9

tool = jnp.array([1.6, 0.03, -0.05, 0.2, 0.04, 0.001, 0.038, -0.003, 0.004, 0.008])
held = record(jaxdyn.with_inertial_parameters(left, left.inertia.at[-1].add(tool)), 3)
last, masses = left.link_names[-1:], []
for deviation in (0.0, 0.05):
    knowledge = Knowledge(links=last, deviation=deviation)
    found = jaxdyn.identify(left, held, terms=plain, knowledge=knowledge)
    k = [name.split()[0] for name in found.base.names].index("m6")
    masses.append((found.estimate.values[k] - float(left.inertia[-1, 0]), found.estimate.standard_deviations[k]))
    print(f"tool, arm known to {100 * deviation:g} %: {masses[-1][0]:.3f} +- {masses[-1][1]:.3f} kg (true: 1.6 kg)")
assert abs(masses[0][0] - 1.6) < 0.05

figure, (one, two) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(2, 1), layout="constrained")
where = np.flatnonzero(of_links)
one.semilogy(alone.estimate.standard_deviations[where], "o", color="grey", label="left arm's log only")
one.semilogy(both["left"].estimate.standard_deviations[where], ".", color="C0", label="both arms together")
one.set(xlabel="index of the base parameter", ylabel="standard deviation [SI units]")
one.legend()
for x, (mass, sd) in enumerate(masses):
    two.errorbar([x], [mass], [2 * sd], fmt="o", color="C0", capsize=4)
two.axhline(1.6, color="black", lw=0.8, label="truth")
two.set(ylabel="mass of the tool [kg]", xticks=(0, 1), xlim=(-0.5, 1.5))
two.set_xticklabels(["arm known exactly", "arm known to 5 %"])
two.legend()
figure.savefig("two_arms.png", dpi=120)
print("written: two_arms.png")
