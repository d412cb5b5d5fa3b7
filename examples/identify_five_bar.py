"""A five-bar linkage identified from its motors' encoders and torques, and decoupled by a counterweight.

The passive joints have neither encoders nor drives, but their angles follow from the pin that closes the linkage. The
unknown force of the pin is eliminated from the equations of motion, which then determine eight combinations of the forty
parameters of the links. One combination, d = m3 l2 lc3 - m4 l1 lc4, couples the two motors. A counterweight on link 4, behind
its joint, makes d zero; the script computes the mass of the counterweight from the identified d. Writes
identify_five_bar.png and identify_five_bar.html.
"""

import os

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import jaxdyn
from jaxdyn.identification import Columns, MechanismLog, identify_mechanism
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.mechanisms import linkages, project_configuration

jax.config.update("jax_enable_x64", True)
SECONDS, RATE, MOTORS = 8.0 if os.environ.get("JAXDYN_EXAMPLES_FAST") else 20.0, 250.0, ("joint1", "joint2")
SIZES = {"masses": (1.1, 0.9, 1.3, 0.7), "com_distances": (0.45, 0.2, 0.55, 0.3)}
FRICTION = {"friction.viscous": jnp.array([0.4, 0.3, 0.05, 0.05]), "friction.coulomb": jnp.array([0.3, 0.2, 0.0, 0.0])}
HOME = jnp.array([0.6, 1.8, -1.2, 1.2])  # a posture of the four joints [rad]


def motion(waves, t):
    """Motor angles at time t, each a sum of five sines."""
    frequency, phase = waves
    return HOME[:2] + 0.15 * (jnp.sin(2 * jnp.pi * frequency * t + phase) - jnp.sin(phase)).sum(axis=0)


@jax.jit
def torques(chain, waves, t):
    """Motor angles and motor torques at time t, for a linkage in absolute angles."""
    angles = lambda t: motion(waves, t)
    rates = lambda t: jax.jvp(angles, (t,), (1.0,))[1]
    y, (yd, ydd) = angles(t), jax.jvp(rates, (t,), (1.0,))
    return y, jaxdyn.inverse_dynamics(chain, y, yd, ydd) + jaxdyn.friction_force(chain, yd)


def record(tree, pin, seed: int, name: str) -> MechanismLog:
    """A log with encoders and torques only at the motors; the loop constraint determines the angles of the passive joints."""
    rng, t = np.random.default_rng(seed), np.arange(round(SECONDS * RATE)) / RATE
    waves = rng.uniform(0.2, 1.5, (5, 2)), rng.uniform(0, 2 * np.pi, (5, 2))
    real = jaxdyn.model.with_leaves(linkages.five_bar_chain(**SIZES), FRICTION)
    y, tau = jax.vmap(torques, (None, None, 0))(real, waves, t)
    y, tau = np.asarray(y) + 2e-5 * rng.normal(size=y.shape), np.asarray(tau) + 0.05 * rng.normal(size=y.shape)

    def closed(q, y):
        found = project_configuration(tree, pin, q.at[:2].set(y), held=MOTORS)
        return found.configuration, found

    found = jax.jit(lambda y: jax.lax.scan(closed, HOME, y)[1])(y)  # each solution is the next guess
    assert found.converged.all()
    q = np.asarray(found.configuration)
    return MechanismLog(t, q, np.hstack([tau, 0 * tau]), constraints=(pin,), source=name)


def closed_form(names: tuple[str, ...], l1: float = 1.0, l2: float = 0.4) -> dict[str, np.ndarray]:
    """Terms of M and g in the motor angles, each as a row of coefficients of the parameters."""
    terms = {
        "d11": {"Izz1": 1, "Izz3": 1, "m4": l1**2},
        "d22": {"Izz2": 1, "Izz4": 1, "m3": l2**2},
        "d": {"mx3": l2, "mx4": l1},
        "g1": {"mx1": 1, "mx3": 1, "m4": l1},
        "g2": {"mx2": 1, "mx4": 1, "m3": l2},
    }
    return {key: np.array([some.get(name, 0.0) for name in names]) for key, some in terms.items()}


def push(chain: jaxdyn.Chain):
    """Motion of both motors when a torque acts on motor 1, in addition to gravity compensation."""
    torque = lambda t, y, yd: jaxdyn.gravity_force(chain, y) + jnp.array([2.0, 0.0]) * jnp.sin(4 * jnp.pi * t)
    y, _ = jax.jit(lambda y: jaxdyn.rollout(chain, y, 0 * y, torque, 2e-3, steps=500))(HOME[:2])
    return y - HOME[:2]


