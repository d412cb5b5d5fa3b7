"""A humanoid identified while it squats and swings its arms, from force plates, from joint torques, and from both.

The design data have errors of up to 20 % for every link and omit a 4 kg battery in the torso. Encoders, IMU, joint torques
and the wrenches at the soles are simulated with noise. The script compares three fits:

- The first uses all rows of the equations of motion.
- The second uses only the six rows of the base, which contain no joint torques.
- The third does not use the measured wrenches at the soles. Since the feet do not move, components of the equations of motion
  that do not depend on these wrenches are available.

Writes identify_humanoid.png and identify_humanoid.html, the report of the first fit.
"""

import dataclasses
import os

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import jaxdyn
from jaxdyn.identification import Columns, MechanismLog, identify_mechanism
from jaxdyn.identification.columns import prior_parameters

jax.config.update("jax_enable_x64", True)
SECONDS, RATE = (8.0, 200.0) if os.environ.get("JAXDYN_EXAMPLES_FAST") else (16.0, 200.0)
THIGH, SHIN, ANKLE, SIDES = 0.36, 0.34, 0.07, {"left": 1, "right": -1}  # [m]
SOLES = ("left_sole", "right_sole")


def box(name: str, mass: float, size: tuple[float, float, float], centre: tuple[float, float, float]) -> str:
    """A URDF link that is a uniform box."""
    x, y, z = (s * s * mass / 12 for s in size)
    inertia = f'<inertia ixx="{y + z}" iyy="{x + z}" izz="{x + y}" ixy="0" ixz="0" iyz="0"/>'
    origin = " ".join(map(str, centre))
    return f'<link name="{name}"><inertial><origin xyz="{origin}"/><mass value="{mass}"/>{inertia}</inertial></link>'


def joint(parent: str, child: str, at: tuple[float, float, float], axis: str = "") -> str:
    """A URDF joint about `axis`, named after its child link; without an axis, a fixed joint."""
    moves = f'<axis xyz="{axis}"/><limit lower="-3" upper="3" effort="200" velocity="20"/>' if axis else ""
    ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="{" ".join(map(str, at))}"/>'
    return f'<joint name="{child}_joint" type="{"revolute" if axis else "fixed"}">{ends}{moves}</joint>'


def humanoid() -> jaxdyn.Chain:
    """A robot with a torso, legs with six joints each, and arms that swing at the shoulders: 14 joints, 42 kg."""
    x, y, z, here = "1 0 0", "0 1 0", "0 0 1", (0.0, 0.0, 0.0)
    parts = [box("torso", 18.0, (0.16, 0.28, 0.5), (0.01, 0.0, 0.22))]
    for side, sign in SIDES.items():
        tall = lambda mass, width, length: (mass, (width, width, length), (0.0, 0.0, -length / 2))
        hub = 0.8, (0.08, 0.08, 0.08), here
        foot = 0.9, (0.22, 0.1, 0.05), (0.03, 0.0, -0.045)
        leg = [("hip_yaw", hub, (0, 0.1 * sign, 0), z), ("hip_roll", hub, here, x)]
        leg += [("thigh", tall(4.0, 0.1, THIGH), here, y), ("shin", tall(2.2, 0.08, SHIN), (0, 0, -THIGH), y)]
        leg += [("ankle", (0.3, (0.05, 0.05, 0.05), here), (0, 0, -SHIN), y), ("foot", foot, here, x)]
        arm = [("arm", tall(3.0, 0.07, 0.5), (0, 0.2 * sign, 0.42), y)]
        for limb in (leg, arm):
            above = ["torso", *(f"{side}_{name}" for name, *_ in limb)]
            for parent, (name, body, at, axis) in zip(above, limb, strict=False):
                parts += [box(f"{side}_{name}", *body), joint(parent, f"{side}_{name}", at, axis)]
        parts += [f'<link name="{side}_sole"/>', joint(f"{side}_foot", f"{side}_sole", (0, 0, -ANKLE))]
    chain = jaxdyn.io.loads(f'<robot name="humanoid">{"".join(parts)}</robot>', floating_base=True)
    drives = jnp.arange(chain.n) >= 6
    return jaxdyn.model.with_leaves(chain, {"armature": 0.02 * drives, "friction.viscous": 0.3 * drives})


