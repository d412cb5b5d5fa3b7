"""Sixteen quadrupeds with different trunks and soles drop to the ground and stand, under the same joint controller.

The robot is a URDF text, whose feet are spheres; contacts, joint limits and dry friction are MuJoCo's. A batch of rollouts
varies the mass of the trunk and the friction of the soles; forward-mode derivatives state how the final height depends on both.
Writes drop_quadruped.png, with the heights and the force under a foot, and a film of one robot, drop_quadruped.gif.
"""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn
from jaxdyn import geometry

jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
dt, duration, robots = 0.002, 0.4 if FAST else 1.0, 4 if FAST else 16
thigh, shank, foot = 0.2, 0.2, 0.02  # lengths and radius [m]


def leg(name: str, x: float, y: float) -> str:
    """A leg with three joints at (x, y) on the trunk, as URDF."""
    parts = [
        ("hip", "1 0 0", f"{x} {y} 0", 0.5, 0.0),
        ("thigh", "0 1 0", "0 0 0", 0.8, thigh),
        ("shank", "0 1 0", f"0 0 {-thigh}", 0.2, shank),
    ]
    text, parent = "", "trunk"
    for part, axis, origin, mass, length in parts:
        inertia = " ".join(
            f'{i}="{mass * 0.004 if i[1] == i[2] else 0}"' for i in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
        )
        text += f"""
          <link name="{name}_{part}">
            <inertial><origin xyz="0 0 {-length / 2}"/><mass value="{mass}"/><inertia {inertia}/></inertial></link>
          <joint name="{name}_{part}" type="revolute">
            <parent link="{parent}"/><child link="{name}_{part}"/><origin xyz="{origin}"/><axis xyz="{axis}"/>
            <limit lower="-2.7" upper="2.7" velocity="30" effort="30"/>
            <dynamics damping="0.05" friction="0.2"/><jaxdyn armature="0.005"/></joint>"""
        parent = f"{name}_{part}"
    return text


legs = {"FL": (0.19, 0.13), "FR": (0.19, -0.13), "RL": (-0.19, 0.13), "RR": (-0.19, -0.13)}
robot = jaxdyn.io.loads(
    f"""<robot name="quadruped"><link name="trunk"><inertial><mass value="6"/>
    <inertia ixx="0.04" iyy="0.1" izz="0.11" ixy="0" ixz="0" iyz="0"/></inertial></link>
    {"".join(leg(name, *place) for name, place in legs.items())}</robot>""",
    floating_base=True,
)
trunk = jaxdyn.io.Geometry("trunk", "box", np.eye(4), (0.4, 0.2, 0.1))
limbs = [
    shape
    for name in legs
    for shape in (
        geometry.sphere(f"{name}_shank", foot, (0, 0, -shank)),
        geometry.sphere(f"{name}_hip", 0.035),
        geometry.capsule(f"{name}_thigh", (0, 0, 0), (0, 0, -thigh), 0.02),
        geometry.capsule(f"{name}_shank", (0, 0, 0), (0, 0, -shank), 0.015),
    )
]
shapes = geometry.make_shapes(robot, [trunk, *limbs], pairs=[])
shapes = geometry.with_environment(robot, shapes, [geometry.floor()])
# the feet and the trunk touch the floor
feet = [1 + limbs.index(shape) for shape in limbs if shape.kind == "sphere" and shape.link.endswith("shank")]
shapes = geometry.with_pairs(shapes, [(k, len(limbs) + 1) for k in (0, *feet)])
contacts = jaxdyn.contact.make_contacts(robot, shapes, friction=(0.8, 0.02, 0.001))
print(contacts)
first = contacts.place_names.index(("floor", shapes.names[feet[0]]))

posture = jnp.tile(jnp.array([0.0, 0.7, -1.4]), 4)
drop = jnp.concatenate([jnp.array([0.0, 0.0, 0.45, 1.0, 0.0, 0.0, 0.0]), posture])


def controller(t, q, qd):
    """Springs and dampers about the posture."""
    torque = 60.0 * (posture - q[7:]) - 1.5 * qd[6:]
    return jnp.concatenate([jnp.zeros(6), torque])


def fall(mass, friction):
    """The motion of a robot with another mass of the trunk and friction of the soles, both as factors."""
    own = eqx.tree_at(lambda r: r.inertia, robot, robot.inertia.at[5].multiply(mass))
    soles = eqx.tree_at(lambda c: c.friction, contacts, contacts.friction * friction)
    start = jaxdyn.contact.ContactState(drop, jnp.zeros(robot.nv), jnp.zeros(robot.nv))
    motion = jaxdyn.contact.contact_rollout(own, soles, start, controller, dt, round(duration / dt), every=10)
    forces = jax.vmap(lambda s: jaxdyn.contact.contact_forces(own, soles, *s).force[first])(motion)
    return motion, forces


masses, frictions = jnp.linspace(0.7, 1.5, robots), jnp.linspace(0.3, 1.2, robots)[::-1]
motions, forces = jax.jit(jax.vmap(fall))(masses, frictions)
heights = np.asarray(motions.q[:, :, 2])
print(f"{robots} robots stand at heights of {heights[:, -1].min():.3f} to {heights[:, -1].max():.3f} m")

height = lambda factors: fall(factors[0], factors[1])[0].q[-1, 2]
slopes = jax.jit(jax.jacfwd(height))(jnp.ones(2))
print(
    f"final height: {1000 * slopes[0]:.2f} mm per unit of the trunk's mass, {1000 * slopes[1]:.2f} mm per unit of friction"
)
assert (heights[:, -1] > 0.2).all() and slopes[0] < 0

t = dt * 10 * np.arange(heights.shape[1])
scene = jaxdyn.view.build_scene(robot, shapes=shapes)
film = {"fps": 3 if FAST else 20, "speed": 0.5, "direction": (20.0, -55.0)}
jaxdyn.view.animate(scene, t, np.asarray(motions.q[robots // 2]), "drop_quadruped.gif", **film)

figure = Figure(figsize=(9, 3.2), layout="constrained")
left, right = figure.subplots(1, 2)
for k in range(robots):
    colour = f"C{0 if k != robots // 2 else 1}"
    left.plot(t, heights[k], color=colour, alpha=0.5 if k != robots // 2 else 1)
    right.plot(t, forces[k, :, 2], color=colour, alpha=0.5 if k != robots // 2 else 1)
left.set(xlabel="time [s]", ylabel="height of the trunk [m]")
right.set(xlabel="time [s]", ylabel="force under a foot [N]")
figure.savefig("drop_quadruped.png", dpi=120)
