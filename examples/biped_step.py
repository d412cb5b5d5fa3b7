"""One step of a biped on its left foot: the right foot swings ahead while the pelvis sways so that the sole can carry it.

The pelvis' path is a polynomial whose coefficients are found by Gauss-Newton, differentiated through inverse kinematics and
`ground_reaction`, so that the zero moment point stays near the middle of the sole; torques come from `inverse_dynamics` of the
robot fixed at its left foot, and a rollout under them and a weak feedback follows the step from a disturbed start. That the
foot would not tip is read off the zero moment point; the simulation itself holds the foot. Writes biped_step.png.
"""

import os

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import jaxdyn

jax.config.update("jax_enable_x64", True)
samples, dt = (30, 4e-3) if os.environ.get("JAXDYN_EXAMPLES_FAST") else (60, 1e-3)
duration, stride, lift, height, degree = 0.8, 0.4, 0.06, 0.72, 8  # step [s], way of the foot [m], its lift, pelvis [m]

fixed, free = jaxdyn.textbook.biped(), jaxdyn.textbook.biped(floating=True)
leg, width, ankle = 0.35, 0.2, 0.08  # as in `biped`
middle = jnp.array([0.03, 0.0])  # of the sole of the left foot


def leg_angles(hip, sole):
    """Hip roll and pitch, knee, ankle pitch and roll of a leg between an upright pelvis and a flat foot."""
    x, y, z = sole + jnp.array([0, 0, ankle]) - hip
    roll, down = jnp.arctan2(y, -z), -jnp.hypot(y, z)
    knee = 2 * jnp.arccos(jnp.hypot(x, down) / (2 * leg))
    pitch = jnp.arctan2(-x, -down) - knee / 2
    return jnp.stack([roll, pitch, knee, -pitch - knee, -roll])


def configuration(coefficients, t):
    """The tree's q at time t: the pelvis on its path, the right foot on its arc from behind to ahead."""
    s = t / duration
    x, y = jnp.polyval(coefficients.T, 2 * s - 1)
    pelvis = jnp.stack([x, y, height + 0 * x])
    foot = jnp.stack([stride * (s**3 * (10 - 15 * s + 6 * s**2) - 0.5), -width, lift * (4 * s * (1 - s)) ** 3])
    side = jnp.array([0, width / 2, 0])
    legs = leg_angles(pelvis + side, jnp.zeros(3)), leg_angles(pelvis - side, foot)
    return jnp.concatenate([pelvis, jnp.array([1.0, 0, 0, 0]), *legs])


def motion(coefficients, t):
    """q, v and a of the tree; the pelvis does not turn, so that its twist is the velocity of its point."""
    q = lambda t: configuration(coefficients, t)
    rate = lambda t: jax.jvp(q, (t,), (1.0,))[1]
    twist = lambda x: jnp.concatenate([x[3:6] * 0, x[:3], x[7:]])
    return q(t), twist(rate(t)), twist(jax.jvp(rate, (t,), (1.0,))[1])


def on_left_foot(x):
    """Joints of the fixed robot from those of the tree: its left leg is counted from the ankle up."""
    legs = x[-10:]
    return jnp.concatenate([legs[4::-1], legs[5:]])


times = jnp.linspace(0, duration, samples + 1)
ground = jax.vmap(lambda c, t: jaxdyn.ground_reaction(free, *motion(c, t)), in_axes=(None, 0))


def misses(flat):
    """Distances of the zero moment point from the middle of the sole; the pelvis is between the feet at both ends."""
    coefficients = flat.reshape(2, -1)
    points = jax.vmap(jaxdyn.zero_moment_point)(ground(coefficients, times)) - middle
    ends = jax.vmap(lambda t: configuration(coefficients, t)[:2])(jnp.array([0, duration]))
    wanted = jnp.array([[-stride / 4, -width / 2], [stride / 4, -width / 2]])
    return jnp.concatenate([points.reshape(-1), 30 * (ends - wanted).reshape(-1)])


@jax.jit
def improve(flat):
    residual = misses(flat)
    return flat - jnp.linalg.lstsq(jax.jacfwd(misses)(flat), residual)[0], jnp.abs(residual[: 2 * samples + 2]).max()


flat = jnp.zeros((2, degree + 1)).at[0, -2].set(stride / 4).at[1, -1].set(-width / 2).reshape(-1)
for k in range(5):
    flat, miss = improve(flat)
    print(f"iteration {k}: the zero moment point is up to {100 * miss:.2f} cm from the middle of the sole")
coefficients = flat.reshape(2, -1)
wrenches = ground(coefficients, times)
zmp = jax.vmap(jaxdyn.zero_moment_point)(wrenches)
assert jnp.abs(zmp - middle).max() < 0.05, "the foot would tip"
grip = jnp.hypot(wrenches[:, 3], wrenches[:, 4]) / wrenches[:, 5]
print(f"least load {wrenches[:, 5].min():.0f} N, friction coefficient needed {grip.max():.2f}")


def control(t, q, qd):
    """Torques of the planned motion, and a feedback on the error by the robot's own inertia."""
    wanted, rate, acceleration = (on_left_foot(x) for x in motion(coefficients, t))
    feedforward = jaxdyn.inverse_dynamics(fixed, wanted, rate, acceleration)
    return feedforward + jaxdyn.mass_matrix(fixed, q) @ (400 * (wanted - q) + 40 * (rate - qd))


