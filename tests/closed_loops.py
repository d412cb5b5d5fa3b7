"""Closed loops in continuous time for the tests of controllers: exact rates along them, and Runge-Kutta in small steps."""

import jax
import jax.numpy as jnp

import jaxdyn


def acceleration(chain, q, v, tau):
    """Of the robot with its friction and springs."""
    return jaxdyn.forward_dynamics(chain, q, v, tau - jaxdyn.resistive_force(chain, q, v))


def along(function, state, rate):
    """d/dt of a function of a state that changes at this rate."""
    return jax.jvp(function, (state,), (rate,))[1]


def runge_kutta(rate, state, dt, steps, watch=lambda t, state: state):
    """Rows watch(t, state) at t = 0, dt, ..., of d state/dt = rate(t, state), a pytree; the classical scheme."""
    moved = lambda x, k, h: jax.tree.map(lambda a, b: a + h * b, x, k)

    def one(state, k):
        t = k.astype(float) * dt

        def stage(carry, x):  # compiled once, not four times
            slope, total = carry
            node, weight = x
            slope = rate(t + node * dt, moved(state, slope, node * dt))
            return (slope, moved(total, slope, weight * dt)), None

        nodes, weights = jnp.asarray([[0.0, 0.5, 0.5, 1.0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]])
        still = jax.tree.map(jnp.zeros_like, state)
        (_, ahead), _ = jax.lax.scan(stage, (still, state), (nodes, weights))
        return ahead, watch(t, state)

    return jax.lax.scan(one, state, jnp.arange(steps + 1))[1]


def wave(q0, amplitude, frequency):
    """A motion t -> (q, v, a) about q0, one sine a joint."""

    def reference(t):
        phase = frequency * t + jnp.arange(len(q0), dtype=q0.dtype)
        q = q0 + amplitude * (jnp.sin(phase) - jnp.sin(phase - frequency * t))
        return jaxdyn.control.JointReference(
            q, amplitude * frequency * jnp.cos(phase), -amplitude * frequency**2 * jnp.sin(phase)
        )

    return reference


def disturbed(chain, seed=0, spread=0.25):
    """The same robot with other masses: each link's body scaled, with its inertia, by up to 1 +- spread."""
    scale = 1 + spread * jax.random.uniform(jax.random.key(seed), (chain.n, 1), minval=-1.0, maxval=1.0)
    return jaxdyn.with_inertial_parameters(chain, chain.inertia * scale)
