"""The zero moment point of a swaying biped computed in three ways: by recursion over the links, by sums, and from momentum.

The zero moment point is x = -n_y / f_z, y = n_x / f_z, where f is the force that the ground exerts on the foot,
and n its moment about the point below the ankle. Writes biped_zmp.png.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxdyn

jax.config.update("jax_enable_x64", True)
BIPED = jaxdyn.textbook.biped()
GRAVITY = 9.81


def motion(t):
    """Joint angles at time t of a motion in which the robot leans over its left foot, sways, and swings its right leg."""
    wave, lift = jnp.sin(np.pi * t), jnp.sin(np.pi * t / 2) ** 2
    sway, bend = 0.15 + 0.015 * wave, 0.25 + 0.05 * lift
    leg = [sway, -bend, 2 * bend, -bend, -sway]
    return jnp.stack([*leg, 0.02 * wave, -0.4 * lift, 0.6 * lift, 0 * t, 0 * t])


def by_sweep(q, v, a):
    """Zero moment point from the ground reaction, which is computed by the recursive Newton-Euler algorithm."""
    return jaxdyn.mechanisms.zero_moment_point(jaxdyn.mechanisms.ground_reaction(BIPED, q, v, a))


def by_sums(q, v, a):
    """Zero moment point from sums over the links, x = sum_i (m_i (zdd_i + g) x_i - m_i xdd_i z_i - (dH_i/dt)_y) / f_z."""
    mass, com, inertia = jax.vmap(jaxdyn.spatial.inertia.inertial_parameters_to_com)(BIPED.inertia)
    poses = jaxdyn.forward_kinematics(BIPED, q)
    motions = jaxdyn.dynamics.link_accelerations(BIPED, q, v, a, "body", "conventional")
    w = jaxdyn.dynamics.link_twists(BIPED, q, v)[:, :3]
    dw, origin = motions[:, :3], motions[:, 3:]
    rotate = lambda x: jnp.einsum("nij,nj->ni", poses[:, :3, :3], x)
    c = poses[:, :3, 3] + rotate(com)
    acceleration = rotate(origin + jnp.cross(dw, com) + jnp.cross(w, jnp.cross(w, com)))
    spin = jnp.einsum("nij,nj->ni", inertia, w)
    rate = rotate(jnp.einsum("nij,nj->ni", inertia, dw) + jnp.cross(w, spin))
    up = mass * (acceleration[:, 2] + GRAVITY)
    x = (up * c[:, 0] - mass * acceleration[:, 0] * c[:, 2] - rate[:, 1]).sum()
    y = (up * c[:, 1] - mass * acceleration[:, 1] * c[:, 2] + rate[:, 0]).sum()
    return jnp.stack([x, y]) / up.sum()


def by_momentum(q, v, a):
    """Zero moment point from the rate of change of the robot's momentum about the origin, minus the wrench of gravity."""
    moved = lambda t: jaxdyn.dynamics.total_momentum(BIPED, q + t * v, v + t * a)
    rate = jax.jvp(moved, (jnp.zeros(()),), (jnp.ones(()),))[1]
    weight = jnp.array([0, 0, -GRAVITY * jaxdyn.total_mass(BIPED)])
    pull = jnp.concatenate([jnp.cross(jaxdyn.centre_of_mass(BIPED, q), weight), weight])
    return jaxdyn.mechanisms.zero_moment_point(rate - pull)


def main() -> None:
    t = jnp.linspace(0.0, 2.0, 101)
    q = jax.vmap(motion)(t)
    v, a = jax.vmap(jax.jacfwd(motion))(t), jax.vmap(jax.jacfwd(jax.jacfwd(motion)))(t)
    routes = {f.__name__: jax.jit(jax.vmap(f))(q, v, a) for f in (by_sweep, by_sums, by_momentum)}
    off = max(float(jnp.abs(x - routes["by_sweep"]).max()) for x in routes.values())
    print(f"the three results differ by {off:.1e} m")
    assert off < 1e-10
    below = jax.vmap(lambda q: jaxdyn.centre_of_mass(BIPED, q))(q)

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for k, name in enumerate("xy"):
        axes[0].plot(t, routes["by_sweep"][:, k], f"C{k}", label=f"{name}, one sweep")
        axes[0].plot(t[::8], routes["by_sums"][::8, k], f"C{k}o", mfc="none", label=f"{name}, sums over links")
        axes[0].plot(t[4::8], routes["by_momentum"][4::8, k], f"C{k}x", label=f"{name}, momentum")
    axes[0].set(xlabel="time [s]", ylabel="zero moment point [m]")
    axes[0].legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[0].grid(alpha=0.3)
    axes[1].plot(*routes["by_sweep"].T, label="zero moment point")
    axes[1].plot(below[:, 0], below[:, 1], "--", label="projection of the centre of mass")
    axes[1].add_patch(plt.Rectangle((-0.08, -0.06), 0.22, 0.12, fill=False, ec="0.4", label="stance foot"))
    axes[1].set(xlabel="x, forward [m]", ylabel="y, to the left [m]", aspect="equal")
    axes[1].set(xlim=(-0.1, 0.16), ylim=(-0.08, 0.1))
    axes[1].legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[1].grid(alpha=0.3)
    figure.savefig("biped_zmp.png", dpi=150)


if __name__ == "__main__":
    main()
