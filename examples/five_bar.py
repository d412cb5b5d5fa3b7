"""Coupled and decoupled five-bar linkages: a torque on one motor also moves the other, unless m3 l2 lc3 = m4 l1 lc4.

The script simulates a coupled and a decoupled linkage under gravity compensation and the same additional torque. M, C and g
are expressed in the two motor angles. Writes five_bar.png.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxdyn

jax.config.update("jax_enable_x64", True)


def linkage(lc4: float) -> jaxdyn.Chain:
    """The linkage in absolute angles, with the centre of mass of link 4 at a distance lc4 from its joint."""
    return jaxdyn.mechanisms.linkages.five_bar_chain(
        masses=(1.0, 1.0, 2.0, 0.8), l1=1.0, l2=0.4, com_distances=(0.5, 0.2, 0.5, lc4)
    )


def main() -> None:
    decoupled, coupled = linkage(2.0 * 0.4 * 0.5 / 0.8), linkage(0.1)
    start, rest = jnp.array([0.4, 1.3]), jnp.zeros(2)
    dt, steps = 2e-3, 500
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
    for ax, title, chain in (
        (axes[0], "m3 l2 lc3 = m4 l1 lc4", decoupled),
        (axes[1], "m3 l2 lc3 > m4 l1 lc4", coupled),
    ):
        push = lambda t, q, qd, c=chain: jaxdyn.gravity_force(c, q) + jnp.array([2.0, 0.0]) * jnp.sin(4 * jnp.pi * t)
        q, qd = jax.jit(lambda q, c=chain, p=push: jaxdyn.rollout(c, q, rest, p, dt, steps=steps, method="rk4"))(start)
        moved = jnp.abs(q - start).max(0)
        bounds = jaxdyn.mass_matrix(chain, q[0])
        print(
            f"{title}: M12 = {bounds[0, 1]:.3f}, the second angle moves by {moved[1]:.2e} rad, the first by {moved[0]:.2f}"
        )
        ax.plot(dt * jnp.arange(steps + 1), q - start, label=["q1 (pushed)", "q2"])
        ax.set(title=title, xlabel="time [s]", ylabel="motion [rad]")
        ax.legend()
        ax.grid(alpha=0.3)
        coriolis = jax.vmap(lambda q, qd, c=chain: jaxdyn.coriolis_matrix(c, q, qd))(q, qd)
        if chain is decoupled:
            assert moved[1] < 1e-12 and jnp.abs(coriolis).max() < 1e-12 and moved[0] > 0.01
        else:
            assert moved[1] > 1e-3 and jnp.abs(coriolis).max() > 1e-3
    figure.savefig("five_bar.png", dpi=150)


if __name__ == "__main__":
    main()
