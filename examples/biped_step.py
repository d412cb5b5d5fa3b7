"""A minimum-torque step of a biped on ice, whose stance foot must not slip, tip or turn.

The robot stands on its left foot and swings its right foot forward. The step leads from a double-support posture to the
mirror image of this posture, so further steps can follow. `solve_by_inverse_dynamics` finds the motion. `ContactWrenchCone`
restricts the ground reaction to forces at the corners of the sole, each of which lies within a friction pyramid for ice. For
comparison, the script also plans a step without this constraint, whose ground reaction leaves the pyramid. Writes
biped_step.png.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.interpolate import make_lsq_spline

import jaxdyn

jax.config.update("jax_enable_x64", True)
steps, intervals = (20, 8) if os.environ.get("JAXDYN_EXAMPLES_FAST") else (48, 10)
# duration [s], length and clearance of the step, and height of the pelvis [m]
duration, stride, lift, height = 0.6, 0.5, 0.05, 0.72
# friction coefficient of ice, unused margin of the sole [m], sample time [s]
friction, margin, dt = 0.12, 0.01, 2e-3

robot = jaxdyn.textbook.biped()
# lengths of thigh and shin, distance between the feet, and ankle height, as in `biped` [m]
leg, width, ankle = 0.35, 0.2, 0.08
heel, toe = jnp.array([-0.08, -0.06]), jnp.array([0.14, 0.06])  # corners of a sole
# wrench that supports the weight of the stance foot, which is not part of the chain
foot_weight = 9.81 * jnp.array([0, -0.03, 0, 0, 0, 1.0])


def leg_angles(hip, sole):
    """Hip roll, hip pitch, knee, ankle pitch and ankle roll for an upright pelvis and a flat foot [rad]."""
    x, y, z = sole + jnp.array([0, 0, ankle]) - hip
    roll, down = jnp.arctan2(y, -z), -jnp.hypot(y, z)
    knee = 2 * jnp.arccos(jnp.hypot(x, down) / (2 * leg))
    pitch = jnp.arctan2(-x, -down) - knee / 2
    return jnp.stack([roll, pitch, knee, -pitch - knee, -roll])


def double_support(pelvis):
    """Joint angles from the left ankle to the right ankle, with the right foot half a step behind [rad]."""
    side = jnp.array([0, width / 2, 0])
    behind = jnp.array([-stride / 2, -width, 0])
    return jnp.concatenate([leg_angles(pelvis + side, jnp.zeros(3))[::-1], leg_angles(pelvis - side, behind)])


# initial velocity of the pelvis: that of a linear inverted pendulum whose state at the end of the step mirrors its initial
# state (Kajita et al. 2001)
rate = jnp.sqrt(9.81 / height)
away = jnp.array([stride / 4, width / 2]) * rate * jnp.tanh(rate * duration / 2) ** jnp.array([-1.0, 1.0])
pelvis = jnp.array([-stride / 4, -width / 2, height])
start, speed = jax.jvp(double_support, (pelvis,), (jnp.append(away, 0.0),))
mirror = jnp.array([-1.0, 1, 1, 1, -1, -1, 1, 1, 1, -1])  # mirroring reverses angles about x
last, last_speed = mirror * start[::-1], mirror * speed[::-1]


def below(chain, knot, lift):
    """Depth of the right foot's heel and toe below the arc that they must clear [m]."""
    sole, s = jaxdyn.frame_pose(chain, knot.q, "right_sole"), knot.k / steps
    ends = jnp.stack([sole[2, 3] + sole[2, 0] * x for x in (heel[0], toe[0])])
    return lift * (4 * s * (1 - s)) ** 2 - 2e-3 - ends


def leaning(chain, knot, weight):
    """Approximate pitch and roll of the torso."""
    return weight * jnp.stack([knot.q[1:4].sum(), knot.q[0] + knot.q[4]])


strength = jnp.array([60.0, 100, 150, 120, 100, 100, 120, 150, 100, 60])


@jax.jit
def plan(lower, upper, mu):
    """Plan the minimum-torque step for a sole with the given corners and friction coefficient."""
    cone = jaxdyn.trajectory.ContactWrenchCone("left_sole", lower, upper, mu, foot_weight, least_force=50.0)
    problem = jaxdyn.trajectory.OptimalControlProblem(
        robot,
        start,
        speed,
        steps,
        duration / steps,
        running=(
            jaxdyn.trajectory.TorqueCost(0.03),
            jaxdyn.trajectory.StateCost(start, rest, 0.0, 0.1),
            jaxdyn.trajectory.UserCost(leaning, jnp.array(3.0)),
        ),
        constraints=(
            cone,
            jaxdyn.trajectory.position_limits(robot),
            jaxdyn.trajectory.UserConstraint(below, jnp.array(lift)),
        ),
        terminal_constraints=(jaxdyn.trajectory.StateConstraint(last, last_speed),),
        torque_limits=jnp.stack([-strength, strength], axis=1),
    )
    return jaxdyn.trajectory.solve_by_inverse_dynamics(problem, intervals=intervals, tolerance=1e-6)


def sampled(trajectory):
    """Positions, velocities and accelerations of the plan at intervals of dt; exact, because the plan is a spline."""
    t = np.asarray(trajectory.t)
    knots = t[-1] * np.concatenate([np.zeros(5), np.linspace(0, 1, intervals + 1), np.ones(5)])
    spline = make_lsq_spline(t, np.asarray(trajectory.q), knots, k=5)
    return jaxdyn.control.JointReference(*(jnp.asarray(spline.derivative(k)(times)) for k in range(3)))


@jax.jit
@jax.vmap
def standing(q, v, a):
    """Ground reaction about the origin of the sole, and zero moment point."""
    wrench = jaxdyn.mechanisms.ground_reaction(robot, q, v, a) + foot_weight
    return wrench, jaxdyn.mechanisms.zero_moment_point(wrench)


