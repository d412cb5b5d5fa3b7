"""Logs of robots with position servos, simulated by MuJoCo: coarse encoders, delayed commands and dry friction."""

import dataclasses

import jax.numpy as jnp
import mujoco
import numpy as np

import jaxdyn
from jaxdyn.textbook.robots import panda, ur5e

STEP = 2.5e-4  # of MuJoCo's integration, of which all delays are multiples [s]


def leg() -> jaxdyn.Chain:
    """A leg of a 12 kg quadruped that hangs from a stand: abduction, hip and knee."""
    turn = [np.eye(3)] * 3
    rod = lambda mass, x, y, z, about: [mass, mass * x, mass * y, mass * z, *_moments(mass, (x, y, z), about)]
    return jaxdyn.make_chain(
        rotation=turn,
        translation=[[0, 0, 0], [0, 0.08, 0], [0, 0, -0.213]],
        screw=[[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]],
        inertia=[
            rod(0.68, -0.005, 0.02, 0.0, (5e-4, 8e-4, 5e-4)),
            rod(1.15, -0.004, -0.02, -0.033, (6e-3, 5.8e-3, 1.1e-3)),
            rod(0.23, 0.006, 0.001, -0.12, (2.4e-3, 2.4e-3, 5e-5)),
        ],
        limits=jaxdyn.JointLimits(position=[[-0.8, 0.8], [-1.0, 2.2], [-2.5, -0.7]], velocity=[10.0, 10.0, 10.0]),
    )


def _moments(mass, at, about):
    """The six moments (xx, xy, yy, xz, yz, zz) about the frame's origin of a body with principal moments at `at`."""
    c = np.diag(about) + mass * (np.dot(at, at) * np.eye(3) - np.outer(at, at))
    return c[0, 0], c[0, 1], c[1, 1], c[0, 2], c[1, 2], c[2, 2]


@dataclasses.dataclass(frozen=True)
class Servos:
    """A robot with true armature and friction, and its servos: kp, kd, delays, biases of the encoders."""

    chain: jaxdyn.Chain
    kp: np.ndarray
    kd: np.ndarray
    delay: np.ndarray
    bias: np.ndarray

    def truth(self, name: str) -> np.ndarray:
        """The true values of a parameter; viscous friction includes kd, which acts in the same way."""
        f = self.chain.friction
        of_chain = {"armature": self.chain.armature, "coulomb": f.coulomb, "viscous": f.viscous}
        x = np.asarray(of_chain[name], float) if name in of_chain else getattr(self, name)
        return x + self.kd if name == "viscous" else x


# scales of each robot's servos: bandwidth [rad/s], damping ratio, armature [kg m^2], Coulomb friction [N m]
ROBOTS = {
    "leg": (leg, 35.0, 0.7, 0.008, 0.2),
    "ur5e": (ur5e, 30.0, 0.9, 0.6, 3.0),
    "panda": (panda, 25.0, 0.9, 0.3, 0.6),
}


def servos(robot: str, seed: int) -> tuple[jaxdyn.Chain, Servos]:
    """The model of a robot without drives, and the robot with random drives and servos."""
    make, frequency, ratio, armature, coulomb = ROBOTS[robot]
    chain, rng = make(), np.random.default_rng(seed)
    n = chain.n
    spread = lambda: rng.uniform(0.6, 1.4, n)
    own = armature * spread()
    mass = np.diag(np.asarray(jaxdyn.crba(chain, np.asarray(chain.limits.position).mean(1)))) + own
    friction = dataclasses.replace(
        chain.friction, viscous=jnp.asarray(0.5 * coulomb * spread()), coulomb=jnp.asarray(coulomb * spread())
    )
    true = dataclasses.replace(chain, armature=jnp.asarray(own), friction=friction)
    bandwidth = frequency * spread()
    delay = STEP * rng.integers(4, 81, n)  # 1 to 20 ms
    return chain, Servos(true, bandwidth**2 * mass, 2 * ratio * bandwidth * mass, delay, 0.03 * rng.normal(size=n))


def command_log(
    robot: Servos,
    seconds: float,
    rate: float,
    quantum: float,
    seed: int,
    harmonics: int = 30,
    every: int = 1,
    smooth: bool = False,
) -> jaxdyn.Log:
    """A log of random commands, each held for `every` samples, and of the encoders, which are read in steps of `quantum`.

    By default, dry friction is nearly Coulomb's; `smooth` leaves it as MuJoCo has it by default, smooth over about 0.1 rad/s.
    """
    chain = robot.chain
    trajectory = jaxdyn.identification.random_excitation(chain, seconds, harmonics, seed, 0.7)
    t = np.arange(round(seconds * rate)) / rate
    command = np.repeat(trajectory.sampled(t[::every])[0], every, axis=0)[: len(t)]
    spec = mujoco.MjSpec.from_string(jaxdyn.io.to_mjcf(chain))
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT)
    spec.option.timestep, spec.option.integrator = STEP, mujoco.mjtIntegrator.mjINT_RK4
    spec.option.tolerance, spec.option.iterations = 1e-12, 100
    for joint in () if smooth else spec.joints:
        joint.solref_friction = [2.5 * STEP, 1.0]
    for joint, kp, kd in zip(spec.joints, robot.kp, robot.kd, strict=True):
        servo = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=kp, kv=kd)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = command[0] - robot.bias
    substeps = round(1 / (rate * STEP))
    q = np.empty_like(command)
    for k in range(len(t)):
        q[k] = data.qpos
        now = k * substeps + np.arange(substeps)
        at = np.floor_divide(now[:, None] - np.rint(robot.delay / STEP).astype(int), substeps)
        held = command[np.maximum(at, 0), np.arange(chain.n)] - robot.bias
        for u in held:
            data.ctrl[:] = u
            mujoco.mj_step(model, data)
    seen = quantum * np.round((q + robot.bias) / quantum)
    return jaxdyn.Log(t, seen, None, np.full_like(q, np.nan), f"commands {seed}", command=command)
