"""Quantities of frames, of the robot as a whole, of motors and of elastic joints."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from helpers import public, random_chain, random_mechanism

from .case import Case, normal

DEAR = ("mass_matrix_bounds",)
COUNTS = {
    "frame_pose": 1,
    "jacobian_derivative": 2,
    "frame_acceleration": 3,
    "centre_of_mass": 1,
    "centre_of_mass_jacobian": 1,
    "centroidal_momentum": 2,
    "centroidal_momentum_bias": 2,
    "centroidal_momentum_matrix": 1,
    "total_momentum": 2,
    "ground_reaction": 3,
    "operational_space": 2,
    "operational_space_inertia": 1,
    "operational_space_bias": 2,
    "dynamically_consistent_inverse": 1,
}
TASK = "operational_space", "operational_space_inertia", "operational_space_bias", "dynamically_consistent_inverse"


def cases() -> dict[str, Case]:
    arm, six = random_chain(3), random_chain(6, joints="revolute")
    found = {
        name: Case(functools.partial(public(name), arm), normal(*[3] * count))
        for name, count in COUNTS.items()
        if name not in TASK
    }
    for name in TASK:  # a task of six directions needs as many joints
        of_frame = functools.partial(public(name), six)
        found[name] = Case(of_frame, normal(*[6] * COUNTS[name]), accuracy=1e8, difference=1e-4)
    masses = lambda scale: jaxdyn.total_mass(jaxdyn.with_inertial_parameters(arm, scale * arm.inertia))
    found["total_mass"] = Case(masses, normal(()))
    found["link_wrenches"] = Case(functools.partial(jaxdyn.dynamics.link_wrenches, arm), normal((3, 6), 6))
    found["zero_moment_point"] = Case(
        lambda x: jaxdyn.mechanisms.zero_moment_point(x + jnp.asarray([0, 0, 0, 0, 0, 50.0]), 0.1), normal(6)
    )
    found["passivity_integral"] = Case(
        functools.partial(jaxdyn.dynamics.passivity_integral, arm), normal((5, 3), (4, 3))
    )
    bodies = [
        jaxdyn.geometry.capsule(arm.link_names[0], (0, 0, -0.1), (0, 0, 0.2), 0.05),
        jaxdyn.geometry.sphere(arm.link_names[2], 0.1),
        jaxdyn.io.Geometry(
            arm.topology.base_name,
            "box",
            np.array([[1.0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]]),
            (0.2, 0.3, 0.4),
        ),
    ]
    shapes = jaxdyn.geometry.make_shapes(arm, bodies, pairs=[(0, 1), (0, 2), (2, 1)])
    hills = jaxdyn.geometry.height_field([[-2.0, -1.9, -2.2], [-2.1, -1.8, -2.0]], (3.0, 3.0))
    shapes = jaxdyn.geometry.with_environment(arm, shapes, [jaxdyn.geometry.floor(-2.0), hills])
    found["distances"] = Case(functools.partial(jaxdyn.geometry.distances, arm, shapes), normal(3))
    # points and normals count as constants
    found["closest_points"] = Case(lambda q: jaxdyn.geometry.closest_points(arm, shapes, q).distance, normal(3))
    found |= _touching(arm)
    with_motors = jaxdyn.with_transmission(
        arm, matrix=[[20.0, 0, 0], [10.0, 30.0, 0], [0, 5.0, 40.0]], rotor_inertia=1e-4
    )
    for name in ("joint_torques_from_motors", "motor_rates", "motor_torques"):
        found[name] = Case(functools.partial(public(name), with_motors), normal(3))
    drives = {"stiffness": [80.0, 60.0, 50.0], "rotor_inertia": 1e-3, "gear_ratio": 20.0}
    damped, springs = (
        jaxdyn.mechanisms.elastic_joints(arm, damping=0.2, **drives),
        jaxdyn.mechanisms.elastic_joints(arm, **drives),
    )
    for name, count in (("energy", 4), ("forward_dynamics", 5), ("torque", 4), ("inverse_dynamics", 5)):
        elastic = springs if name == "inverse_dynamics" else damped
        function = functools.partial(public(f"elastic_{name}"), arm, elastic)
        found[f"elastic_{name}"] = Case(function, normal(*[3] * count), accuracy=1e6)
    floating = random_mechanism(3)

    def both(key):
        q = jaxdyn.random_configuration(floating, key)
        return q, jaxdyn.model.normalise_configuration(floating, 1.1 * q)

    keys = lambda rng: (jax.random.key(rng.integers(2**31)),)
    found["random_configuration"] = Case(both, keys, derivatives=False)
    found["mass_matrix_bounds"] = Case(
        lambda key: jaxdyn.dynamics.mass_matrix_bounds(arm, key, count=8, refinements=2),
        keys,
        derivatives=False,
        accuracy=1e6,
    )
    return {name: case._replace(dear=name in DEAR) for name, case in found.items()}


def _touching(arm: jaxdyn.Chain) -> dict[str, Case]:
    """Functions of contacts: an arm in deep contact with a floor, which stays in contact under all transformations."""
    contact, geometry = jaxdyn.contact, jaxdyn.geometry
    tool = geometry.make_shapes(arm, [geometry.sphere(arm.link_names[2], 0.1)], pairs=[])
    floor = geometry.with_environment(arm, tool, [geometry.floor(3.0)])
    touching = contact.make_contacts(arm, floor, limits=False, dry_friction=False)

    def step(q, qd, tau):
        state = contact.ContactState(q, qd, jnp.zeros_like(qd))
        return contact.contact_step(arm, touching, state, tau, 0.01)[:2]

    solve = lambda q, qd, tau: contact.contact_dynamics(arm, touching, q, qd, tau).qdd
    smooth = contact.smoothed(touching, 0.001)
    tied = (contact.connect(arm, arm.link_names[2], arm.topology.base_name, ((0, 0, 0.1), (0.3, 0, 0.5))),)
    tied = dataclasses.replace(touching, equalities=tied)
    functions = {
        "contact_dynamics": solve,
        "contact_step": step,
        "contact_step_derivatives": lambda q, qd, tau: contact.contact_step_derivatives(
            arm, touching, contact.ContactState(q, qd, jnp.zeros_like(qd)), tau, 0.01
        ),
        "smoothed": lambda q, qd, tau: contact.contact_dynamics(arm, smooth, q, qd, tau).qdd,
        "equality_forces": functools.partial(contact.equality_forces, arm, tied),
    }
    for name in ("contact_dynamics_derivatives", "contact_inverse_dynamics", "contact_wrenches"):
        functions[name] = functools.partial(public(name), arm, touching)
    limits, bias = jnp.array([[-50.0, 50.0]] * 2), jnp.array([[0.0, -20.0, -1.0], [1.0, 0.0, -2.0]])
    servos = contact.Servos(
        jnp.array([1.0, 3.0]),
        jnp.array([20.0, 1.0]),
        bias,
        limits,
        limits,
        jnp.array([[-500.0, 500.0]] * 3),
        (0, 2),
        ("a", "b"),
    )
    functions["servo_torques"] = lambda q, qd, u: contact.servo_torques(arm, servos, q, qd, u[:2])
    return {name: Case(function, normal(3, 3, 3), accuracy=1e8) for name, function in functions.items()}
