"""Rotations, poses and inertias; configurations and layouts of a floating mechanism."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from helpers import public, random_inertia, random_mechanism, random_rotation
from jaxdyn.model import layouts
from jaxdyn.spatial import inertia, se3, so3, solids

from .case import Case, normal


def rotations(rng):
    return (jnp.asarray(random_rotation(rng)),)


def poses(rng):
    return (se3.pose(*rotations(rng), jnp.asarray(rng.normal(size=3))),)


def bodies(rng):
    return (jnp.asarray(random_inertia(rng)),)


def quaternions(rng):
    return (jnp.asarray((lambda x: x / np.linalg.norm(x))(rng.normal(size=4))),)


def positive(*shapes):
    return lambda rng: tuple(jnp.asarray(rng.uniform(0.5, 1.5, size=s)) for s in shapes)


def each(*samples):
    return lambda rng: tuple(x for sample in samples for x in sample(rng))


def of_bodies(function):
    return lambda rng: (function(*bodies(rng)),)


SAMPLES = {
    so3: {
        "skew": normal(3),
        "rotation_exp": normal(3),
        "exp_coefficients": positive(()),
        "rotation_log": rotations,
        "rotation_log_rate": normal(3),
        "quaternion_log": quaternions,
        "quaternion_exp": normal(3),
        "quaternion_multiply": each(quaternions, quaternions),
        "rotation_to_quaternion": rotations,
        "quaternion_to_rotation": quaternions,
        "rpy_to_rotation": normal(3),
        "rotation_to_rpy": rotations,
    },
    se3: {
        "pose": each(rotations, normal(3)),
        "pose_inverse": poses,
        "adjoint": poses,
        "twist_cross": normal(6),
        "pose_exp": normal(6),
        "pose_log": poses,
    },
    inertia: {
        "inertial_parameters_from_com": normal((), 3, (3, 3)),
        "inertial_parameters_to_com": bodies,
        "rotational_inertia": bodies,
        "spatial_inertia": bodies,
        "inertial_parameters_from_spatial": of_bodies(inertia.spatial_inertia),
        "transform_inertial_parameters": each(poses, bodies),
        "pseudo_inertia": bodies,
        "inertial_parameters_from_pseudo_inertia": of_bodies(inertia.pseudo_inertia),
        "pseudo_inertia_gradient": bodies,
        "log_cholesky_factor": normal(10, scale=0.3),
        "log_cholesky_from_factor": of_bodies(lambda pi: inertia.pseudo_inertia_factor(inertia.pseudo_inertia(pi))),
        "log_cholesky_to_inertial_parameters": normal(10, scale=0.3),
        "log_cholesky_from_inertial_parameters": bodies,
        "pseudo_inertia_factor": of_bodies(inertia.pseudo_inertia),
    },
    solids: {
        "box": positive((), 3),
        "sphere": positive((), ()),
        "cylinder": positive((), (), ()),
        "rod": positive((), (), 3),
        "point": positive((), 3),
        "ellipsoid": positive((), 3),
        "cone": positive((), (), ()),
        "hollow_cylinder": positive((), (), (), ()),
        "capsule": positive((), (), ()),
        "point_cloud": positive(4, (4, 3)),
        "mesh": lambda rng: (jnp.asarray(rng.uniform(0.5, 1.5, (4, 3))), TETRAHEDRON, jnp.asarray(2.0)),
    },
}
TETRAHEDRON = jnp.asarray([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
PRIORS = ("entropic_divergence",)


def cases() -> dict[str, Case]:
    found = {
        f"{module.__name__.rsplit('.', 1)[1]}.{name}": Case(getattr(module, name), sample, accuracy=1e5)
        for module, samples in SAMPLES.items()
        for name, sample in samples.items()
    }
    for name in ("log_cholesky_from_factor", "log_cholesky_from_inertial_parameters"):  # of slender bodies
        found[f"inertia.{name}"] = found[f"inertia.{name}"]._replace(difference=1e-4)
    chain = random_mechanism(3)
    n, nv = chain.n, chain.nv
    pi = jnp.asarray(chain.inertia)
    found["inertial_parameters"] = Case(
        lambda x: jaxdyn.inertial_parameters(jaxdyn.with_inertial_parameters(chain, pi * x)), normal((n, 10))
    )
    found["with_inertial_parameters"] = Case(
        lambda x: jaxdyn.with_inertial_parameters(chain, x).inertia, normal((n, 10))
    )
    found["with_leaves"] = Case(
        lambda x: jaxdyn.model.with_leaves(chain, {"friction.viscous": x}).friction.viscous, normal(n)
    )

    def configurations(rng):
        return (jaxdyn.random_configuration(chain, jax.random.key(rng.integers(2**31))),)

    def with_vectors(count):
        return each(configurations, normal(*[nv] * count))

    bound = lambda function: functools.partial(function, chain)
    found["difference"] = Case(
        bound(jaxdyn.difference), each(configurations, configurations), accuracy=1e6, smooth=False
    )
    found["integrate"] = Case(bound(jaxdyn.integrate), with_vectors(1))
    found["normalise_configuration"] = Case(bound(jaxdyn.model.normalise_configuration), configurations)
    found["neutral_configuration"] = Case(lambda x: x + jaxdyn.neutral_configuration(chain), normal(chain.nq))
    for name, count in (("state", 1), ("acceleration", 2), ("force", 1)):
        for way in ("to", "from"):
            function = getattr(layouts, f"{way}_mujoco_{name}")
            found[f"layouts.{way}_mujoco_{name}"] = Case(bound(function), with_vectors(count))
    for way in ("to", "from"):
        found[f"layouts.{way}_pinocchio_state"] = Case(
            bound(getattr(layouts, f"{way}_pinocchio_state")), with_vectors(1)
        )
        found[f"layouts.{way}_pinocchio_vector"] = Case(bound(getattr(layouts, f"{way}_pinocchio_vector")), normal(nv))
    found["layouts.free_turning"] = Case(bound(layouts.free_turning), normal(nv))
    for name in PRIORS:
        found[name] = Case(public(name), each(bodies, bodies), accuracy=1e8, difference=1e-4)
    return found
