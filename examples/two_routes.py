"""The torques of a planar two-link arm computed in three ways: in closed form, by Euler-Lagrange and by Newton-Euler.

The textbook equations, the Euler-Lagrange equations by automatic differentiation of K - P (kinetic minus potential energy), and
the recursive Newton-Euler algorithm yield the same torques.
"""

import jax
import jax.numpy as jnp

import jaxdyn

jax.config.update("jax_enable_x64", True)

m1, m2, l1, l2, g = 1.2, 0.8, 0.5, 0.4, 9.81
arm = jaxdyn.textbook.planar_2r_point_masses(m1=m1, m2=m2, l1=l1, l2=l2, gravity=g)
q, qd, qdd = jnp.array([0.4, -0.9]), jnp.array([1.0, -0.7]), jnp.array([3.0, 0.5])

(c1, c2, c12), s2 = jnp.cos(jnp.array([q[0], q[1], q[0] + q[1]])), jnp.sin(q[1])
h = m2 * l1 * l2 * s2
mass = jnp.array(
    [
        [(m1 + m2) * l1**2 + m2 * l2**2 + 2 * m2 * l1 * l2 * c2, m2 * l2**2 + m2 * l1 * l2 * c2],
        [m2 * l2**2 + m2 * l1 * l2 * c2, m2 * l2**2],
    ]
)
coriolis = jnp.array([-h * (2 * qd[0] * qd[1] + qd[1] ** 2), h * qd[0] ** 2])
gravity = jnp.array([(m1 + m2) * g * l1 * c1 + m2 * g * l2 * c12, m2 * g * l2 * c12])

by_hand = mass @ qdd + coriolis + gravity
lagrange = jaxdyn.dynamics.euler_lagrange_torque(arm, q, qd, qdd)
newton_euler = jaxdyn.inverse_dynamics(arm, q, qd, qdd)
print("closed form     ", by_hand)
print("Euler-Lagrange  ", lagrange)
print("Newton-Euler    ", newton_euler)
assert jnp.allclose(by_hand, lagrange, rtol=1e-12) and jnp.allclose(by_hand, newton_euler, rtol=1e-12)

rate = jax.jvp(lambda x: jaxdyn.mass_matrix(arm, x), (q,), (qd,))[1]
skew = rate - 2 * jaxdyn.coriolis_matrix(arm, q, qd)
print("dM/dt - 2 C is skew-symmetric:\n", skew)
assert jnp.allclose(skew, -skew.T, atol=1e-12)
