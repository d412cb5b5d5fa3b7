"""The fastest motion of a UR10 around a pillar, within its position, velocity and torque limits.

The motion is a B-spline with free duration. Its control points are the unknowns of an interior-point method, and the torques
follow from inverse dynamics. Spheres around the wrist and the tool must stay outside the pillar, a capsule. Writes
minimum_time.png.
"""

import os

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxdyn

jax.config.update("jax_enable_x64", True)
steps = 24 if os.environ.get("JAXDYN_EXAMPLES_FAST") else 60

robot = jaxdyn.robots.ur10()
start = jnp.array([-0.9, -1.3, 1.6, -1.9, -1.57, 0.0])
goal = jnp.array([0.9, -1.0, 1.2, -1.8, -1.57, 0.0])
frames = ("wrist_1_link", "wrist_2_link", "tool0")
spheres = [jaxdyn.geometry.sphere(frame, radius) for frame, radius in zip(frames, (0.08, 0.07, 0.06), strict=True)]
margin = 0.01  # additional clearance at the knots [m], because the motion is not constrained between them
pillar = {"from": jnp.array([-1.0, -0.12, 0.0]), "to": jnp.array([-1.0, -0.12, 0.6]), "radius": 0.1}
obstacle = jaxdyn.geometry.capsule(robot.topology.base_name, pillar["from"], pillar["to"], pillar["radius"])
shapes = jaxdyn.geometry.make_shapes(robot, [*spheres, obstacle], pairs=[(0, 3), (1, 3), (2, 3)])
clearance = jaxdyn.trajectory.Clearance(shapes, margin)
torques = jaxdyn.trajectory.torque_limits(robot, 0.5)  # half of the drives' limits
problem = jaxdyn.trajectory.OptimalControlProblem(
    robot,
    start,
    jnp.zeros(6),
    steps,
    2.0 / steps,
    # small weights make the motion unique for joints that do not limit the duration
    running=(
        jaxdyn.trajectory.TorqueCost(0.1 / torques[:, 1]),
        jaxdyn.trajectory.StateCost(goal, jnp.zeros(6), 0.0, 0.3 / robot.limits.velocity),
    ),
    constraints=(jaxdyn.trajectory.position_limits(robot), jaxdyn.trajectory.velocity_limits(robot), clearance),
    terminal_constraints=(jaxdyn.trajectory.StateConstraint(goal, jnp.zeros(6)),),
    torque_limits=torques,
    duration_limits=(0.3, 6.0),
    duration_weight=1.0,
)


@jax.jit
def solve(problem):
    return jaxdyn.trajectory.solve_by_inverse_dynamics(problem, intervals=8, tolerance=1e-7)


solution = solve(problem)
t, q, v, tau = solution.trajectory.t, solution.trajectory.q, solution.trajectory.v, solution.trajectory.tau
print(f"{solution.message} after {solution.iterations} iterations")
print(f"duration {t[-1]:.3f} s; largest residual {solution.residuals.largest:.1e}")


@jax.jit
@jax.vmap
def looked_at(q):
    """Points along the arm, and distances of the spheres from the pillar [m]."""
    poses = jaxdyn.forward_kinematics(robot, q)
    tool = jaxdyn.frame_pose(robot, q, "tool0")[:3, 3]
    distances = jaxdyn.geometry.distances(robot, shapes, q)
    return jnp.concatenate([jnp.zeros((1, 3)), poses[:, :3, 3], tool[None]]), distances


def between(values, rates, places):
    """Positions between the knots, for velocities that vary linearly in each step."""
    h, p = t[1] - t[0], places[None, :, None]
    rise = h * (rates[:-1, None] * p + (rates[1:] - rates[:-1])[:, None] * p**2 / 2)
    return (values[:-1, None] + rise).reshape(-1, 6)


fine = between(q, v, jnp.linspace(0, 1, 8, endpoint=False))
points, _ = looked_at(q)
_, distances = looked_at(fine)
used = jnp.abs(tau) / torques[:, 1]
speed = jnp.abs(v) / robot.limits.velocity
print(f"torques up to {100 * used.max():.1f} % of their limits, velocities up to {100 * speed.max():.1f} %")
print(f"smallest distance from the pillar, including between knots: {1000 * distances.min():.1f} mm")
assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED
assert used.max() < 1 + 1e-4 and speed.max() < 1 + 1e-4
assert distances.min() > 0

figure = Figure(figsize=(11, 6), layout="constrained")
axes = figure.subplot_mosaic([["above", "side"], ["torque", "speed"]])
for name, across, label in (("above", 1, "y [m]"), ("side", 2, "z [m]")):
    for k in range(0, steps + 1, max(1, steps // 8)):
        axes[name].plot(points[k, :, 0], points[k, :, across], "o-", c="C0", ms=3, alpha=0.2 + 0.7 * k / steps)
    axes[name].plot(points[:, -1, 0], points[:, -1, across], c="k", ls="--", label="tool")
    ends = jnp.stack([pillar["from"], pillar["to"]])
    angle = jnp.linspace(0, 2 * jnp.pi, 60)
    for centre in jnp.linspace(ends[0], ends[1], 20):
        x = centre[0] + pillar["radius"] * jnp.cos(angle)
        axes[name].fill(x, centre[across] + pillar["radius"] * jnp.sin(angle), c="0.6")
    axes[name].set(
        xlabel="x [m]",
        ylabel=label,
        aspect="equal",
        title={"above": "top view", "side": "side view"}[name] + " (darker: later)",
    )
for j in range(6):
    axes["torque"].step(t[:-1], tau[:, j] / torques[j, 1], where="post", label=f"joint {j + 1}")
    axes["speed"].plot(t, v[:, j] / robot.limits.velocity[j])
for name, label in (("torque", "torque / limit"), ("speed", "velocity / limit")):
    axes[name].set(xlabel="time [s]", ylabel=label, ylim=(-1.1, 1.1))
    axes[name].axhline(1, c="0.5", ls=":")
    axes[name].axhline(-1, c="0.5", ls=":")
lines = [*axes["torque"].get_lines()[:6], axes["above"].get_lines()[-1]]
figure.legend(handles=lines, loc="outside lower center", ncols=7, fontsize="small")
figure.savefig("minimum_time.png", dpi=120)
