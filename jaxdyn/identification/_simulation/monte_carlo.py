"""A benchmark arm with its controller, and logs of it: what Monte-Carlo comparisons of estimators start from.

The protocol is that of BIRDy (Leboutet, Roux, Janot, Guadarrama-Olvera & Cheng, "Inertial Parameter Identification in
Robotics: A Survey", Applied Sciences 2021): an arm under its own position controller, noise on positions and torques, and
estimators that start from perturbed, physically possible parameters.
"""

from operator import attrgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...dynamics import crba
from ...dynamics._equations.regressor import DRIVE_LEAVES
from ...errors import ModelError
from ...io._logs.log import Log
from ...model._build import check_inertia
from ...model._chain import Chain, with_leaves
from ...model._dh import from_dh
from ...model._joint_properties import Friction, JointLimits
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


def tx40_like(**leaves) -> Chain:
    """A six-joint arm with the kinematics of a Staubli TX40 and inertias, friction and rotors of its size, uncoupled.

    Modified Denavit-Hartenberg table a, alpha, d, theta and friction as published for the TX40 (Gautier, Janot & Vandanjon
    2013); masses and inertias are rounded, possible ones of that size, no measurement. The width of the smooth sign is
    0.1 rad/s, so that explicit integration at 1 kHz is stable. Every argument of `make_chain` may be given.
    """
    half = np.pi / 2
    mass = np.array([8.6, 4.85, 4.07, 3.62, 1.02, 0.2])
    centre = np.array(
        [(0, 0, -0.05), (0.081, -0.0015, 0.033), (0.008, 0.006, 0.065), (0.004, -0.002, -0.16), (0, -0.003, -0.001),
         (0, 0, 0.042)]
    )  # fmt: skip
    about_centre = np.array(
        [(0.40, 0.0, 0.40, 0.0, 0.0, 0.35), (0.011, 0.0002, 0.051, -0.0027, 0.0001, 0.051),
         (0.005, 0.0, 0.005, 0.001, -0.0006, 0.0042), (0.016, 0.0, 0.0155, -0.001, 0.0, 0.004),
         (0.001, 0.0, 0.001, 0.0, 0.0, 0.001), (0.0032, 0.0, 0.0032, 0.0, 0.0, 0.00035)]
    )  # fmt: skip
    first = mass[:, None] * centre
    square = (centre**2).sum(1)[:, None, None] * np.eye(3) - centre[:, :, None] * centre[:, None, :]
    shift = mass[:, None] * square[:, (0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)]
    given = {
        "armature": [0.36, 0.51, 0.083, 0.034, 0.036, 0.011],
        "friction": Friction([7.9, 5.7, 2.0, 1.1, 1.6, 0.69], [7.0, 7.8, 6.2, 2.4, 3.4, 1.8], 0.1),
        "limits": JointLimits(
            np.radians([(-180, 180), (-125, 125), (-138, 138), (-270, 270), (-120, 133.5), (-270, 270)]),
            np.radians([287, 287, 430, 410, 320, 700]),
        ),
    }
    return from_dh(
        a=[0, 0, 0.225, 0, 0, 0],
        alpha=[0, -half, 0, half, -half, half],
        d=[0.32, 0, 0.035, 0.225, 0, 0],
        theta=[0, -half, half, 0, 0, np.pi],
        inertia=np.hstack([mass[:, None], first, about_centre + shift]),
        convention="modified",
        **{**given, **leaves},
    )


def drive_gains(chain: Chain, frequency: float = 120.0, damping: float = 1.0) -> ProportionalDerivativeLaw:
    """A position controller of a bandwidth in rad/s: kp = w^2 J, kd = 2 z w J with J of each joint in a stretched pose.

    What a drive's tuning gives: J is the diagonal of the mass matrix at q = 0 [kg m^2].
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
    """A log of the chain under the loop's controller, which sees the noisy positions, at the loop's rate of samples.

    Because the noise goes through the controller into the torques and the motion, the regressor's errors and the torques'
    depend on each other, as on a real robot.

    Raises:
        ModelError: the loop is not stable with this chain.
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
    """Chains whose inertial, friction and rotor parameters are off by a relative deviation each, and possible for bodies.

    Starts of a Monte-Carlo comparison: each parameter is multiplied by 1 + deviation N(0, 1), link by link again until a body
    can have the result.

    Raises:
        ModelError: no possible link was found in a thousand draws.
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
        f"no possible body was found within {100 * deviation:g} % of {name}'s parameters; perturb them less"
    )
