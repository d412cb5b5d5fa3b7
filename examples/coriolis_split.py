"""Coriolis and centrifugal torques of a planar elbow arm, with the second joint driven directly and through a belt.

In joint angles, the torque of the first joint has a Coriolis term with qd1 qd2 and a centrifugal term with qd2^2. In the
absolute angles of an arm with a belt drive, only centrifugal terms remain. The script also computes the bearing forces of
the joints. Writes coriolis_split.png.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxdyn

jax.config.update("jax_enable_x64", True)


def split(chain, q, qd):
    """Coriolis torques, centrifugal torques, and their sum as computed by the Newton-Euler algorithm."""
    terms = jaxdyn.dynamics.velocity_products(chain, q)
    products = jnp.stack([qd[j] * qd[k] for j, k in terms.pairs])
    return terms.coriolis @ products, terms.centrifugal @ qd**2, jaxdyn.coriolis_force(chain, q, qd)


def main() -> None:
    elbow, belt = jaxdyn.textbook.planar_elbow(), jaxdyn.textbook.remotely_driven_elbow()
    t = jnp.linspace(0.0, 2.0, 201)
    angle = lambda t: jnp.stack([jnp.sin(np.pi * t), 1.2 - jnp.cos(2 * np.pi * t)])
    q = jax.vmap(angle)(t)
    qd = jax.vmap(jax.jacfwd(angle))(t)
    qdd = jax.vmap(jax.jacfwd(jax.jacfwd(angle)))(t)
    absolute = jnp.array([[1.0, 0.0], [1.0, 1.0]])

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for ax, title, chain, x, xd in (
        (axes[0], "joint angles", elbow, q, qd),
        (axes[1], "absolute angles (belt)", belt, q @ absolute.T, qd @ absolute.T),
    ):
        coriolis, centrifugal, whole = jax.jit(jax.vmap(lambda q, qd, c=chain: split(c, q, qd)))(x, xd)
        assert jnp.allclose(coriolis + centrifugal, whole, atol=1e-12)
        ax.plot(t, coriolis[:, 0], "C0", label="Coriolis, 1")
        ax.plot(t, centrifugal[:, 0], "C1", label="centrifugal, 1")
        ax.plot(t, centrifugal[:, 1], "C2--", label="centrifugal, 2")
        ax.set(title=title, xlabel="time [s]", ylabel="torque [N m]")
        print(
            f"{title}: largest Coriolis torque {jnp.abs(coriolis).max():.3f} N m, centrifugal {jnp.abs(centrifugal).max():.3f}"
        )
    wrenches = jax.jit(jax.vmap(lambda *x: jaxdyn.dynamics.joint_wrenches(elbow, *x)))(q, qd, qdd)
    forces = jnp.linalg.norm(wrenches[:, :, 3:], axis=2)
    axes[2].plot(t, forces, label=["joint 1", "joint 2"])
    axes[2].set(title="bearing forces", xlabel="time [s]", ylabel="force [N]")
    for ax in axes:
        ax.legend()
        ax.grid(alpha=0.3)
    figure.savefig("coriolis_split.png", dpi=150)


if __name__ == "__main__":
    main()
