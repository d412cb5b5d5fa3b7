"""Position controllers and simulated logs of position-controlled arms, for Monte Carlo comparisons of estimators.

The protocol follows BIRDy (Leboutet, Roux, Janot, Guadarrama-Olvera & Cheng, "Inertial Parameter Identification in
Robotics: A Survey", Applied Sciences 2021). An arm is position-controlled, its positions and torques are noisy, and
estimators start from perturbed but physically consistent parameters.
"""

from operator import attrgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...dynamics import crba
from ...dynamics._equations.drive_regressors import DRIVE_LEAVES
from ...errors import ModelError
from ...io._logs.log import Log
from ...model._build import check_inertia
from ...model._chain import Chain, with_leaves
from .._regression.robot import as_float64
from .closed_loop import ClosedLoop, ProportionalDerivativeLaw, simulate_closed_loop


class NoiseLevel(NamedTuple):
    """Standard deviations of white measurement noise.

    Attributes:
        position: standard deviation of the noise on positions [rad or m].
        torque: standard deviation of the noise on torques [N m or N].
    """

    position: float
    torque: float


_DEGREE = np.pi / 180
NOISE_LEVELS = {
    "low_position": NoiseLevel(1e-4 * _DEGREE, 0.05),
    "standard": NoiseLevel(1e-3 * _DEGREE, 0.05),
    "high_torque": NoiseLevel(1e-3 * _DEGREE, 0.1),
    "high_position": NoiseLevel(1e-2 * _DEGREE, 0.05),
    "high_both": NoiseLevel(1e-2 * _DEGREE, 0.1),
}


def drive_gains(chain: Chain, frequency: float = 120.0, damping: float = 1.0) -> ProportionalDerivativeLaw:
    """Create a position controller with bandwidth w and gains kp = w^2 J and kd = 2 z w J.

    As is usual in drive tuning, the inertia J of each joint is constant. It is the joint's diagonal entry of the mass
    matrix at q = 0 [kg m^2 or kg].

    Args:
        chain: the robot.
        frequency: bandwidth w [rad/s].
        damping: damping ratio z.
    """
    with jax.enable_x64(True):
        model = as_float64(chain)
        inertia = np.diag(np.asarray(crba(model, jnp.zeros(chain.n))))
        return ProportionalDerivativeLaw(
            jnp.asarray(frequency**2 * inertia), jnp.asarray(2 * damping * frequency * inertia)
        )


def closed_loop_log(
    chain: Chain,
    loop: ClosedLoop,
    noise: NoiseLevel = NOISE_LEVELS["standard"],
    seed: int = 0,
    source: str = "simulated",
) -> Log:
    """Simulate a log of a robot whose controller receives noisy positions.

    The log has the sample rate of the loop. The controller feeds the noise back into the torques and the motion, so the
    errors of the regressor and of the torques are correlated, as on a real robot.

    Args:
        chain: the true robot.
        loop: the closed loop.
        noise: standard deviations of the measurement noise.
        seed: seed for the random noise.
        source: name of the log.

    Raises:
        ModelError: the loop is unstable with this chain.
    """
    rng = np.random.default_rng(seed)
    q_noise = noise.position * rng.normal(size=np.shape(loop.q))
    with jax.enable_x64(True):
        seen = jnp.asarray(q_noise), jnp.zeros_like(jnp.asarray(q_noise))
        motion = _run(loop, as_float64(chain), seen)
        q, tau = np.asarray(motion.q), np.asarray(motion.tau)
    if not np.all(np.isfinite(q)):
        raise ModelError("the simulated closed loop is unstable; reduce its gains or its period")
    tau = tau + noise.torque * rng.normal(size=tau.shape)
    t = loop.t_0 + np.arange(len(q)) / loop.rate
    return Log(t=t, q=q + q_noise[:: loop.every], qd=None, tau=tau, source=source)


@jax.jit
def _run(loop, chain, seen):
    return simulate_closed_loop(loop, chain, noise=seen)


def perturbed_chains(chain: Chain, count: int, deviation: float = 0.15, seed: int = 0) -> list[Chain]:
    """Create physically consistent chains with randomly perturbed inertial, friction and rotor parameters.

    The chains serve as initial models for Monte Carlo comparisons. Each parameter is multiplied by 1 + `deviation` z,
    where z is a standard normal random number. The parameters of a link are drawn again until they are physically
    consistent.

    Args:
        chain: the robot to perturb.
        count: number of chains.
        deviation: relative standard deviation of each perturbed parameter.
        seed: seed for the random number generator.

    Raises:
        ModelError: no physically consistent parameters are found for a link in a thousand draws.
    """
    rng = np.random.default_rng(seed)
    inertia = np.asarray(chain.inertia, float)
    out = []
    for _ in range(count):
        rows = [_possible(rng, name, pi, deviation) for name, pi in zip(chain.link_names, inertia, strict=True)]
        leaves = {"inertia": np.stack(rows)}
        for name in DRIVE_LEAVES.values():
            leaves[name] = np.abs(1 + deviation * rng.normal(size=chain.n)) * np.asarray(attrgetter(name)(chain))
        out.append(with_leaves(chain, {name: jnp.asarray(x, chain.dtype) for name, x in leaves.items()}))
    return out


def _possible(rng: np.random.Generator, name: str, pi: np.ndarray, deviation: float) -> np.ndarray:
    for _ in range(1000):
        drawn = pi * (1 + deviation * rng.normal(size=10))
        try:
            check_inertia(name, drawn)
        except ModelError:
            continue
        return drawn
    raise ModelError(
        f"no physically consistent parameters of {name} were found with a perturbation of {100 * deviation:g} %; "
        "use a smaller one"
    )
