"""Cubes on inclines, and throws of a tumbling cube that end at given targets, by derivatives through the contacts.

A batch of cubes stands on inclines of many slopes: those below the friction angle stick, the others slide with the acceleration
of Coulomb's law. Then cubes are thrown, and Newton's method finds the horizontal velocities with which they come to rest at
their targets, by forward-mode derivatives of the whole motion: flight, impacts, tumbling and sliding. For cubes that spin
faster it often fails, since they land on other edges at other velocities. One compiled function does all.
Writes throw_cube.png, and a film of one throw, throw_cube.gif.
"""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn
from jaxdyn import contact, geometry

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
count, dt, duration, newton_steps = (4, 0.004, 1.0, 4) if FAST else (16, 0.002, 1.2, 6)
edge, mass, mu, g = 0.1, 0.5, 0.5, 9.81
inertia = mass * edge**2 / 6

cube = jaxdyn.io.loads(
    f"""<robot name="cube"><link name="cube"><inertial><mass value="{mass}"/>
    <inertia ixx="{inertia}" iyy="{inertia}" izz="{inertia}" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>""",
    floating_base=True,
)
shapes = geometry.make_shapes(cube, [jaxdyn.io.Geometry("cube", "box", np.eye(4), (edge, edge, edge))], pairs=[])
shapes = geometry.with_environment(cube, shapes, [geometry.floor()])
contacts = contact.make_contacts(cube, shapes, friction=(mu, 0.005, 0.0001), cone="elliptic")


def motion(velocity, slope, q, rest):
    """The motion from q with horizontal velocities, and the others, on a floor that falls along x."""
    gravity = g * jnp.stack([jnp.sin(slope), jnp.zeros_like(slope), -jnp.cos(slope)])
    tilted = eqx.tree_at(lambda c: c.gravity, cube, gravity)
    rotation = jaxdyn.spatial.so3.quaternion_to_rotation(q[3:])
    qd = jnp.concatenate([rest[:3], rotation.T @ jnp.concatenate([velocity, rest[3:]])])  # in axes of the cube
    start = contact.ContactState(q, qd, jnp.zeros(6))
    states = contact.contact_rollout(tilted, contacts, start, jnp.zeros((round(duration / dt), 6)), dt, every=10)
    return states.q[-1, :2], states.q


# the final position's derivatives with respect to the velocities, and the motion
solve = jax.jit(jax.vmap(jax.jacfwd(motion, has_aux=True), in_axes=(0, 0, None, None)))

slopes = np.arctan(mu) + np.linspace(-0.2, 0.2, count)
_, paths = solve(jnp.zeros((count, 2)), slopes, jnp.array([0, 0, edge / 2, 1, 0, 0, 0]), jnp.zeros(4))
moved = np.asarray(paths[:, -1, 0])
coulomb = lambda slope: np.maximum(g * (np.sin(slope) - mu * np.cos(slope)), 0)
for slope, distance in zip(slopes, moved, strict=True):
    fate = "sticks" if distance < 0.005 else f"slides with {2 * distance / duration**2:.3f} m/s^2"
    print(f"slope {np.degrees(slope):.1f} deg: {fate}, Coulomb's law says {coulomb(slope):.3f} m/s^2")
assert ((moved > 0.005) == (np.tan(slopes) > mu)).all()
assert np.abs(2 * moved / duration**2 - coulomb(slopes)).max() < 0.01

angles = np.linspace(-1.0, 1.0, count)
targets = np.linspace(0.5, 0.9, count)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
turned = np.array([np.cos(0.25), np.sin(0.25) / np.sqrt(2), np.sin(0.25) / np.sqrt(2), 0])  # by 0.5 rad
held = jnp.asarray([0, 0, 0.3, *turned])


def search(spin):
    """Newton's method from one throw along x: distances from the targets, and motions, of all throws, step by step."""
    velocities, misses, throws = np.tile([1.0, 0.0], (count, 1)), [], []
    for _ in range(newton_steps + 1):
        jacobian, paths = solve(jnp.asarray(velocities), jnp.zeros(count), held, jnp.array([*spin, 1.0]))
        miss = np.asarray(paths[:, -1, :2]) - targets
        misses.append(np.linalg.norm(miss, axis=1))
        throws.append(np.asarray(paths))
        velocities -= np.linalg.solve(np.asarray(jacobian), miss[:, :, None])[:, :, 0]
    nearest, few = np.min(misses, axis=0), f"{newton_steps} steps of Newton's method"
    print(
        f"spin of {spin} rad/s: the first throws miss their targets by {misses[0].min():.2f} to {misses[0].max():.2f} m;"
    )
    print(
        f"  after {few}, {(nearest < 1e-5).sum()} of {count} by less than 0.01 mm, {(nearest > 0.01).sum()} by over 1 cm"
    )
    return np.array(misses), np.array(throws)


misses, throws = search((0.0, 6.0, 3.0))
after = throws[misses.argmin(axis=0), np.arange(count)]
assert misses.min(axis=0).max() < 0.01
# derivatives are those of throws that land on the same edges: cubes that spin faster tip over others at other velocities
faster, _ = search((0.0, 9.0, 3.0))

# the film of one throw, whose target is marked by a ball
one = count // 4
target = geometry.sphere("target", 0.02, (*targets[one], 0.0))
drawn = geometry.with_pairs(geometry.with_environment(cube, shapes, [target]), [])
scene = jaxdyn.view.build_scene(cube, shapes=drawn)
t = dt * 10 * np.arange(after.shape[1])
film = {"fps": 3 if FAST else 20, "speed": 0.4, "direction": (25.0, -60.0)}
jaxdyn.view.animate(scene, t, after[one], "throw_cube.gif", **film)

figure = Figure(figsize=(11, 3.4), layout="constrained")
left, middle, right = figure.subplots(1, 3)
fine = np.linspace(slopes[0], slopes[-1], 200)
left.plot(np.degrees(fine), coulomb(fine) * duration**2 / 2, color="C7", label="Coulomb's law")
left.plot(np.degrees(slopes), moved, "o", label="cubes")
left.axvline(np.degrees(np.arctan(mu)), color="C7", linestyle=":", label="friction angle")
left.set(xlabel="slope [deg]", ylabel=f"distance after {duration} s [m]")
left.legend()
for i in range(count):
    middle.plot(throws[0][i, :, 0], throws[0][i, :, 1], color="C7", label="before" if i == 0 else None)
    middle.plot(after[i, :, 0], after[i, :, 1], color="C0", alpha=0.6, label="after" if i == 0 else None)
middle.plot(*targets.T, "x", color="C3", label="targets")
middle.set(xlabel="x [m]", ylabel="y [m]", xlim=(-0.05, 1.35), aspect="equal", title="paths of the cubes, from above")
middle.legend(loc="right")
for found, colour, label in ((faster, "C1", "9 rad/s"), (misses, "C0", "6 rad/s")):
    lines = right.semilogy(np.maximum(1000 * found, 1e-6), color=colour, alpha=0.5)
    lines[0].set_label(f"spin of {label}")
right.legend()
right.set(xlabel="step of Newton's method", ylabel="distance from the target [mm]")
figure.savefig("throw_cube.png", dpi=120)