def leg_angles(turn, hip):
    """Joint angles of a leg with a flat foot, given the rotation `turn` of the torso and the position `hip` from the ankle."""
    reach, across = jnp.sqrt(hip @ hip), jnp.hypot(hip[1], hip[2])
    knee = jnp.pi - jnp.arccos((THIGH**2 + SHIN**2 - reach**2) / (2 * THIGH * SHIN))
    pitch = -jnp.arctan2(hip[0], across) - jnp.arcsin(THIGH / reach * jnp.sin(knee))
    roll = jnp.arctan2(hip[1], hip[2])
    about = lambda axis, angle: jaxdyn.spatial.so3.rotation_exp(angle * jnp.eye(3)[axis])
    rest = turn.T @ about(0, -roll) @ about(1, -pitch - knee)
    yaw = jnp.arctan2(-rest[0, 1], rest[1, 1])
    side = jnp.arctan2(rest[2, 1], -rest[0, 1] * jnp.sin(yaw) + rest[1, 1] * jnp.cos(yaw))
    return jnp.stack([yaw, side, jnp.arctan2(-rest[2, 0], rest[2, 2]), knee, pitch, roll])


def configuration(waves, t):
    """Positions at time t: torso and arms follow sums of sines, and the legs keep the feet on the ground."""
    frequency, phase = waves
    swing = jnp.sin(2 * jnp.pi * frequency * t + phase).mean(axis=0)  # (8,)
    hips = jnp.array([0.0, 0.0, 0.63]) + swing[:3] * jnp.array([0.07, 0.1, 0.1])
    turned = jaxdyn.spatial.so3.quaternion_exp(0.35 * swing[3:6])
    rotation = jaxdyn.spatial.so3.quaternion_to_rotation(turned)
    limbs = []
    for k, sign in enumerate(SIDES.values()):
        hip, ankle = jnp.array([0.0, 0.1 * sign, 0.0]), jnp.array([0.0, 0.11 * sign, ANKLE])
        limbs += [leg_angles(rotation, hips + rotation @ hip - ankle), 1.5 * swing[6 + k : 7 + k]]
    return jnp.concatenate([hips, turned, *limbs])


@jax.jit
def sensed(chain: jaxdyn.Chain, waves, t):
    """Positions, joint torques, IMU signals, and the smallest sole wrenches that support the robot, at time t."""
    moved = lambda t: lambda u: jaxdyn.difference(chain, configuration(waves, t), configuration(waves, u))
    q, (v, a) = configuration(waves, t), jax.jvp(lambda t: jax.jvp(moved(t), (t,), (1.0,))[1], (t,), (1.0,))
    needed = jaxdyn.inverse_dynamics(chain, q, v, a) + jaxdyn.friction_force(chain, v)
    reach = jnp.concatenate([jaxdyn.jacobian(chain, q, sole) for sole in SOLES])  # (12, nv)
    # a moment of 1 N m has the same weight as a force of 10 N
    share = jnp.tile(jnp.array([0.1, 0.1, 0.1, 1, 1, 1]), 2) ** 2
    base = reach[:, :6]
    wrenches = share * (base @ jnp.linalg.solve((base.T * share) @ base, needed[:6]))
    rotation = jaxdyn.spatial.so3.quaternion_to_rotation(q[3:7])
    specific = a[3:6] + jnp.cross(v[:3], v[3:6]) - rotation.T @ chain.gravity
    tau = (needed - reach.T @ wrenches).at[:6].set(0.0)
    return q, tau, jnp.concatenate([v[:3], specific]), wrenches.reshape(2, 6)


def record(chain: jaxdyn.Chain, seed: int, name: str) -> MechanismLog:
    """A log of a random motion, with sensor noise."""
    rng, t = np.random.default_rng(seed), np.arange(round(SECONDS * RATE)) / RATE
    waves = rng.uniform(0.1, 0.9, (4, 8)), rng.uniform(0, 2 * np.pi, (4, 8))
    noisy = lambda x, size: np.asarray(x) + np.asarray(size) * rng.normal(size=np.shape(x))
    q, tau, imu, wrenches = jax.vmap(sensed, (None, None, 0))(chain, waves, t)
    tau = np.hstack([np.zeros((len(t), 6)), noisy(tau[:, 6:], 0.05)])
    imu, wrenches = noisy(imu, [1e-3] * 3 + [0.02] * 3), noisy(wrenches, [0.05] * 3 + [0.5] * 3)
    return MechanismLog(
        t, noisy(q, 2e-5), tau, dict(zip(SOLES, wrenches.swapaxes(0, 1), strict=True)), imu=imu, source=name
    )


