"""Dynamics do not depend on where the robot is, and light links at the end of a heavy arm are as accurate as others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import dynamics, mechanisms
from peer_models import configuration_to_pinocchio, to_pinocchio, velocity_to_pinocchio

DISTANCES = (0.0, 10.0, 100.0, 1000.0)


def link(name, mass, centre, inertia):
    return (
        f'<link name="{name}"><inertial><origin xyz="{centre}"/><mass value="{mass}"/><inertia ixx="{inertia}" '
        f'iyy="{1.3 * inertia}" izz="{0.4 * inertia}" ixy="0" ixz="{0.1 * inertia}" iyz="0"/></inertial></link>'
    )


def joint(name, parent, child, axis, place, kind="continuous"):
    limit = "" if kind == "continuous" else '<limit lower="-1e9" upper="1e9" effort="9" velocity="9"/>'
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="{place}" rpy="0.1 0 0.2"/><parent link="{parent}"/>'
        f'<child link="{child}"/><axis xyz="{axis}"/>{limit}</joint>'
    )


def urdf(body, legs, first=""):
    """A body with legs of three links, each a tenth of the size and the mass of a human's."""
    text = f'<robot name="r">{first}' + link("body", *body)
    for k, corner in enumerate(legs):
        parent = "body"
        for i, (axis, place) in enumerate((("1 0 0", corner), ("0 1 0", "0 0.08 0"), ("0 1 0", "0 0 -0.2"))):
            text += joint(f"j{k}{i}", parent, f"l{k}{i}", axis, place) + link(
                f"l{k}{i}", 0.7 / (i + 1), "0 .03 -.1", 1e-3
            )
            parent = f"l{k}{i}"
    return text + "</robot>"


LEGS = ("0.2 0.1 0", "-0.2 -0.1 0.02")
BODY = (6.0, "0 0.01 0.02", 0.05)


def floating():
    return jaxdyn.io.loads(urdf(BODY, LEGS), floating_base=True)


def mounted():
    shoulder = link("base", 1, "0 0 0", 1) + joint("turn", "base", "body", "0 0 1", "0 0 0.3")
    return jaxdyn.io.loads(urdf(BODY, LEGS, shoulder))


def on_rail():
    rail = link("base", 1, "0 0 0", 1) + joint("rail", "base", "body", "1 0 0", "0 0 0.3", "prismatic")
    return jaxdyn.io.loads(urdf(BODY, LEGS, rail))


def fingers(hand, number=0):
    """Two fingers of three links of 20 g and less."""
    text = ""
    for f in range(2):
        parent = hand
        for k, axis in enumerate(("1 0 0", "0 1 0", "0 1 0")):
            name = f"{number}{f}{k}"
            text += joint(f"f{name}", parent, f"F{name}", axis, "0 0 0.04")
            text += link(f"F{name}", 0.02 / (k + 1), "0 0 .015", 4e-6 / (k + 1))
            parent = f"F{name}"
    return text


def light_fingers():
    """A 6-axis arm of the 20 kg class with two light fingers."""
    text, parent = '<robot name="r"><link name="base"/>', "base"
    for k, axis in enumerate(("0 0 1", "0 1 0", "0 1 0", "1 0 0", "0 1 0", "1 0 0")):
        text += joint(f"j{k}", parent, f"l{k}", axis, "0 0 0.3") + link(f"l{k}", 20 / (k + 1), "0 0 .15", 0.3 / (k + 1))
        parent = f"l{k}"
    return jaxdyn.io.loads(text + fingers(parent) + "</robot>")


def moved_base(chain, distance):
    t = jnp.eye(4, dtype=chain.dtype).at[:3, 3].set(jnp.asarray([distance, -distance, distance], chain.dtype))
    return dataclasses.replace(chain, base_pose=t)


