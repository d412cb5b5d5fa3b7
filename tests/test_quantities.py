"""Quantities of a mechanism with everything (free and spherical joints, branches, coupling, transmission, springs), by two routes each."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import derivatives, directions, once, random_chain, random_inertia, random_rotation, relative
from jaxdyn import robots, textbook
from jaxdyn.model.chain import Coupling, Transmission
from jaxdyn.simulation.integrate import motion_rate

pytestmark = pytest.mark.xdist_group("quantities")  # one worker, which compiles once

REFERENCES = ("body", "space", "mixed")


def make_mechanism(seed=3):
    """A free body that carries a spherical joint with a hinge, and a hinge with a slide and a screw coupled to it."""
    rng = np.random.default_rng(seed)
    unit = lambda: (lambda x: x / np.linalg.norm(x))(rng.normal(size=3))
    axis, slide, helix = unit(), unit(), unit()
    hinge = [*axis, *np.cross(rng.normal(size=3), axis)]
    ordinary = [hinge, [*unit(), 0, 0, 0], [0, 0, 0, *slide], [*helix, *(0.1 * helix)]]
    screws = np.concatenate([np.eye(6), np.eye(6)[:3], ordinary])
    n, massless = 13, {0, 1, 2, 3, 4, 6, 7}
    placed = {6, 9, 10, 11, 12}
    ratios = np.zeros((2, n))
    ratios[0, 9], ratios[1, 10:12] = 30.0, [20.0, 5.0]
    matrix = np.eye(n, n - 1)
    matrix[12] = 0
    matrix[12, 10] = 0.7
    chain = jaxdyn.make_chain(
        rotation=[random_rotation(rng) if i in placed else np.eye(3) for i in range(n)],
        translation=[rng.normal(size=3) * 0.3 if i in placed else np.zeros(3) for i in range(n)],
        screw=screws,
        inertia=[np.zeros(10) if i in massless else random_inertia(rng) for i in range(n)],
        parents=[-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 10, 10],
        quaternion_joints=[(0, 6), (6, 3)],
        armature=rng.uniform(0, 0.1, n),
        stiffness=[0.0] * 9 + [2.0, 3.0, 4.0, 1.0],
        rest_position=0.1,
        base_pose=np.block([[random_rotation(rng), rng.normal(size=(3, 1))], [np.zeros((1, 3)), np.ones((1, 1))]]),
        transmission=Transmission(
            jnp.asarray(ratios), jnp.asarray([1e-4, 2e-4]), *(jnp.zeros(2), jnp.zeros(2), jnp.ones(2))
        ),
        coupling=Coupling(jnp.asarray(matrix), jnp.asarray([0.0] * 12 + [0.3])),
        gravity=[1.0, -2.0, -9.0],
        frames={"tool": (9, [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])},
        tip_name="tool",
    )
    return chain


def state(chain, seed=0):
    """q, v, v_ref, a_ref, tau."""
    q = jaxdyn.model.configuration.random_configuration(chain, jax.random.key(seed))
    return q, *jnp.asarray(np.random.default_rng(seed).normal(size=(4, chain.nv)))


def bare(chain):
    """The rigid links alone: no armature, no rotors, no springs."""
    zero = jnp.zeros_like(chain.armature)
    return dataclasses.replace(chain, armature=zero, stiffness=zero, transmission=None)


def along(chain, f, q, v):
    """df(q)/dt along a motion."""
    moved = lambda time: f(jaxdyn.model.configuration.integrate(chain, q, time * v))
    return jax.jvp(moved, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))[1]


def everything(chain, q, v, v_ref, a_ref, tau):
    """All quantities of a state."""
    p = jaxdyn.generalised_momentum(chain, q, v)
    out = {
        "m": jaxdyn.total_mass(chain),
        "c": jaxdyn.centre_of_mass(chain, q),
        "J_c": jaxdyn.centre_of_mass_jacobian(chain, q),
        "A_G": jaxdyn.centroidal_momentum_matrix(chain, q),
        "h_G": jaxdyn.centroidal_momentum(chain, q, v),
        "h": jaxdyn.total_momentum(chain, q, v),
        "dA_G v": jaxdyn.centroidal_momentum_bias(chain, q, v),
        "p": p,
        "H": jaxdyn.hamiltonian(chain, q, p),
        "flow": jaxdyn.hamiltonian_flow(chain, q, p, tau),
        "Slotine-Li": jaxdyn.passivity_inverse_dynamics(chain, q, v, v_ref, a_ref),
        "Y_r": jaxdyn.passivity_regressor(chain, q, v, v_ref, a_ref),
        "Y_p": jaxdyn.momentum_regressor(chain, q, v),
        "y_K": jaxdyn.kinetic_energy_regressor(chain, q, v),
        "y_P": jaxdyn.potential_energy_regressor(chain, q),
        "Lambda": jaxdyn.operational_space_inertia(chain, q, damping=0.1),
        "J_bar": jaxdyn.dynamically_consistent_inverse(chain, q, damping=0.1),
        "eta": jaxdyn.operational_space_bias(chain, q, v, damping=0.1),
        "least squares": tuple(jaxdyn.operational_space(chain, q, v, tolerance=1e-5))[:3],
    }
    return out


@once
def both_routes(chain, q, v, v_ref, a_ref, tau):
    """Quantities, and what they are compared with."""
    pi = chain.inertia.reshape(-1)
    links = bare(chain)
    got = everything(chain, q, v, v_ref, a_ref, tau)
    poses = lambda x: jaxdyn.forward_kinematics(chain, x)

    def momentum(x):
        """The links' momenta about the world's origin, from poses and their rates alone."""
        t, dt = poses(x), along(chain, poses, x, v)

        def of_link(t, dt, pi):
            m = jnp.linalg.inv(t) @ dt
            twist = jnp.stack([m[2, 1], m[0, 2], m[1, 0], m[0, 3], m[1, 3], m[2, 3]])
            body = jaxdyn.inertia.spatial_inertia(pi) @ twist
            return jaxdyn.se3.adjoint(jnp.linalg.inv(t)).T @ body

        return jax.vmap(of_link)(t, dt, chain.inertia).sum(0)

    c_matrix, mass = jaxdyn.coriolis_matrix(chain, q, v), jaxdyn.mass_matrix(chain, q)
    momenta = lambda x: jaxdyn.centroidal_momentum_matrix(chain, x) @ v
    a = jaxdyn.forward_dynamics(chain, q, v, tau - jaxdyn.dynamics.friction.spring_force(chain, q))
    points = poses(q) @ jnp.concatenate([chain.inertia[:, 1:4], chain.inertia[:, :1]], axis=1)[:, :, None]
    expected = {
        "c": points[:, :3, 0].sum(0) / chain.inertia[:, 0].sum(),
        "dc": along(chain, lambda x: jaxdyn.centre_of_mass(chain, x), q, v),
        "h": momentum(q),
        "dA_G v": along(chain, momenta, q, v),
        "p": mass @ v,
        "H": jaxdyn.total_energy(chain, q, v),
        "a": a,
        "dp by parts": along(chain, lambda x: jaxdyn.mass_matrix(chain, x) @ v, q, v) + mass @ a,
        "dp by C": c_matrix.T @ v
        - jaxdyn.gravity_force(chain, q)
        - jaxdyn.dynamics.friction.spring_force(chain, q)
        + tau,
        "dH": along(chain, lambda x: jaxdyn.hamiltonian(chain, x, got["p"]), q, v) + v @ got["flow"][1],
        "Slotine-Li": mass @ a_ref + c_matrix @ v_ref + jaxdyn.gravity_force(chain, q),
        "Y_r pi": jaxdyn.mass_matrix(links, q) @ a_ref
        + jaxdyn.coriolis_matrix(links, q, v) @ v_ref
        + jaxdyn.gravity_force(links, q),
        "Y": jaxdyn.regressor(chain, q, v, a_ref),
        "Y_r at v": jaxdyn.passivity_regressor(chain, q, v, v, a_ref),
        "Y_p pi": jaxdyn.mass_matrix(links, q) @ v,
        "K": jaxdyn.kinetic_energy(links, q, v),
        "P": jaxdyn.potential_energy(links, q),
        "pi": pi,
        "free": jaxdyn.forward_dynamics(links, q, v, tau.at[:6].set(0)),
    }
    return got, expected


@pytest.fixture(scope="module")
def mechanism():
    return make_mechanism()


@pytest.fixture(scope="module")
def routes(mechanism):
    got, expected = both_routes(mechanism, *state(mechanism))
    return jax.tree.map(np.asarray, got), jax.tree.map(np.asarray, expected)


def test_centroidal_quantities(mechanism, routes):
    got, expected = routes
    _, v, *_ = state(mechanism)
    assert relative(got["m"], mechanism.inertia[:, 0].sum()) < 1e-15
    assert relative(got["c"], expected["c"]) < 1e-13
    assert relative(got["J_c"] @ v, expected["dc"]) < 1e-13
    assert relative(got["h"], expected["h"]) < 1e-13
    about = np.concatenate([expected["h"][:3] - np.cross(expected["c"], expected["h"][3:]), expected["h"][3:]])
    assert relative(got["h_G"], about) < 1e-13
    assert relative(got["A_G"] @ v, about) < 1e-13
    assert relative(got["dA_G v"], expected["dA_G v"]) < 1e-12


def test_inner_torques_do_not_change_the_momentum(mechanism, routes):
    got, expected = routes
    rate = got["A_G"] @ expected["free"] + got["dA_G v"]
    assert relative(rate, np.concatenate([np.zeros(3), got["m"] * np.asarray(mechanism.gravity)])) < 1e-11


def test_hamiltonian(mechanism, routes):
    got, expected = routes
    _, v, _, _, tau = state(mechanism)
    qd, pd = got["flow"]
    assert relative(got["p"], expected["p"]) < 1e-13
    assert relative(got["H"], expected["H"]) < 1e-13
    assert relative(qd, v) < 1e-11
    assert relative(pd, expected["dp by parts"]) < 1e-11
    assert relative(pd, expected["dp by C"]) < 1e-11
    assert relative(expected["dH"], tau @ v) < 1e-10


def test_slotine_li(routes):
    got, expected = routes
    assert relative(got["Slotine-Li"], expected["Slotine-Li"]) < 1e-12


def test_regressors(routes):
    got, expected = routes
    pi = expected["pi"]
    assert relative(got["Y_r"] @ pi, expected["Y_r pi"]) < 1e-12
    assert relative(expected["Y_r at v"], expected["Y"]) < 1e-13
    assert relative(got["Y_p"] @ pi, expected["Y_p pi"]) < 1e-12
    assert relative(got["y_K"] @ pi, expected["K"]) < 1e-13
    assert relative(got["y_P"] @ pi, expected["P"]) < 1e-13
