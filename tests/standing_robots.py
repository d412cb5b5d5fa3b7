"""Logs of robots that stand on held feet, simulated by MuJoCo: sensors of a real one, with their noise."""

import mujoco
import numpy as np

import jaxdyn
from jaxdyn.identification import MechanismLog

STEP, RATE = 5e-4, 1000.0
NOISE = {"joints": 2e-5, "point": 2e-5, "turn": 2e-5, "tau": 0.05, "force": 0.5, "moment": 0.05}
NOISE |= {"rate": 1e-3, "acceleration": 0.02}


def standing(chain, feet: tuple[str, ...], q0: np.ndarray, welded: bool):
    """A MuJoCo model of the chain whose feet (frames) are held where they are at q0, and its data at q0."""
    spec = mujoco.MjSpec.from_string(jaxdyn.io.to_mjcf(chain))
    spec.option.timestep = STEP
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.iterations = 200
    spec.option.tolerance = 1e-12
    for frame in set(feet) & set(chain.link_names):
        spec.body(frame).add_site(name=frame)
    plain = spec.compile()
    data = mujoco.MjData(plain)
    data.qpos[:] = q0
    mujoco.mj_forward(plain, data)
    for frame in feet:
        quat, site = np.zeros(4), data.site(frame)
        mujoco.mju_mat2Quat(quat, site.xmat)
        spec.worldbody.add_site(name=f"ground {frame}", pos=site.xpos, quat=quat)
        held = spec.add_equality()
        held.type = mujoco.mjtEq.mjEQ_WELD if welded else mujoco.mjtEq.mjEQ_CONNECT
        held.objtype = mujoco.mjtObj.mjOBJ_SITE
        held.name1, held.name2 = frame, f"ground {frame}"
        held.solref = [4 * STEP, 1.0]
        if welded:
            held.data[10] = 1.0
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = q0
    mujoco.mj_forward(model, data)
    return model, data


def wrench_at(model, data, frame: str) -> np.ndarray:
    """(moment, force) of the world on the robot in a site's axes about it, from MuJoCo's external forces on the body."""
    site = model.site(frame).id
    body = model.site_bodyid[site]
    moment, force = data.cfrc_ext[body, :3], data.cfrc_ext[body, 3:]
    about = data.subtree_com[model.body_rootid[body]]
    moment = moment + np.cross(about - data.site_xpos[site], force)
    axes = data.site_xmat[site].reshape(3, 3)
    return np.concatenate([axes.T @ moment, axes.T @ force])


def standing_log(
    chain,
    feet: tuple[str, ...],
    q0: np.ndarray,
    amplitude: np.ndarray,
    *,
    welded: bool = True,
    seconds: float = 20.0,
    stiffness: np.ndarray,
    seed: int = 0,
    noise: float = 1.0,
) -> tuple[MechanismLog, MechanismLog]:
    """A run with PD-controlled joints that follow sums of sines about q0, as sensors see it, and without noise.

    Args:
        feet: frames that stand.
        amplitude: (joints,) of the references [rad].
        welded: feet keep their orientation too.
        stiffness: (joints,) of the controller [N m/rad].
        noise: factor on `NOISE`.
    """
    model, data = standing(chain, feet, q0, welded)
    rng = np.random.default_rng(seed)
    joints = chain.nv - 6
    frequencies = rng.uniform(0.15, 1.2, (5, joints))
    phases, sizes = rng.uniform(0, 2 * np.pi, (5, joints)), rng.uniform(0.3, 1.0, (5, joints))
    sizes *= amplitude / sizes.sum(axis=0)
    every, steps = round(1 / (RATE * STEP)), round(seconds / STEP)
    count = steps // every
    q, tau = np.zeros((count, chain.nq)), np.full((count, chain.nv), np.nan)
    wrenches = {frame: np.zeros((count, 6)) for frame in feet}
    imu = np.zeros((count, 6))
    damping = 0.05 * stiffness
    for k in range(steps):
        t = k * STEP
        ramp = min(1.0, t / 2.0)
        offset = ramp * (sizes * (np.sin(2 * np.pi * frequencies * t + phases) - np.sin(phases))).sum(axis=0)
        torque = stiffness * (q0[7:] + offset - data.qpos[7:]) - damping * data.qvel[6:]
        data.qfrc_applied[6:] = torque
        if k % every == 0:
            mujoco.mj_forward(model, data)
            mujoco.mj_rnePostConstraint(model, data)
            row = k // every
            q[row], tau[row, 6:] = data.qpos, torque
            turn = np.zeros(9)
            mujoco.mju_quat2Mat(turn, data.qpos[3:7])
            imu[row] = [*data.qvel[3:6], *(turn.reshape(3, 3).T @ (data.qacc[:3] - model.opt.gravity))]
            for frame in feet:
                wrenches[frame][row] = wrench_at(model, data, frame)
        mujoco.mj_step(model, data)
    times = np.arange(count) / RATE
    exact = MechanismLog(times, q, tau, wrenches, imu=imu, source="exact")
    return noisy(exact, noise, rng), exact


def noisy(log: MechanismLog, size: float, rng: np.random.Generator) -> MechanismLog:
    """The log as sensors see it."""
    of = lambda x, name: size * NOISE[name] * rng.normal(size=x.shape)
    q = log.q.copy()
    q[:, :3] += of(q[:, :3], "point")
    q[:, 3:7] += 0.5 * of(q[:, 3:7], "turn")
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    q[:, 7:] += of(q[:, 7:], "joints")
    wrenches = {
        frame: x + np.hstack([of(x[:, :3], "moment"), of(x[:, 3:], "force")]) for frame, x in log.wrenches.items()
    }
    imu = log.imu + np.hstack([of(log.imu[:, :3], "rate"), of(log.imu[:, 3:], "acceleration")])
    return MechanismLog(log.t, q, log.tau + of(log.tau, "tau"), wrenches, imu=imu, source="standing")