def main() -> None:
    real, pin = linkages.five_bar(**SIZES)
    design = jaxdyn.with_inertial_parameters(real, real.inertia * jnp.array([[0.8], [1.2], [0.85], [1.15]]))
    log, unseen = record(real, pin, 1, "run"), record(real, pin, 2, "another run")
    found = identify_mechanism(design, log, unseen, columns=Columns(("viscous", "coulomb")))
    print(f"{found.base.size} combinations of {len(found.names)} parameters, including friction, are determined")
    values, by_design = {}, prior_parameters(design, found.columns)
    true = prior_parameters(jaxdyn.model.with_leaves(real, FRICTION), found.columns)
    for key, row in closed_form(found.names).items():
        of_base = np.linalg.lstsq(found.base.matrix.T, row, rcond=None)[0]
        value, sd = of_base @ found.estimate.values, np.sqrt(of_base @ found.estimate.covariance @ of_base)
        values[key] = value, sd, row @ true, row @ by_design
        print(f"{key:4s} {value:7.4f} +- {sd:.4f} (true: {row @ true:.4f}, design: {row @ by_design:.4f})")
        assert abs(value - row @ true) < 4 * sd
    print(f"torque error on another run: {found.validation[0].fit.total_relative:.2f} %")

    weight = values["d"][0]  # a mass at the tip of link 4, 1 m behind its joint, reduces d by l1 l4 times the mass
    print(f"a counterweight of {1e3 * weight:.0f} g at the tip decouples the motors")
    bare = linkages.five_bar_chain(**SIZES)
    body = jaxdyn.spatial.inertia.inertial_parameters_from_com(
        jnp.asarray(weight), jnp.array([-1.0, 0.0, 0.0]), jnp.zeros((3, 3))
    )
    balanced = jaxdyn.with_inertial_parameters(bare, bare.inertia.at[3].add(body))
    moved = [np.asarray(push(chain)) for chain in (bare, balanced)]
    reach = [np.abs(y[:, 1]).max() for y in moved]
    print(f"a torque on motor 1 moves motor 2 by {reach[0]:.1e} rad, and by {reach[1]:.1e} rad with the counterweight")
    assert reach[1] < 0.2 * reach[0]
    jaxdyn.report.write_report(found, "identify_five_bar.html")
    draw(real, values, moved)
    print("written: identify_five_bar.png, identify_five_bar.html")


def draw(tree: jaxdyn.Chain, values: dict[str, tuple[float, ...]], moved: list[np.ndarray]) -> None:
    """Draw the linkage with its counterweight, errors of the identified terms, and the motion under a torque on motor 1."""
    figure, (one, two, three) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    poses = np.asarray(jaxdyn.forward_kinematics(tree, HOME))
    at = lambda link, x: (poses[link] @ [x, 0, 0, 1])[:2]
    for k, (near, far) in enumerate(((0, 1.0), (0, 0.4), (0, 1.0), (-1.0, 0.4))):
        one.plot(*np.array([at(k, near), at(k, far)]).T, "o-", ms=4, lw=2.5, label=f"link {k + 1}", zorder=4 - k)
    one.plot(*at(3, -1.0), "o", ms=11, color="black", label="weight")
    one.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    one.legend(fontsize=7)
    value, sd, true, by_design = np.array(list(values.values())).T
    two.plot(100 * (by_design / true - 1), "x", color="C1", label="design")
    two.errorbar(
        range(len(true)), 100 * (value / true - 1), 200 * sd / true, fmt="o", capsize=3, label="identified, 2 sd"
    )
    two.axhline(0, color="grey", lw=0.8)
    two.set(xticks=range(len(values)), ylabel="error [%]", ylim=(-200, 20))
    two.set_yscale("symlog", linthresh=1)
    two.set_xticklabels(list(values))
    two.legend(fontsize=7)
    for y, style, of in zip(moved, ("--", "-"), ("without weight", "with weight"), strict=True):
        for k in range(2):
            three.plot(2e-3 * np.arange(len(y)), 1e3 * y[:, k], style, color=f"C{k}", label=f"q{k + 1} {of}")
    three.set(xlabel="time [s]", ylabel="motion after a torque on motor 1 [mrad]")
    three.legend(fontsize=7)
    figure.savefig("identify_five_bar.png", dpi=120)


if __name__ == "__main__":
    main()
