"""A small identification for the tests of what is reported: two joints, five seconds, a held-out part."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from helpers import linear_friction, random_chain
from jaxdyn import Chain, Log, friction_force, identify, inverse_dynamics
from jaxdyn.identification import Identification, Terms


@functools.cache
def small_example() -> tuple[Chain, Identification]:
    """The true robot, of a revolute and a prismatic joint, and what was identified from its log."""
    truth = linear_friction(random_chain(2, seed=3))
    prior = dataclasses.replace(truth, inertia=truth.inertia * 1.1)
    rng = np.random.default_rng(1)
    t = np.arange(1000) / 200
    w = np.array([2.3, 5.1, 8.7])[:, None, None] * rng.uniform(0.9, 1.1, (3, 1, 2))
    phase = w * t[:, None] + rng.uniform(0, 6, (3, 1, 2))
    q, qd, qdd = (sum(x) / 3 for x in (np.sin(phase), w * np.cos(phase), -(w**2) * np.sin(phase)))
    tau = jax.vmap(lambda *x: inverse_dynamics(truth, *x) + friction_force(truth, x[1]))(
        *map(jnp.asarray, (q, qd, qdd))
    )
    noise = rng.normal(size=(2, *q.shape)) * np.array([1e-5, 0.1])[:, None, None]
    log = Log(t, q + noise[0], None, np.asarray(tau) + noise[1], source="run <1> & more.csv")
    return truth, identify(prior, log, terms=Terms(choose=()))
