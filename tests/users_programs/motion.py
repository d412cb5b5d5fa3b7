"""Simulation, closed loops of bodies, and constraints."""

import functools

import jax.numpy as jnp
import numpy as np

import jaxdyn
from helpers import public, random_chain
from jaxdyn import mechanisms

from .case import Case, normal

DEAR = "constrained_rollout", "adaptive_rollout", "moving_base_rollout", "hybrid_rollout"
ANGLES = np.array([[1.0, 0], [0, 1], [1, -1], [-1, 1]])  # joint positions of the five-bar from its absolute angles
INDEPENDENT = "joint1", "joint2"


def cases() -> dict[str, Case]:
    arm = random_chain(3)
    found = {
        "rollout": Case(lambda q, v, tau: jaxdyn.rollout(arm, q, v, tau, 1e-3), normal(3, 3, (5, 3))),
        "adaptive_rollout": Case(
            lambda q, v, tau: jaxdyn.adaptive_rollout(arm, q, v, tau, jnp.asarray([0.0, 0.01, 0.02]), max_steps=32)[:2],
            normal(3, 3, (2, 3)),
            derivatives=False,  # one of the two modes, as `adjoint` says: tests/test_rollouts.py
            accuracy=1e7,
        ),
    }
    chain, pin = jaxdyn.mechanisms.linkages.five_bar()

    def closed(vectors, independent=0):
        def sample(rng):
            y, rates = rng.uniform(0.3, 1.2, 2) + np.array([0.0, 1.2]), rng.normal(size=(vectors, 4))
            w = rng.normal(size=(independent, 2))
            moving = [ANGLES @ x[:2] for x in rates[:1]] + list(rates[1:])
            return tuple(jnp.asarray(x) for x in (ANGLES @ y, *w, *moving))

        return sample

    bound = lambda name, **named: functools.partial(public(name), chain, pin, **named)
    loose = {
        "smooth": False,
        "accuracy": 1e7,
    }  # off the loop's configurations, where differences go, nothing is promised
    found |= {
        "constraint_residual": Case(bound("constraint_residual"), closed(0)),
        "constraint_jacobian": Case(bound("constraint_jacobian"), closed(0)),
        "constraint_bias": Case(bound("constraint_bias"), closed(1)),
        "constrained_forward_dynamics": Case(
            lambda *x: bound("constrained_forward_dynamics")(*x).acceleration, closed(2), **loose
        ),
        "constrained_inverse_dynamics": Case(
            lambda *x: bound("constrained_inverse_dynamics", actuated=INDEPENDENT)(*x).torques, closed(2), **loose
        ),
        "project_configuration": Case(
            lambda q: bound("project_configuration", held=INDEPENDENT)(q + 0.01).configuration, closed(0), **loose
        ),
        "project_velocity": Case(bound("project_velocity"), closed(1), **loose),
        "independent_coordinates": Case(bound("independent_coordinates", independent=INDEPENDENT), closed(0), **loose),
        "reduced_dynamics": Case(
            lambda q, w: bound("reduced_dynamics", independent=INDEPENDENT)(q, w), closed(0, 1), **loose
        ),
        "reduced_forward_dynamics": Case(
            lambda q, w, tau: bound("reduced_forward_dynamics", independent=INDEPENDENT)(q, w, tau),
            closed(1, 1),
            **loose,
        ),
        "reduced_regressor": Case(
            lambda q, w, a: bound("reduced_regressor", independent=INDEPENDENT)(q, w, a), closed(0, 2), **loose
        ),
        "reduced_coriolis_matrix": Case(
            lambda q, w: bound("reduced_coriolis_matrix", independent=INDEPENDENT)(q, w), closed(0, 1), **loose
        ),
        "reduced_gravity_force": Case(
            lambda q: bound("reduced_gravity_force", independent=INDEPENDENT)(q), closed(0), **loose
        ),
        "constrained_step": Case(lambda q, v, tau: bound("constrained_step")(q, v, tau, 1e-3), closed(2), **loose),
        "constrained_rollout": Case(
            lambda q, v, tau: bound("constrained_rollout")(q, v, jnp.stack([tau] * 3), 1e-3), closed(2), **loose
        ),
    }
    still = mechanisms.BaseMotion(jnp.eye(4), jnp.full(6, 0.3), jnp.full(6, -0.2))
    found |= {
        "base_motion": Case(lambda t: mechanisms.base_motion(_path, t), normal(())),
        "moving_base_inverse_dynamics": Case(
            lambda *x: mechanisms.moving_base_inverse_dynamics(arm, still, *x), normal(3, 3, 3)
        ),
        "moving_base_forward_dynamics": Case(
            lambda *x: mechanisms.moving_base_forward_dynamics(arm, still, *x), normal(3, 3, 3), accuracy=1e6
        ),
        "moving_base_rollout": Case(
            lambda *x: mechanisms.moving_base_rollout(arm, _path, *x, 1e-3), normal(3, 3, (3, 3)), accuracy=1e6
        ),
        "hybrid_dynamics": Case(
            lambda q, v, tau: mechanisms.hybrid_dynamics(arm, q, v, (1,), tau[:1], tau), normal(3, 3, 3), accuracy=1e6
        ),
        "hybrid_rollout": Case(
            lambda *x: mechanisms.hybrid_rollout(arm, {1: jnp.sin}, *x, 1e-3),
            normal(3, 3, (3, 3)),
            accuracy=1e6,
        ),
    }
    return {name: case._replace(dear=name in DEAR) for name, case in found.items()}


def _path(t):
    """Poses of a base that turns and moves."""
    return jaxdyn.spatial.se3.pose_exp(jnp.stack([t, -0.5 * t, t**2, jnp.cos(t), t, 0.3 * t]))
