"""Synthetic logs: a known robot moved along a trajectory, with friction and sensor noise, for trials and teaching."""

import jax
import jax.numpy as jnp
import numpy as np

from ..dynamics import friction_force, inverse_dynamics
from ..io._log import Log
from ..model._chain import Chain
from ._excitation import FourierTrajectory


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
    """A log of the chain following a trajectory: tau = inverse_dynamics + friction_force, plus white noise.

    Args:
        duration: length [s]; one period of the trajectory where None.
        rate: samples a second [Hz].
        position_noise: standard deviation of the encoders' noise [rad or m].
        torque_noise: standard deviation of the torque sensors' noise [N m].
    """
    with jax.enable_x64(True):
        model = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
        t = np.arange(round((trajectory.period if duration is None else duration) * rate)) / rate
        q, qd, qdd = trajectory(jnp.asarray(t))
        torque = jax.jit(jax.vmap(lambda *x: inverse_dynamics(model, *x) + friction_force(model, x[1])))(q, qd, qdd)
        q, torque = np.asarray(q), np.asarray(torque)
    rng = np.random.default_rng(seed)
    return Log(
        t=t,
        q=q + position_noise * rng.normal(size=q.shape),
        qd=None,
        tau=torque + torque_noise * rng.normal(size=q.shape),
        source=source,
    )