ROBOTS = {
    "floating base": (floating, lambda c, q, d: (c, q.at[:3].set(jnp.asarray([d, -d, d], q.dtype)))),
    "base pose": (mounted, lambda c, q, d: (moved_base(c, d), q)),
    "rail": (on_rail, lambda c, q, d: (c, q.at[0].set(d))),
}


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def of_matrices(chain, q, v, tau):
    """The mass matrix, its inverse, the Coriolis matrix, and all derivatives."""
    acceleration = jnp.flip(v)
    inverse = jaxdyn.inverse_dynamics_derivatives(chain, q, v, acceleration)
    forward = jaxdyn.forward_dynamics_derivatives(chain, q, v, tau)
    heavier = lambda mass: dataclasses.replace(chain, inertia=chain.inertia.at[-1, 0].add(mass))
    faster = lambda s: jaxdyn.forward_dynamics(heavier(s[0]), jaxdyn.integrate(chain, q, s[1] * v), v, tau + s[2])
    scalars = jnp.zeros(3, q.dtype)
    return {
        "crba": jaxdyn.crba(chain, q),
        "inverse": jaxdyn.mass_matrix_inverse(chain, q),
        "solve": jaxdyn.mass_matrix_solve(chain, q, tau),
        "coriolis": jaxdyn.coriolis_matrix(chain, q, v),
        **{f"inverse dynamics by {k}": x for k, x in inverse._asdict().items() if x is not None},
        **{f"forward dynamics by {k}": x for k, x in forward._asdict().items() if x is not None},
        "gradient": jax.grad(lambda s: faster(s).sum())(scalars),
        "directional derivative": jax.jvp(faster, (scalars,), (scalars + 1,))[1],
    }


def of_motion(chain, q, v, tau):
    """Centroidal quantities, Jacobians, and dynamics in operational space and under constraints."""
    frame = "l12"
    held = mechanisms.pose_constraint(frame, "l02", pose=np.eye(4), rows="rx ry x y z")
    both = mechanisms.constrained_forward_dynamics(chain, held, q, v, tau)
    return {
        "centroidal momentum": dynamics.centroidal_momentum_matrix(chain, q),
        "centroidal bias": dynamics.centroidal_momentum_bias(chain, q, v),
        "centre of mass": dynamics.centre_of_mass_jacobian(chain, q),
        "Jacobian": jaxdyn.jacobian(chain, q, frame),
        "mixed Jacobian": jaxdyn.jacobian(chain, q, frame, "mixed"),
        "Jacobian's rate": dynamics.jacobian_derivative(chain, q, v, frame),
        "operational inertia": dynamics.operational_space_inertia(chain, q, frame, "mixed", damping=0.5),
        "operational bias": dynamics.operational_space_bias(chain, q, v, frame, "mixed", damping=0.5),
        "constraint": mechanisms.constraint_jacobian(chain, held, q),
        "constraint's bias": mechanisms.constraint_bias(chain, held, q, v),
        "constrained": both.acceleration,
        "multipliers": both.multipliers,
    }


def error(x, y):
    return float(np.linalg.norm(np.asarray(x, float) - np.asarray(y)) / np.linalg.norm(np.asarray(y)))


@pytest.mark.ci
def test_light_links_at_the_end_of_a_heavy_arm():
    chain = light_fingers()
    q = jnp.asarray(np.random.default_rng(0).normal(size=chain.n), jnp.float32)
    program = jax.jit(lambda c, q: (jaxdyn.crba(c, q), jaxdyn.mass_matrix_inverse(c, q), jaxdyn.mass_matrix(c, q)))
    mass, inverse, _ = program(cast(chain, jnp.float32), q)
    *_, expected = program(chain, q.astype(jnp.float64))
    np.testing.assert_allclose(np.diag(mass), np.diag(expected), rtol=1e-6)
    assert error(inverse, np.linalg.inv(expected)) < 1e-6


@pytest.mark.ci
@pytest.mark.parametrize("distance", [0.0, 1000.0])
def test_light_links_far_from_a_branching_are_accurate(distance):
    """Links of 20 g at 1 m from the body: their pivot, the body, costs a factor of five over that of an arm's fingers."""
    text = f'<robot name="r">{link("body", *BODY)}'
    for k, side in enumerate(("0 0.1 0", "0 -0.1 0")):
        parent = "body"
        for i, axis in enumerate(("1 0 0", "0 1 0", "0 0 1", "0 1 0", "1 0 0")):
            text += joint(f"a{k}{i}", parent, f"A{k}{i}", axis, side if i == 0 else "0 0.05 0.25")
            text += link(f"A{k}{i}", 3 / (i + 1), "0 0 .1", 0.02 / (i + 1))
            parent = f"A{k}{i}"
        text += fingers(parent, k)
    chain = jaxdyn.io.loads(text + "</robot>", floating_base=True)
    q = jaxdyn.random_configuration(chain, jax.random.key(2)).astype(jnp.float32)
    program = jax.jit(lambda c, q: (jaxdyn.crba(c, q), jaxdyn.mass_matrix_inverse(c, q)))
    mass, inverse = program(cast(chain, jnp.float32), q.at[:3].set(distance))
    expected = jaxdyn.mass_matrix(chain, q.astype(jnp.float64))
    np.testing.assert_allclose(np.diag(mass), np.diag(expected), rtol=1e-5)
    assert error(inverse, np.linalg.inv(expected)) < 1e-5