@jax.jit
def walk():
    q, v, _ = motion(coefficients, 0.0)
    start = on_left_foot(q) + 0.02 * jnp.array([1, -1, 1, -1, 1, -1, 1, -1, 1, -1])
    return jaxdyn.rollout(fixed, start, on_left_foot(v), control, dt, round(duration / dt), method="rk4")


@jax.jit
@jax.vmap
def planned(t):
    q, v, a = (on_left_foot(x) for x in motion(coefficients, t))
    return q, jaxdyn.inverse_dynamics(fixed, q, v, a)


q, _ = walk()
clock = jnp.arange(len(q)) * dt
wanted, torques = planned(clock)
error = jnp.abs(q - wanted).max(axis=1)
sole = jaxdyn.frame_pose(fixed, q[-1], "right_sole")[:3, 3]
print(f"joint errors: {error[0]:.3f} rad at the start, {error[-1]:.1e} rad when the foot lands")
print(f"the right foot lands at ({sole[0]:.4f}, {sole[1]:.4f}, {sole[2]:.4f}) m")
assert error[-1] < 1e-3


@jax.jit
@jax.vmap
def stick(q):
    """Points along the robot, from one sole to the other, and the top of the torso."""
    poses = jaxdyn.forward_kinematics(fixed, q)
    top = jaxdyn.frame_pose(fixed, q, "pelvis") @ jnp.array([0, 0, 0.5, 1])
    end = jaxdyn.frame_pose(fixed, q, "right_sole")
    toes = [end @ jnp.array([x, 0, 0, 1]) for x in (-0.08, 0.14)]
    return jnp.concatenate([poses[:, :3, 3], jnp.stack([x[:3] for x in (*toes, top)])])


figure = Figure(figsize=(11, 7), layout="constrained")
rows = [["side", "front", name] for name in ("zmp", "force", "torque")]
axes = figure.subplot_mosaic(rows, width_ratios=[1.35, 1.0, 1.5], height_ratios=[1.2, 1, 1])
shown = jnp.linspace(0, len(q) - 1, 6).astype(int)
for k, points in enumerate(stick(q[shown])):
    shade = 0.25 + 0.75 * k / (len(shown) - 1)
    for name, across in (("side", 0), ("front", 1)):
        x, z = points[:, across] * (1 - 2 * across), points[:, 2]
        hips = (x[4] + x[5]) / 2, (z[4] + z[5]) / 2
        right = jnp.array([5, 6, 7, 8])
        axes[name].plot([0, *x[jnp.array([0, 2, 4])]], [0, *z[jnp.array([0, 2, 4])]], "o-", c="C0", ms=3, alpha=shade)
        axes[name].plot(x[right], z[right], "o-", c="C1", ms=3, alpha=shade)
        axes[name].plot([hips[0], x[12]], [hips[1], z[12]], "-", c="0.3", lw=3, alpha=shade)
        foot = jnp.array([10, 8, 11]) if name == "side" else jnp.array([8, 10])
        axes[name].plot(x[foot], z[foot], "-", c="C1", alpha=shade)
        axes[name].plot([x[4], x[5]], [z[4], z[5]], "-", c="0.3", alpha=shade)
axes["side"].plot([0.14, 0, -0.08, 0.14], [0, ankle, 0, 0], c="C0")
for name, label in (("side", "x (ahead) [m]"), ("front", "-y (to the right) [m]")):
    axes[name].axhline(0, c="0.6", lw=0.8, zorder=0)
    axes[name].set(xlabel=label, ylabel="z [m]", aspect="equal")
axes["side"].set_title("stance leg blue, swinging orange")
axes["front"].set_title("from behind, later darker")
axes["zmp"].add_patch(Rectangle((-0.08, -0.06), 0.22, 0.12, fc="0.92", ec="0.5"))
centres = jax.vmap(lambda t: configuration(coefficients, t)[:2])(times)
axes["zmp"].plot(*centres.T, c="C2", label="pelvis")
axes["zmp"].plot(*zmp.T, c="C3", label="zero moment point")
axes["zmp"].set(xlabel="x [m]", ylabel="y [m]", aspect="equal", xlim=(-0.12, 0.36), title="sole of the left foot")
axes["zmp"].legend(fontsize="small", loc="right")
for k, name in enumerate("xyz"):
    axes["force"].plot(times, wrenches[:, 3 + k], label=f"f_{name}")
axes["force"].axhline(float(9.81 * free.inertia[:, 0].sum()), c="0.5", ls=":", label="weight")
axes["force"].set(xlabel="time [s]", ylabel="ground's force [N]")
axes["force"].legend(fontsize="small")
for j, name in (
    (1, "left ankle pitch"),
    (2, "left knee"),
    (4, "left hip roll"),
    (6, "right hip pitch"),
    (7, "right knee"),
):
    axes["torque"].plot(clock, torques[:, j], label=name)
axes["torque"].set(xlabel="time [s]", ylabel="torque [N m]")
axes["torque"].legend(fontsize="x-small", loc="center right")
axes["torque"].set_xlim(0, 1.55 * duration)
figure.savefig("biped_step.png", dpi=120)
