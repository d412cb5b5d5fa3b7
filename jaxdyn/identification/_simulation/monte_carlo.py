"""A position controller and logs of an arm under it, for Monte-Carlo comparisons of estimators.

The protocol is that of BIRDy (Leboutet, Roux, Janot, Guadarrama-Olvera & Cheng, "Inertial Parameter Identification in
Robotics: A Survey", Applied Sciences 2021): an arm under its own position controller, noise on positions and torques, and
estimators that start from perturbed, physically consistent parameters.
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
        position: of the encoders [rad].
        torque: of the torques [N m].
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
    """A position controller of a bandwidth in rad/s: kp = w^2 J, kd = 2 z w J with J of each joint in a stretched pose.

    Like a drive's tuning: J is the diagonal of the mass matrix at q = 0 [kg m^2].
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
    """A log of the chain under the loop's controller, which uses the noisy positions, at the loop's sample rate.

    The controller feeds the noise back into torques and motion, so errors of regressor and torques are correlated, as
    on a real robot.

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
        raise ModelError("the simulated closed loop is not stable: lower its gains, or its period")
    tau = tau + noise.torque * rng.normal(size=tau.shape)
    t = loop.t_0 + np.arange(len(q)) / loop.rate
    return Log(t=t, q=q + q_noise[:: loop.every], qd=None, tau=tau, source=source)


@jax.jit
def _run(loop, chain, seen):
    return simulate_closed_loop(loop, chain, noise=seen)


def perturbed_chains(chain: Chain, count: int, deviation: float = 0.15, seed: int = 0) -> list[Chain]:
    """Chains whose inertial, friction and rotor parameters are perturbed by a relative deviation, and physically consistent.

    Starts of a Monte-Carlo comparison: each parameter is multiplied by 1 + deviation N(0, 1), redrawn for each link
    until it is physically consistent.

    Raises:
        ModelError: no physically consistent link in a thousand draws.
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
        f"no physically consistent parameters were found within {100 * deviation:g} % of {name}'s; perturb them less"
    )