def main() -> None:
    design = humanoid()
    battery = jaxdyn.spatial.inertia.inertial_parameters_from_com(
        jnp.array(4.0), jnp.array([-0.12, 0.0, 0.2]), 0.02 * jnp.eye(3)
    )
    rng, off = np.random.default_rng(0), {}  # left and right limbs have the same errors
    kinds = [name.removeprefix("left_").removeprefix("right_") for name in design.link_names]
    scale = np.array([[off.setdefault(kind, rng.uniform(0.8, 1.2))] for kind in kinds])
    robot = jaxdyn.with_inertial_parameters(
        design, (design.inertia * scale).at[design.link_names.index("torso")].add(battery)
    )
    log, unseen = record(robot, 1, "squats"), record(robot, 2, "other squats")
    without = lambda log, **changes: dataclasses.replace(log, **changes)
    nan = np.full_like(log.tau, np.nan)
    held = {"wrenches": {}, "held": dict.fromkeys(SOLES, "pose")}
    drives, total = Columns(("armature", "viscous")), lambda chain: float(jaxdyn.total_mass(chain))
    ways = {
        "plates and joint torques": identify_mechanism(design, log, unseen, columns=drives),
        "plates alone": identify_mechanism(design, without(log, tau=nan), without(unseen, tau=nan)),
        "joint torques alone": identify_mechanism(
            design, without(log, **held), without(unseen, **held), columns=drives
        ),
    }
    print(f"total mass: {total(robot):.3f} kg (design: {total(design):.3f} kg)")
    errors = {}
    for name, found in ways.items():
        truth = found.base.matrix @ prior_parameters(robot, found.columns)
        errors[name] = (found.estimate.values - truth) / found.estimate.standard_deviations
        within, seen = np.mean(np.abs(errors[name]) <= 2), found.validation[0].fit
        print(f"{name}: total mass {found.total_mass}")
        print(f"  {found.base.size} base parameters, {100 * within:.0f} % of them within 2 sd of the true values")
        print(f"  torque error on other squats: {seen.total_relative:.2f} %")
    best = ways["plates and joint torques"]
    assert abs(total(best.chain) / total(robot) - 1) < 0.005 and not best.inconsistent_links
    assert abs(total(ways["plates alone"].chain) / total(robot) - 1) < 0.01
    jaxdyn.report.write_report(best, "identify_humanoid.html")
    draw(design, log, best, errors)
    print("written: identify_humanoid.png, identify_humanoid.html")


def draw(design: jaxdyn.Chain, log: MechanismLog, found: jaxdyn.Identification, errors: dict[str, np.ndarray]) -> None:
    """Draw three postures, the errors of all base parameters, and the ground force in the held-out motion."""
    figure, (one, two, three) = plt.subplots(1, 3, figsize=(12, 4), width_ratios=(1, 1, 1.3), layout="constrained")
    for place, k in enumerate(np.linspace(0, len(log) - 1, 5)[1:4].astype(int)):
        poses = np.asarray(jaxdyn.forward_kinematics(design, jnp.asarray(log.q[k])))
        at = lambda name, z=0.0, poses=poses: (poses[design.link_names.index(name)] @ [0, 0, z, 1])[1:3]
        for side in SIDES:
            leg = [at("torso"), *(at(f"{side}_{x}") for x in ("hip_yaw", "shin", "ankle")), at(f"{side}_foot", -ANKLE)]
            arm = [at("torso", 0.42), at(f"{side}_arm"), at(f"{side}_arm", -0.5)]
            for line in map(np.array, (leg, arm, [at("torso"), at("torso", 0.5)])):
                one.plot(0.7 * place + line[:, 0], line[:, 1], "o-", color=f"C{place}", ms=3)
    one.axhline(0, color="grey", lw=0.8)
    one.set(xlabel="y [m]", ylabel="z [m]", aspect="equal", title="from behind")
    x = np.linspace(-4, 4, 200)
    for name, off in errors.items():
        two.hist(off, np.linspace(-4, 4, 25), density=True, histtype="step", label=name)
    two.plot(x, np.exp(-x * x / 2) / np.sqrt(2 * np.pi), color="black", lw=0.8, label="normal distribution")
    two.set(xlabel="error of a base parameter [sd]", ylabel="density", xlim=(-4, 7.5))
    two.legend(fontsize=7, loc="upper right")
    seen, upwards = found.validation[0], found.rows.index("floating_base_vz")
    some = slice(0, int(6 / np.diff(seen.samples.t[:2])[0]))
    three.plot(seen.samples.t[some], seen.samples.tau[some, upwards], color="grey", lw=2.5, label="measured")
    by_design = seen.predicted_by(jaxdyn.identification.TorqueModel(design))
    three.plot(seen.samples.t[some], by_design[some, upwards], color="C1", lw=1, label="design")
    three.plot(seen.samples.t[some], seen.prediction[some, upwards], color="C0", lw=1, label="identified")
    three.set(xlabel="time of other squats [s]", ylabel="ground force along the torso [N]")
    three.legend(fontsize=7)
    figure.savefig("identify_humanoid.png", dpi=120)


if __name__ == "__main__":
    main()
