"""Gradient-based trajectory optimisation: the smallest feed-forward accelerations that move a 7R arm from rest to rest.

The arm is simulated with gravity compensation and damping. Sequential quadratic programming finds feed-forward accelerations
u that minimise |u|^2 subject to x_N(u) = goal, where x_N is the final state. The Jacobian J = dx_N/du is computed by
reverse-mode differentiation through the simulator. The next iterate u' is the least-norm solution of J u' = J u + goal - x_N.
Writes reach.png.
"""

import os

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
steps, dt = (40, 0.02) if os.environ.get("JAXDYN_EXAMPLES_FAST") else (100, 0.01)

robot = jaxdyn.robots.panda()
start = jnp.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8])
goal = jnp.concatenate([start + jnp.array([0.6, 0.4, -0.3, 0.5, 0.3, -0.4, 0.5]), jnp.zeros(7)])
inertia = jaxdyn.mass_matrix(robot, start)


def final_state(feedforward):
    def advance(state, u):
        q, qd = state
        tau = jaxdyn.gravity_force(robot, q) + inertia @ (u - 8 * qd)
        state = jaxdyn.step(robot, q, qd, tau, dt)
        return state, (state[0], tau)

    (q, qd), history = jax.lax.scan(advance, (start, jnp.zeros(7)), feedforward)
    return jnp.concatenate([q, qd]), history


@jax.jit
def improve(feedforward):
    state, _ = final_state(feedforward)
    jacobian = jax.jacrev(final_state, has_aux=True)(feedforward)[0].reshape(14, -1)
    target = jacobian @ feedforward.reshape(-1) + goal - state
    least = jacobian.T @ jnp.linalg.solve(jacobian @ jacobian.T, target)
    return least.reshape(feedforward.shape), jnp.abs(goal - state).max()


feedforward = jnp.zeros((steps, 7))
for k in range(10):
    feedforward, miss = improve(feedforward)
    print(
        f"iteration {k}: misses the goal by {miss:.1e}, RMS feed-forward {jnp.sqrt(jnp.mean(feedforward**2)):.2f} rad/s^2"
    )
state, (q, torques) = final_state(feedforward)
print(f"ends {jnp.abs(goal - state).max():.1e} from the goal")
assert jnp.abs(goal - state).max() < 1e-6

figure = Figure(figsize=(8, 3.5), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(jnp.arange(1, steps + 1) * dt, q, label=[f"joint {j + 1}" for j in range(7)])
left.set(xlabel="time [s]", ylabel="position [rad]")
figure.legend(loc="outside lower center", ncols=7, fontsize="small")
right.step(jnp.arange(steps) * dt, torques, where="post")
right.set(xlabel="time [s]", ylabel="torque [N m]")
figure.savefig("reach.png", dpi=120)
