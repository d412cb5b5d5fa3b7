"""Synthetic logs of a known robot along a trajectory, with friction and sensor noise, for tests and teaching."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..io.logs import Log
from ..model.chain import Chain
from ..textbook.robots import panda
from .base import motion_torque
from .excitation import FourierTrajectory, random_excitation


class NoiseLevel(NamedTuple):
    """Standard deviations of white measurement noise; the defaults are those of a good arm.

    Attributes:
        position: standard deviation of the noise on positions [rad or m].
        torque: standard deviation of the noise on torques [N m or N].
    """

    position: float = 1e-3 * np.pi / 180
    torque: float = 0.05


def synthetic_log(
    chain: Chain,
    trajectory: FourierTrajectory,
    duration: float | None = None,
    rate: float = 1000.0,
    position_noise: float = 1e-5,
    torque_noise: float = 0.1,
    seed: int = 0,
    source: str = "synthetic",
) -> Log:
    """Create a log of a robot that follows a trajectory exactly, with white measurement noise.

    The torques along the trajectory are the sum of `inverse_dynamics` and `resistive_force`.

    Args:
        chain: the robot.
        trajectory: the trajectory, which the robot follows exactly.
        duration: duration of the log [s]; by default one period of the trajectory.
        rate: sample rate [1/s].
        position_noise: standard deviation of the encoder noise [rad or m].
        torque_noise: standard deviation of the torque noise [N m or N].
        seed: seed for the random noise.
        source: name of the log.
    """
    with jax.enable_x64(True):
        model = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
        t = np.arange(round((trajectory.period if duration is None else duration) * rate)) / rate
        q, qd, qdd = trajectory.sampled(t)
        torque = motion_torque(model, q, qd, qdd)
    rng = np.random.default_rng(seed)
    return Log(
        t=t,
        q=q + position_noise * rng.normal(size=q.shape),
        qd=None,
        tau=torque + torque_noise * rng.normal(size=q.shape),
        source=source,
    )


def example(seed: int = 0) -> tuple[Chain, Chain, list[Log], list[Log]]:
    """Create example data: a true 7R arm, a typical model of this arm, a log to fit and a log for validation.

    The true arm has friction, reflected rotor inertia and torque offsets, and the model has none of these. In the
    model, the inertial parameters of each link are wrong by a random factor with a standard deviation of 15 %, which is
    typical of CAD models. The log to fit lasts 20 s, and the one for validation 10 s. Each follows a random Fourier
    trajectory at 500 Hz, with encoder noise of 1e-5 rad and torque noise of 0.2 N m.
    """
    rng = np.random.default_rng(seed)
    model = panda()
    n = model.n
    truth = dataclasses.replace(
        model,
        armature=jnp.asarray([0.6, 0.6, 0.5, 0.5, 0.2, 0.2, 0.15], model.dtype),
        friction=dataclasses.replace(
            model.friction,
            viscous=jnp.asarray(rng.uniform(0.2, 1.2, n), model.dtype),
            coulomb=jnp.asarray(rng.uniform(0.2, 0.8, n), model.dtype),
            offset=jnp.asarray(rng.normal(size=n) * 0.1, model.dtype),
        ),
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
