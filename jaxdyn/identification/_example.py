"""The embedded default of the main job: a built-in arm, simulated with friction and noise, to be identified."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from ..io._log import Log
from ..model._chain import Chain
from ..model.robots import panda
from ._excitation import random_excitation
from ._synthetic import synthetic_log


def example(seed: int = 0) -> tuple[Chain, Chain, list[Log], list[Log]]:
    """A true 7R arm, the model one would have of it, a log to fit and a log to validate on.

    The truth has friction, reflected rotor inertia and torque offsets; the model has none, and its links' masses and moments
    are off by some 15 %, as a CAD model's are. The logs are 20 s and 10 s of two random Fourier motions at 500 Hz, with encoder
    noise of 1e-5 rad and torque noise of 0.2 N m.
    """
    rng = np.random.default_rng(seed)
    model = panda()
    n = model.n
    truth = dataclasses.replace(
        model,
        armature=jnp.asarray([0.6, 0.6, 0.5, 0.5, 0.2, 0.2, 0.15], model.dtype),
        viscous_friction=jnp.asarray(rng.uniform(0.2, 1.2, n), model.dtype),
        coulomb_friction=jnp.asarray(rng.uniform(0.2, 0.8, n), model.dtype),
        torque_offset=jnp.asarray(rng.normal(size=n) * 0.1, model.dtype),
    )
    scale = jnp.asarray(1 + 0.15 * rng.normal(size=(n, 1)), model.dtype)
    prior = dataclasses.replace(model, inertia=model.inertia * scale)
    fit = synthetic_log(
        truth, random_excitation(truth, 10.0, 6, seed=1), 20.0, 500.0, 1e-5, 0.2, 2, "simulated excitation"
    )
    check = synthetic_log(
        truth, random_excitation(truth, 10.0, 5, seed=3), 10.0, 500.0, 1e-5, 0.2, 4, "simulated validation"
    )
    return truth, prior, [fit], [check]