@pytest.mark.nightly
def test_equal_to_pinocchio_at_a_kilometre():
    pin = pytest.importorskip("pinocchio")
    make, at = ROBOTS["floating base"]
    chain = make()
    chain, q = at(chain, jaxdyn.random_configuration(chain, jax.random.key(1)).astype(jnp.float64), 1000.0)
    v, a = np.random.default_rng(3).normal(size=(2, chain.nv))
    expected = of_pinocchio(pin, chain, q, v, a)
    order = velocity_to_pinocchio(chain, np.arange(chain.nv))
    # Pinocchio's derivatives are about the world's origin and err by up to 1e-8 here
    for dtype, bound in ((jnp.float32, 1e-5), (jnp.float64, 1e-7)):
        found = compared(*cast((chain, q, jnp.asarray(v), jnp.asarray(a)), dtype))
        rows = [order] * (len(found) - 1) + [np.array([3, 4, 5, 0, 1, 2])]
        errors = [error(x[np.ix_(i, order)], y) for x, i, y in zip(found, rows, expected, strict=True)]
        assert max(errors) < bound, errors


@jax.jit
def compared(chain, q, v, a):
    """The quantities of `of_pinocchio`."""
    inverse = jaxdyn.inverse_dynamics_derivatives(chain, q, v, a)
    forward = jaxdyn.forward_dynamics_derivatives(chain, q, v, a)
    matrices = jaxdyn.crba(chain, q), jaxdyn.mass_matrix_inverse(chain, q)
    return *matrices, inverse.q, inverse.qd, forward.q, forward.qd, dynamics.centroidal_momentum_matrix(chain, q)


def of_pinocchio(pin, chain, q, v, a):
    """Mass matrix and inverse, derivatives of dynamics by q and v, and centroidal momentum matrix, in Pinocchio's order."""
    model = to_pinocchio(chain)
    data = model.createData()
    q, v, a = configuration_to_pinocchio(chain, q), velocity_to_pinocchio(chain, v), velocity_to_pinocchio(chain, a)
    mass = np.array(pin.crba(model, data, q))
    mass = np.triu(mass) + np.triu(mass, 1).T
    pin.computeRNEADerivatives(model, data, q, v, a)
    inverse = np.array(data.dtau_dq), np.array(data.dtau_dv)
    pin.computeABADerivatives(model, data, q, v, a)
    forward = np.array(data.ddq_dq), np.array(data.ddq_dv)
    return mass, np.linalg.inv(mass), *inverse, *forward, np.array(pin.ccrba(model, data, q, v))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ROBOTS)
@pytest.mark.parametrize("quantities", [of_matrices, of_motion])
def test_dynamics_do_not_depend_on_the_distance_from_the_origin(kind, quantities):
    make, at = ROBOTS[kind]
    chain = make()
    rng = np.random.default_rng(3)
    q = jaxdyn.random_configuration(chain, jax.random.key(1)).astype(jnp.float32)
    v, tau = (jnp.asarray(x, jnp.float32) for x in rng.normal(size=(2, chain.nv)))
    program = jax.jit(lambda d, c, q, v, tau: quantities(*at(c, q, d), v, tau))
    q64, v64, tau64 = (x.astype(jnp.float64) for x in (q, v, tau))
    expected = program(jnp.asarray(0.0), chain, q64, v64, tau64)
    far = program(jnp.asarray(7e6), chain, q64, v64, tau64)
    errors = {f"{name}, float64": error(x, expected[name]) / 1e-9 for name, x in far.items()}
    single = cast(chain, jnp.float32)
    # where rounding at the origin alone exceeds the bound (multipliers), the distance must not add to it
    at_origin = program(jnp.asarray(0.0, jnp.float32), single, q, v, tau)
    bound = {name: max(1e-5, 2 * error(x, expected[name])) for name, x in at_origin.items()}
    # a leg of three joints hardly moves its tip in some directions, so the operational inertia is ill-conditioned anywhere
    # (of 40 states of the robot on a rail, multipliers err by 1e-6 in the median, and by up to 4e-5)
    poor = {k: x for k, x in bound.items() if x >= (1e-4 if k == "multipliers" else 3e-5) and "operational" not in k}
    assert not poor, poor
    for distance in DISTANCES:
        found = program(jnp.asarray(distance, jnp.float32), single, q, v, tau)
        errors |= {f"{name}, {distance:g} m": error(x, expected[name]) / bound[name] for name, x in found.items()}
    wrong = {k: x for k, x in errors.items() if not x <= 1}
    assert not wrong, wrong
