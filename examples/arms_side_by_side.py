"""Two arms on a table, which sweep through the space between them in opposite directions without touching.

On the straight motion between the postures, the arms collide. The cheapest motion that keeps all shapes at least 3 cm apart,
also from the table, is a B-spline, whose torques follow from inverse dynamics. Between the knots, distances are checked with
bounds on the motion of the shapes. Writes arms_side_by_side.png and a film of the optimised motion, arms_side_by_side.gif.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn
from jaxdyn import geometry, trajectory

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
steps, duration, least = 20, 1.5, 0.03

# joint, axis, position of the joint on the link before it [m], mass of the link [kg], centres of its capsule's caps, radius [m]
LINKS = (
    ("waist", "0 0 1", "0 0 0.12", 4.0, (0, 0, 0.0), (0, 0, 0.10), 0.07),
    ("shoulder", "0 1 0", "0 0 0.15", 3.0, (0, 0, 0.0), (0, 0, 0.35), 0.055),
    ("elbow", "0 1 0", "0 0 0.35", 2.0, (0, 0, 0.0), (0, 0, 0.14), 0.05),
    ("roll", "0 0 1", "0 0 0.18", 1.0, (0, 0, 0.0), (0, 0, 0.12), 0.045),
    ("bend", "0 1 0", "0 0 0.14", 0.8, (0, 0, 0.0), (0, 0, 0.08), 0.04),
    ("hand", "0 0 1", "0 0 0.10", 0.5, (0, 0, 0.02), (0, 0, 0.10), 0.04),
)


def arm(side: str, y: float) -> str:
    """Links and joints of an arm whose base is at a y on the table, as URDF."""
    text, parent, place = "", "table", f"0 {y} "
    for joint, axis, origin, mass, start, end, _ in LINKS:
        middle, inertia = (start[2] + end[2]) / 2, 0.01 * mass
        about = " ".join(f'{i}="{inertia if i[1] == i[2] else 0}"' for i in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"))
        name, xyz = f"{side}_{joint}", place + origin.split()[2] if parent == "table" else origin
        text += f"""
          <link name="{name}_link">
            <inertial><origin xyz="0 0 {middle}"/><mass value="{mass}"/><inertia {about}/></inertial></link>
          <joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{name}_link"/><origin xyz="{xyz}"/>
            <axis xyz="{axis}"/><limit lower="-2.9" upper="2.9" velocity="4" effort="80"/></joint>"""
        parent = f"{name}_link"
    return text


sides = {"left": 0.4, "right": -0.4}
robot = jaxdyn.io.loads(
    f'<robot name="arms"><link name="table"/>{"".join(arm(*side) for side in sides.items())}</robot>'
)
bodies = [
    geometry.capsule(f"{side}_{joint}_link", start, end, radius)
    for side in sides
    for joint, *_, start, end, radius in LINKS
]
shapes = geometry.with_environment(robot, geometry.make_shapes(robot, bodies), [geometry.floor()])
print(shapes)

# the arms face each other
left, right = np.array([0.0, 0.3, 1.5, 0.0, 1.2, 0.0]), np.array([0.0, 0.4, 1.5, 0.0, 1.1, 0.0])
turned = lambda waist, posture: np.array([waist, *posture[1:]])
start = jnp.asarray([*turned(-np.pi / 2 - 0.6, left), *turned(np.pi / 2 - 0.6, right)])
goal = jnp.asarray([*turned(-np.pi / 2 + 0.6, left), *turned(np.pi / 2 + 0.6, right)])
still = jnp.zeros(robot.nv)
between = 0.005  # additional distance at the knots [m], because the motion is not constrained between them
torques = trajectory.torque_limits(robot)
problem = trajectory.OptimalControlProblem(
    robot,
    start,
    still,
    steps,
    duration / steps,
    running=(
        trajectory.TorqueCost(0.3 / torques[:, 1]),
        trajectory.StateCost(goal, still, 0.0, 0.3 / robot.limits.velocity),
    ),
    constraints=(
        trajectory.position_limits(robot),
        trajectory.velocity_limits(robot),
        trajectory.Clearance(shapes, least + between),
    ),
    terminal_constraints=(trajectory.StateConstraint(goal, still),),
    torque_limits=torques,
)
solution = jax.jit(lambda problem: trajectory.solve_by_inverse_dynamics(problem, intervals=6, tolerance=1e-5))(problem)
print(f"{solution.message} after {solution.iterations} iterations")
t = solution.trajectory.t
motions = {"straight": trajectory.joint_motion(robot, start, goal, duration, t).q, "optimised": solution.trajectory.q}
found = {}
for name, q in motions.items():
    found[name] = geometry.closest_approaches(robot, shapes, t, q, least)[0]
    print(f"{name}: {1000 * found[name].distance:.1f} mm between {found[name].first} and {found[name].second}")
assert int(solution.status) == trajectory.Status.CONVERGED
assert found["straight"].distance < 0 and found["optimised"].bound > least

both = geometry.with_pairs(
    shapes, [pair for pair in shapes.pair_names if {name.split("_")[0] for name in pair} == {*sides}]
)
scene = jaxdyn.view.build_scene(robot, shapes=both)
film = {"fps": 2 if FAST else 12, "speed": 0.5, "direction": (35.0, -50.0)}
jaxdyn.view.animate(scene, t, motions["optimised"], "arms_side_by_side.gif", **film)


def outline(ends, radius):
    """The outline of a capsule in a projection."""
    (x, y), turn = ends[1] - ends[0], np.linspace(-np.pi / 2, np.pi / 2, 20)
    angle = np.arctan2(y, x) + np.stack([turn + np.pi, turn])
    return np.concatenate(ends[:, None] + radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1))


figure = Figure(figsize=(11, 3.6), layout="constrained")
*views, right = figure.subplots(1, 3)
apart = jax.jit(jax.vmap(lambda q: geometry.distances(robot, both, q).min()))
for axes, (name, q) in zip(views, motions.items(), strict=True):
    posture = jnp.stack([jnp.interp(found["straight"].time, t, x) for x in q.T])
    poses = jaxdyn.forward_kinematics(robot, posture)
    drawn = []
    for k in range(robot.n):
        pose, half = poses[shapes.links[k]] @ shapes.pose[k], float(shapes.size[k, 2])
        ends = np.stack([pose[:3, 3] - half * pose[:3, 2], pose[:3, 3] + half * pose[:3, 2]])
        colour = "C0" if shapes.names[k].startswith("left") else "C1"
        drawn.append((ends[:, 0].mean(), outline(ends[:, 1:], float(shapes.radius[k])), colour))
    for _, points, colour in sorted(drawn, key=lambda item: item[0]):  # from the back to the front
        axes.fill(*points.T, facecolor=colour, edgecolor="white", linewidth=0.8)
    axes.axhline(0, color="0.5")
    axes.set(
        aspect="equal",
        ylim=(-0.03, 0.85),
        xlabel="y [m]",
        ylabel="z [m]",
        title=f"{name}, {found['straight'].time:.2f} s",
    )
    fine = jnp.linspace(0, duration, 301)
    rows = jnp.stack([jnp.interp(fine, t, x) for x in q.T], axis=1)
    right.plot(fine, 1000 * apart(rows), color="0.6" if name == "straight" else "C2", label=name)
right.axhline(1000 * least, color="k", ls=":", lw=1)
right.set(xlabel="time [s]", ylabel="distance between the arms [mm]")
right.legend()
figure.savefig("arms_side_by_side.png", dpi=120)
