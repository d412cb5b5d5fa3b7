"""Links identified from a short, noisy log of a UR5e, by unconstrained least squares and with physical consistency.

The plot represents the true, prior and identified mass distribution of each link by an ellipse in the link's x-z plane, which
extends to two standard deviations about the centre of mass. Writes possible_bodies.png.
"""

import os

import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxdyn

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))

truth = jaxdyn.robots.ur5e()
rng = np.random.default_rng(0)
prior = jaxdyn.with_inertial_parameters(truth, truth.inertia * jnp.asarray(rng.uniform(0.6, 1.5, (6, 1))))
mass = float(truth.inertia[:, 0].sum())  # assumed to be known, because the arm was weighed
log = jaxdyn.identification.synthetic_log(
    truth,
    jaxdyn.identification.random_excitation(truth, 5.0, 5, seed=1),
    5.0 if FAST else 10.0,
    250.0,
    1e-4,
    2.0,
    source="short run",
)
result = jaxdyn.identify(
    prior,
    log,
    terms=jaxdyn.identification.Terms(("viscous", "coulomb"), choose=()),
    consistent=jaxdyn.identification.Consistency(mass=mass),
)
assert result.consistent is not None and not result.inconsistent_links

free = result.unconstrained[:60].reshape(6, 10)
possible = np.asarray(result.chain.inertia)
least = [np.linalg.eigvalsh(jaxdyn.spatial.inertia.pseudo_inertia(jnp.asarray(pi)))[0] for pi in free]
held = result.validation[0]
print(
    f"held-out error: {held.unconstrained.total_relative:.2f} % unconstrained, {held.fit.total_relative:.2f} % consistent"
)
for i, name in enumerate(truth.link_names):
    kind = "consistent" if least[i] > 0 else "inconsistent"
    print(
        f"{name:16s} true {float(truth.inertia[i, 0]):6.2f} kg, prior {float(prior.inertia[i, 0]):6.2f}, "
        f"unconstrained {free[i, 0]:6.2f} ({kind}), identified {possible[i, 0]:6.2f}"
    )
print(f"total identified mass {possible[:, 0].sum():.3f} kg; known: {mass:.3f} kg")


def outline(pi):
    """Ellipse in the x-z plane that extends to two standard deviations of the mass distribution [m]."""
    j = np.asarray(jaxdyn.spatial.inertia.pseudo_inertia(jnp.asarray(pi)))
    centre = j[:3, 3] / j[3, 3]
    spread = (j[:3, :3] / j[3, 3] - np.outer(centre, centre))[np.ix_([0, 2], [0, 2])]
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return centre[[0, 2], None] + 2 * np.linalg.cholesky(spread) @ circle


figure, axes = plt.subplots(2, 3, figsize=(10, 6.5), layout="constrained")
kinds = (("true", truth.inertia, "k-"), ("prior", prior.inertia, "C7--"), ("identified", possible, "C0-"))
for i, axis in enumerate(axes.flat):
    for label, inertia, style in kinds:
        axis.plot(*outline(inertia[i]), style, label=label)
    masses = ", ".join(f"{label} {float(inertia[i][0]):.2f}" for label, inertia, _ in kinds)
    note = f"unconstrained {free[i, 0]:.2f}" + ("" if least[i] > 0 else ": inconsistent")
    axis.set_title(f"{truth.link_names[i]} [kg]\n{masses}\n{note}", fontsize=8)
    axis.set(xlabel="x [m]", ylabel="z [m]")
    axis.locator_params(nbins=4)
    axis.axis("equal")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure.savefig("possible_bodies.png", dpi=120)