rest = jnp.zeros(10)
times = np.arange(round(duration / dt) + 1) * dt
slope = np.array(friction / np.sqrt(2))  # slope of a pyramid that lies within the friction cone
soles = {  # passed as arrays, so both cases use the same compiled program
    "without ground constraint": (np.full(2, -9.0), np.full(2, 9.0), np.array(9.0)),
    "within the contact wrench cone": (heel + margin, toe - margin, slope),
}
found = {}
for name, sole in soles.items():
    solution = plan(*sole)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED, solution.message
    reference = sampled(solution.trajectory)
    wrench, zmp = standing(reference.q, reference.qd, reference.qdd)
    outside = jnp.maximum(heel - zmp, zmp - toe).max()
    sideways = jnp.hypot(wrench[:, 3], wrench[:, 4])
    print(f"{name}: {solution.message} after {solution.iterations} iterations, cost {solution.cost:.4f}")
    print(f"  friction coefficient needed: {(sideways / wrench[:, 5]).max():.3f}, available: {friction}")
    print(f"  smallest margin to the friction cone: {(friction * wrench[:, 5] - sideways).min():+.1f} N")
    print(f"  zero moment point: {-100 * outside:+.1f} cm within the sole; smallest load {wrench[:, 5].min():.0f} N")
    found[name] = solution, reference, wrench, zmp

solution, reference, wrench, zmp = found["within the contact wrench cone"]
used = jnp.abs(solution.trajectory.tau / strength).max()
print(f"the step takes {duration} s and up to {100 * used:.0f} % of the torque limits")
assert (jnp.hypot(wrench[:, 3], wrench[:, 4]) < friction * wrench[:, 5]).all(), "the foot would slip"
assert ((heel < zmp) & (zmp < toe)).all(), "the foot would tip"


@jax.jit
@jax.vmap
def stick(q):
    """Points (x, z) along the stance leg, the swing leg, the swing leg's sole, and the torso [m]."""
    poses, sole = jaxdyn.forward_kinematics(robot, q)[:, :3, 3], jaxdyn.frame_pose(robot, q, "right_sole")
    top = (jaxdyn.frame_pose(robot, q, "pelvis") @ jnp.array([0, 0, 0.5, 1]))[:3]
    ends = [(sole @ jnp.array([x, 0, 0, 1]))[:3] for x in (heel[0], toe[0])]
    stance = jnp.stack([jnp.zeros(3), poses[0], poses[2], poses[4]])
    torso = jnp.stack([(poses[4] + poses[5]) / 2, top])
    return [points[:, jnp.array([0, 2])] for points in (stance, poses[jnp.array([5, 7, 8])], jnp.stack(ends), torso)]


figure = Figure(figsize=(10, 6.4), layout="constrained")
axes = figure.subplot_mosaic([["step", "cone"], ["step", "sole"], ["force", "need"]], width_ratios=(1.25, 1))
shown = reference.q[jnp.linspace(0, len(times) - 1, 7).astype(int)]
parts = stick(shown)
for k in range(len(shown)):
    for points, colour, thick in zip(parts, ("C0", "C1", "C1", "0.3"), (2, 2, 3, 3), strict=True):
        axes["step"].plot(*points[k].T, "-", c=colour, lw=thick, alpha=0.25 + 0.75 * k / (len(shown) - 1))
axes["step"].plot([heel[0], toe[0]], [0, 0], c="C0", lw=4)
axes["step"].axhline(0, c="0.6", lw=0.8, zorder=0)
axes["step"].set(xlabel="x (ahead) [m]", ylabel="z [m]", aspect="equal", title="stance leg blue; darker: later")
for k, name in enumerate("xyz"):
    axes["force"].plot(times, wrench[:, 3 + k], label=f"$f_{name}$")
axes["force"].axhline(float(9.81 * robot.inertia[:, 0].sum() + foot_weight[5]), c="0.5", ls=":", label="weight")
axes["force"].set(xlabel="time [s]", ylabel="ground reaction [N]")
axes["force"].legend(fontsize="x-small", ncols=2)
angle = jnp.linspace(0, 2 * jnp.pi, 100)
axes["cone"].fill(friction * jnp.cos(angle), friction * jnp.sin(angle), fc="0.93", ec="0.5")
axes["cone"].add_patch(
    Rectangle((-float(slope), -float(slope)), 2 * float(slope), 2 * float(slope), fc="none", ec="0.6", ls="--")
)
axes["sole"].add_patch(Rectangle((-0.08, -0.06), 0.22, 0.12, fc="0.93", ec="0.5"))
for (name, (_, _, wrench, zmp)), colour in zip(found.items(), ("C3", "C0"), strict=True):
    axes["cone"].plot(wrench[:, 3] / wrench[:, 5], wrench[:, 4] / wrench[:, 5], c=colour, lw=1.5)
    axes["sole"].plot(*zmp.T, c=colour, lw=1.5)
    axes["need"].plot(times, jnp.hypot(wrench[:, 3], wrench[:, 4]) / wrench[:, 5], c=colour, label=name)
axes["cone"].set(xlabel="$f_x / f_z$", ylabel="$f_y / f_z$", aspect="equal", title="friction cone and pyramid")
axes["sole"].set(xlabel="x [m]", ylabel="y [m]", aspect="equal", title="zero moment point in the sole")
axes["need"].axhline(friction, c="0.5", ls=":")
axes["need"].set(xlabel="time [s]", ylabel="friction coefficient\nneeded", ylim=(0, None))
axes["need"].legend(fontsize="x-small")
figure.savefig("biped_step.png", dpi=90)
