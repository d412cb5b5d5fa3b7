"""A linear-quadratic regulator that holds an arm at a posture, from the analytic derivatives of its forward dynamics.

About an equilibrium, accelerations change by dqdd = A_q dq + A_v dqd + M^-1 dtau, where A_q and A_v are the derivatives of
forward dynamics. SciPy's Riccati solver computes the gains. Writes linearise.png.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import solve_continuous_are

import jaxdyn

jax.config.update("jax_enable_x64", True)


def main() -> None:
    arm = jaxdyn.robots.panda()
    n = arm.n
    pose = jnp.asarray([0.0, -0.3, 0.0, -2.0, 0.0, 1.8, 0.6])
    hold = jaxdyn.gravity_force(arm, pose)
    d = jax.jit(jaxdyn.forward_dynamics_derivatives)(arm, pose, jnp.zeros(n), hold)
    a = np.block([[np.zeros((n, n)), np.eye(n)], [np.asarray(d.q), np.asarray(d.qd)]])
    b = np.vstack([np.zeros((n, n)), np.asarray(d.tau)])
    riccati = solve_continuous_are(a, b, np.diag([400.0] * n + [4.0] * n), 0.05 * np.eye(n))
    gain = jnp.asarray(20.0 * b.T @ riccati)  # R^-1 B^T P
    open_loop, closed_loop = np.linalg.eigvals(a), np.linalg.eigvals(a - b @ np.asarray(gain))
    print(
        f"largest real part of the eigenvalues: {open_loop.real.max():.2f} 1/s without feedback, "
        f"{closed_loop.real.max():.2f} 1/s with feedback"
    )

    def policy(time, q, qd):
        del time
        return hold - gain @ jnp.concatenate([q - pose, qd])

    start = pose + 0.2 * jnp.asarray([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0])
    dt, steps = 1e-3, 2000
    run = jax.jit(lambda q: jaxdyn.rollout(arm, q, jnp.zeros(n), policy, dt, steps=steps))
    q, _ = run(start)
    error = np.asarray(q - pose)
    print(f"largest error: {np.abs(error[0]).max():.3f} rad at the start, {np.abs(error[-1]).max():.1e} rad after 2 s")
    assert np.abs(error[-1]).max() < 1e-3

    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axes.plot(dt * np.arange(steps + 1), error, label=[f"joint {i + 1}" for i in range(n)])
    axes.set(xlabel="time [s]", ylabel="position error [rad]", title="Linear-quadratic regulator of a 7R arm")
    axes.legend(ncols=2)
    axes.grid(alpha=0.3)
    figure.savefig("linearise.png", dpi=150)


if __name__ == "__main__":
    main()
