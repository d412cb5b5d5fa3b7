"""Every term of the equations of motion against the closed matrix form in NumPy (`oracle.py`)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_chain, relative
from oracle import closed_form

# the same terms are compared with identities and with peers by default
pytestmark = pytest.mark.nightly

COUNT = 6


@once
def terms(chain, q, qd, qdd, wrench):
    """All terms, by the library, for a batch of states."""

    def one(q, qd, qdd, wrench):
        zero = jnp.zeros_like(q)
        tau = jaxdyn.inverse_dynamics(chain, q, qd, qdd)
        return {
            "mass_matrix": jaxdyn.mass_matrix(chain, q),
            "crba": jaxdyn.crba(chain, q),
            "coriolis_force": jaxdyn.coriolis_force(chain, q, qd),
            "gravity_force": jaxdyn.gravity_force(chain, q),
            "bias_force": jaxdyn.bias_force(chain, q, qd),
            "jacobian": jaxdyn.jacobian(chain, q),
            "poses": jaxdyn.forward_kinematics(chain, q),
            "tau": tau,
            "tau_tip": jaxdyn.inverse_dynamics(chain, q, qd, qdd, wrench_by_tip=wrench),
            "tau_static": jaxdyn.inverse_dynamics(chain, q, zero, zero, wrench_by_tip=wrench),
            "bias_tip": jaxdyn.bias_force(chain, q, qd, wrench_by_tip=wrench),
            "aba": jaxdyn.aba(chain, q, qd, tau, wrench_by_tip=wrench),
            "forward_dynamics": jaxdyn.forward_dynamics(chain, q, qd, tau, wrench_by_tip=wrench),
            "kinetic_energy": jaxdyn.kinetic_energy(chain, q, qd),
        }

    return jax.lax.map(lambda state: one(*state), (q, qd, qdd, wrench))


@functools.cache
def both_routes(n: int, joints: str, seed: int):
    chain = random_chain(n, seed, joints)
    rng = np.random.default_rng(seed)
    q, qd, qdd = (jnp.asarray(rng.normal(size=(COUNT, n))) for _ in range(3))
    wrench = jnp.asarray(rng.normal(size=(COUNT, 6)) * 10)
    tip = np.asarray(chain.frame_poses[0])
    exact = [closed_form(chain, q[k], qd[k], tip) for k in range(COUNT)]
    return (np.asarray(qd), np.asarray(qdd), np.asarray(wrench)), terms(chain, q, qd, qdd, wrench), exact


KINDS = ("helical", 0), ("prismatic", 3), ("offset", 4)
CHAINS = [(7, "mixed", 1), *((7, *x) for x in KINDS)]


@pytest.fixture(params=CHAINS, ids=str)
def routes(request):
    return both_routes(*request.param)


def test_mass_matrices_equal_those_of_the_textbook_by_loops(routes):
    _, got, exact = routes
    for k, x in enumerate(exact):
        assert relative(got["mass_matrix"][k], x.mass_matrix) < 1e-12
        assert relative(got["crba"][k], x.mass_matrix) < 1e-12


def test_poses_and_jacobians_equal_those_of_the_textbook_by_loops(routes):
    _, got, exact = routes
    for k, x in enumerate(exact):
        assert relative(got["poses"][k], x.poses) < 1e-12
        assert relative(got["jacobian"][k], x.jacobian) < 1e-12


def test_velocity_and_gravity_terms_equal_those_of_the_textbook_by_loops(routes):
    _, got, exact = routes
    for k, x in enumerate(exact):
        whole = np.abs(x.coriolis_force + x.gravity_force).max()  # either may vanish: a prismatic chain has no c
        assert np.abs(got["coriolis_force"][k] - x.coriolis_force).max() < 1e-12 * whole
        assert np.abs(got["gravity_force"][k] - x.gravity_force).max() < 1e-12 * whole
        assert relative(got["bias_force"][k], x.coriolis_force + x.gravity_force) < 1e-12


def test_torques_equal_those_of_the_textbook_by_loops(routes):
    (_, qdd, wrench), got, exact = routes
    for k, x in enumerate(exact):
        free = x.mass_matrix @ qdd[k] + x.coriolis_force + x.gravity_force
        load = x.jacobian.T @ wrench[k]
        assert relative(got["tau"][k], free) < 1e-12
        assert relative(got["tau_tip"][k], free + load) < 1e-12
        assert relative(got["tau_static"][k], x.gravity_force + load) < 1e-12
        assert relative(got["bias_tip"][k], x.coriolis_force + x.gravity_force + load) < 1e-12


def test_forward_dynamics_equal_those_of_the_textbook_by_loops(routes):
    (_, qdd, wrench), got, exact = routes
    for k, x in enumerate(exact):
        accelerations = qdd[k] - np.linalg.solve(x.mass_matrix, x.jacobian.T @ wrench[k])
        # a solve with M cannot be better than rounding times its condition number
        bound = 1e-12 * max(1, np.linalg.cond(x.mass_matrix) / 100)
        assert relative(got["aba"][k], accelerations) < bound
        assert relative(got["forward_dynamics"][k], accelerations) < bound


def test_kinetic_energy_is_half_qd_m_qd(routes):
    (qd, _, _), got, exact = routes
    for k, x in enumerate(exact):
        np.testing.assert_allclose(got["kinetic_energy"][k], 0.5 * qd[k] @ x.mass_matrix @ qd[k], rtol=1e-12)
