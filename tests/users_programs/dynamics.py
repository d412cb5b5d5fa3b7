"""The core of the dynamics on a serial arm, in all sizes of batches, and on a mechanism with everything."""

import functools

import jax
import jax.numpy as jnp

import jaxdyn
from helpers import public, random_chain, random_mechanism

from .case import Case, normal

CORE = {  # after the chain: how many vectors of nv, positions first
    "inverse_dynamics": 3,
    "forward_dynamics": 3,
    "mass_matrix": 1,
    "crba": 1,
    "coriolis_matrix": 2,
    "bias_force": 2,
    "gravity_force": 1,
    "regressor": 3,
    "forward_kinematics": 1,
    "jacobian": 1,
    "inverse_dynamics_derivatives": 3,
    "forward_dynamics_derivatives": 3,
    "step": 3,
}
ALL_SIZES = "inverse_dynamics", "forward_dynamics"
SHORT = "inverse_dynamics", "forward_dynamics", "crba", "gravity_force", "regressor", "step"  # of a mechanism, first


def applied(name: str, chain: jaxdyn.Chain):
    """The function of the state, as users close over their robot."""
    function = functools.partial(public(name), chain)
    return (lambda q, v, tau: function(q, v, tau, 1e-3)) if name == "step" else function


def cases() -> dict[str, Case]:
    arm = random_chain(3)
    return {
        name: Case(applied(name, arm), normal(*[3] * count), core=name in ALL_SIZES) for name, count in CORE.items()
    }


def mechanism_cases() -> dict[str, Case]:
    """A tree with a floating base, a spherical joint, a joint that mimics another, and motors that move several joints."""
    chain = random_mechanism(3)

    def sample(count, rng):
        q = jaxdyn.random_configuration(chain, jax.random.key(rng.integers(2**31)))
        return q, *(jnp.asarray(rng.normal(size=chain.nv)) for _ in range(count - 1))

    # the quaternion in q is not free to move: differences leave the unit sphere, where the library normalises as it likes
    return {
        name: Case(
            applied(name, chain), functools.partial(sample, count), smooth=False, accuracy=1e5, dear=name not in SHORT
        )
        for name, count in CORE.items()
    }
