"""A quadruped identified while it walks on the spot, from foot force sensors and an IMU, with and without joint torques.

A quadruped of 13 kg lifts one foot after the other. The model omits the battery in the trunk, and its other masses are
guesses. With torque sensors, the fit uses all rows of the equations of motion, which determine links and drives. Without
them, it uses only the six rows of the base, which determine the links, including the total mass, but not the drives. Writes
identify_quadruped.png and the report quadruped.html.
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
from jaxdyn.identification import MechanismLog, identify_mechanism
from jaxdyn.report import write_report
from jaxdyn.spatial.so3 import rotation_exp, rotation_to_quaternion

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
SECONDS, RATE, PERIOD = (9.0 if FAST else 24.0), 200.0, 3.0
# length of thigh and shin, hip offset and trunk height [m], and share of the period in which a foot swings
BONE, OFFSET, HEIGHT, AIR = 0.21, 0.08, 0.30, 0.17
LEGS = {"FL": (1, 1), "RR": (-1, -1), "FR": (1, -1), "RL": (-1, 1)}  # signs of x and y, in the order of the steps
HIPS = {leg: np.array([0.19 * x, 0.05 * y, 0.0]) for leg, (x, y) in LEGS.items()}


def body(mass, com, edges):
    """URDF element `inertial` of a box."""
    ix, iy, iz = mass / 12 * (np.sum(np.square(edges)) - np.square(edges))
    return (
        f'<inertial><origin xyz="{com[0]} {com[1]} {com[2]}"/><mass value="{mass}"/>'
        f'<inertia ixx="{ix}" iyy="{iy}" izz="{iz}" ixy="0" ixz="0" iyz="0"/></inertial>'
    )


def quadruped(trunk, trunk_com, hip, thigh, shin):
    """The robot with the given link masses [kg] and a floating base."""
    parts = [f'<link name="trunk">{body(trunk, trunk_com, (0.38, 0.1, 0.12))}</link>']
    dynamics = '<dynamics damping="0.2" friction="0.3"/><limit lower="-3" upper="3" effort="30" velocity="20"/>'
    for leg, (_, y) in LEGS.items():
        at, bone = HIPS[leg], (0.03, 0.03, BONE)
        inertials = body(hip, (0, 0.3 * y * OFFSET, 0), (0.09, 0.05, 0.09)), body(thigh, (0, 0, -0.06), bone)
        links = ("hip", (1, 0, 0), at, inertials[0]), ("thigh", (0, 1, 0), (0, y * OFFSET, 0), inertials[1])
        above = "trunk"
        for name, axis, point, inertial in (
            *links,
            ("shin", (0, 1, 0), (0, 0, -BONE), body(shin, (0, 0, -0.08), bone)),
        ):
            parts.append(
                f'<link name="{leg}_{name}">{inertial}</link><joint name="{leg}_{name}_joint" type="revolute">'
                f'<parent link="{above}"/><child link="{leg}_{name}"/>{dynamics}'
                f'<origin xyz="{point[0]} {point[1]} {point[2]}"/><axis xyz="{axis[0]} {axis[1]} {axis[2]}"/></joint>'
            )
            above = f"{leg}_{name}"
        parts.append(
            f'<link name="{leg}_foot"/><joint name="{leg}_sole" type="fixed"><parent link="{above}"/>'
            f'<child link="{leg}_foot"/><origin xyz="0 0 {-BONE}"/></joint>'
        )
    return jaxdyn.io.loads(f'<robot name="quadruped">{"".join(parts)}</robot>', floating_base=True)


robot = quadruped(6.9, (0.015, 0.0, -0.01), 0.6, 0.75, 0.19)  # with the battery
model = quadruped(5.0, (0.0, 0.0, 0.0), 0.5, 0.9, 0.25)
feet = [f"{leg}_foot" for leg in LEGS]
hips = jnp.array([HIPS[leg] for leg in LEGS])
ground = hips * jnp.array([1.0, 1.0 + OFFSET / 0.05, 0.0])  # positions of the feet on the ground
bump = lambda x, width: jnp.where(jnp.abs(x) < width / 2, jnp.cos(jnp.pi * x / width) ** 4, 0.0)
step = lambda x: jnp.clip(x, 0, 1) ** 3 * (10 - 15 * jnp.clip(x, 0, 1) + 6 * jnp.clip(x, 0, 1) ** 2)
late = lambda t: jnp.stack([(t / PERIOD - k / 4) % 1.0 - 0.5 for k in range(4)])  # 0 in the middle of a foot's swing


def pose(t):
    """Position and rotation of the trunk, which leans away from the swinging foot, and leg angles in closed form, at time t."""
    phase = late(t)
    lean = -0.45 * jnp.sum(bump(phase, 0.42)[:, None] * ground, axis=0)
    sway = jnp.sin(2 * jnp.pi * t * jnp.array([0.31, 0.53, 0.41, 0.67, 0.37, 0.59]) + jnp.arange(6.0))
    point = lean + jnp.array([0, 0, HEIGHT]) + jnp.array([0.01, 0.01, 0.02]) * sway[:3]
    turn = rotation_exp(0.12 * sway[3:])
    targets = ground + 0.06 * bump(phase, AIR)[:, None] * jnp.array([0, 0, 1.0])
    d = (targets - point) @ turn - hips
    down = jnp.sqrt(d[:, 1] ** 2 + d[:, 2] ** 2 - OFFSET**2)
    knee = -2 * jnp.arccos(jnp.hypot(d[:, 0], down) / (2 * BONE))
    roll = jnp.arctan2(d[:, 1], -d[:, 2]) - jnp.arctan2(jnp.sign(hips[:, 1]) * OFFSET, down)
    angles = jnp.stack([roll, jnp.arctan2(-d[:, 0], down) - knee / 2, knee], axis=1)
    return point, turn, angles.reshape(-1)


def velocity(t):
    """Twist of the trunk in its own axes, and joint velocities."""
    (_, turn, _), (speed, turning, rates) = jax.jvp(pose, (t,), (1.0,))
    w = turn.T @ turning
    return jnp.concatenate([jnp.stack([w[2, 1], w[0, 2], w[1, 0]]), turn.T @ speed, rates])


@jax.jit
@jax.vmap
def moved(t):
    """Configuration, velocity, acceleration, and IMU signals in the trunk, at time t."""
    (point, turn, angles), (v, a) = pose(t), jax.jvp(velocity, (t,), (1.0,))
    felt = jnp.concatenate([v[:3], a[3:6] + jnp.cross(v[:3], v[3:6]) - turn.T @ robot.gravity])
    return jnp.concatenate([point, rotation_to_quaternion(turn), angles]), v, a, felt


@jax.jit
@jax.vmap
def loaded(t, q, v, needed):
    """Joint torques and foot forces that produce the required generalised forces."""
    columns = jnp.concatenate([jaxdyn.jacobian(robot, q, foot)[3:] for foot in feet]).T
    # 0 in the air; after contact, the load on a foot increases over 0.18 s
    weight = jnp.repeat(step((jnp.abs(late(t)) - AIR / 2) / 0.06), 3)
    base = columns[:6] * weight
    # the smallest forces that support the robot
    forces = weight * (columns[:6].T @ jnp.linalg.solve(base @ columns[:6].T, needed[:6]))
    torques = needed - columns @ forces + jaxdyn.friction_force(robot, v)
    return torques.at[:6].set(0.0), forces.reshape(4, 3)


t, rng = np.arange(round(SECONDS * RATE)) / RATE, np.random.default_rng(0)
q, v, a, imu = moved(t)
tau, forces = (
    np.asarray(x) for x in loaded(t, q, v, jax.jit(jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0)))(robot, q, v, a))
)
q, imu = np.asarray(q), np.asarray(imu)
noisy = lambda x, size: x + size * rng.normal(size=x.shape)
sensors = {foot: np.hstack([np.zeros((len(t), 3)), noisy(forces[:, k], 0.5)]) for k, foot in enumerate(feet)}
felt = np.hstack([noisy(imu[:, :3], 1e-3), noisy(imu[:, 3:], 0.02)])
log = MechanismLog(t, noisy(q, 2e-5), noisy(tau, 0.05), sensors, imu=felt, source="walk")
everything = identify_mechanism(model, log)
without = identify_mechanism(model, dataclasses.replace(log, tau=np.full_like(tau, np.nan), source="no torques"))
mass = float(jaxdyn.total_mass(robot))
print(f"true mass {mass:.2f} kg, mass of the model {float(jaxdyn.total_mass(model)):.2f} kg")
for name, found in (("with torques", everything), ("base rows only", without)):
    error = found.validation[0].fit.total_relative
    print(f"{name}: {found.total_mass}; {found.base.size} base parameters; held-out error {error:.2g} %")
    assert abs(found.total_mass.value / mass - 1) < 0.005 and not found.inconsistent_links
write_report(everything, "quadruped.html")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(3, 2), layout="constrained")
for k, leg in enumerate(LEGS):
    left.plot(t, np.linalg.norm(forces[:, k], axis=1), label=f"{leg} foot")
left.set(xlabel="time [s]", ylabel="force [N]", xlim=(0, 2 * PERIOD), ylim=(0, None), title="measured foot forces")
left.legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
names = ["trunk", "four hips", "four thighs", "four shins", "all"]
sums = lambda chain: [
    sum(m for m, link in zip(np.asarray(chain.inertia[:, 0]), chain.link_names, strict=True) if link.endswith(end))
    for end in ("trunk", "hip", "thigh", "shin")
]
for k, (label, chain, style) in enumerate(
    (
        ("model", model, {"color": "lightgrey"}),
        ("identified", everything.chain, {}),
        ("truth", robot, {"color": "black"}),
    )
):
    values = [*sums(chain), float(jaxdyn.total_mass(chain))]
    right.bar(np.arange(5) + 0.27 * (k - 1), values, 0.25, label=label, **style)
right.set(xticks=range(5), ylabel="mass [kg]", title="masses")
right.set_xticklabels(names, fontsize=8)
right.legend()
figure.savefig("identify_quadruped.png", dpi=120)
print("written: identify_quadruped.png, quadruped.html")
