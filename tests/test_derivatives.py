"""Derivatives in closed form beside automatic differentiation of the recursions, Pinocchio and finite differences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, random_state, relative
from jaxdyn.dynamics import coordinates
from jaxdyn.dynamics.composite_body import inverse_of_mass_matrix
from jaxdyn.dynamics.derivatives import DENSE
from jaxdyn.dynamics.newton_euler import newton_euler
from jaxdyn.model.configuration import place
from peer_models import to_pinocchio

ROBOTS = {
    "serial": lambda: random_chain(5),
    "spherical": lambda: random_mechanism(4, free=False),
    "free": lambda: random_mechanism(5, coupled=False),
    "free and coupled": lambda: random_mechanism(3),
}


def problem(name):
    chain = ROBOTS[name]()
    state = random_state(chain.n) if name == "serial" else mechanism_state(chain)
    wrenches = jnp.asarray(np.random.default_rng(0).normal(size=(chain.n, 6)))
    return chain, state, wrenches


def along(chain, function, q, *others):
    """Jacobians by forward mode, to q along small motions and to the others."""
    moved = lambda dq, *x: function(jaxdyn.integrate(chain, q, dq), *x)
    zero = jnp.zeros(chain.nv)
    return once(jax.jacfwd(moved, argnums=tuple(range(1 + len(others)))))(zero, *others)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("serial", marks=pytest.mark.ci),
        *(pytest.param(x, marks=pytest.mark.nightly) for x in ("spherical", "free")),
    ],
)
def test_inverse_dynamics_derivatives_equal_automatic_differentiation_of_the_recursion(name):
    chain, (q, qd, qdd), wrenches = problem(name)
    closed = jax.jit(jaxdyn.inverse_dynamics_derivatives)(chain, q, qd, qdd, wrenches)
    automatic = along(chain, lambda q, qd, qdd: plain(chain, q, qd, qdd, wrenches), q, qd, qdd)
    for x, y in zip(closed, automatic, strict=False):
        assert relative(x, y) < 1e-13
    assert relative(closed.qdd, jaxdyn.crba(chain, q)) < 1e-14


def plain(chain, q, qd, qdd, wrenches):
    """Inverse dynamics without any rule for its derivatives."""
    links, x = place(chain, q)
    rates, accelerations = coordinates.joint_rates(chain, qd), coordinates.joint_accelerations(chain, qd, qdd)
    torques = newton_euler(links, x, rates, accelerations, coordinates.base_gravity(links), wrenches)
    spins = coordinates.joint_rates(chain, qdd)
    rotors = coordinates.rotor_torques(chain, spins)
    return coordinates.generalised_force(chain, torques + chain.armature * spins + rotors)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["serial", pytest.param("free", marks=pytest.mark.nightly)])
def test_forward_dynamics_derivatives_equal_automatic_differentiation_of_articulated_bodies(name):
    chain, (q, qd, tau), wrenches = problem(name)
    closed = jax.jit(jaxdyn.forward_dynamics_derivatives)(chain, q, qd, tau, wrenches)
    automatic = along(chain, lambda q, qd, tau: jaxdyn.aba(chain, q, qd, tau, wrenches), q, qd, tau)
    for x, y in zip(closed, automatic, strict=False):
        assert relative(x, y) < 1e-11


@pytest.mark.nightly
def test_forward_dynamics_derivatives_of_a_coupled_robot_equal_differences():
    chain, (q, qd, tau), _ = problem("free and coupled")
    closed = jax.jit(jaxdyn.forward_dynamics_derivatives)(chain, q, qd, tau)
    h = 1e-5
    forward = jax.jit(
        jax.vmap(lambda dq, dv: jaxdyn.forward_dynamics(chain, jaxdyn.integrate(chain, q, dq), qd + dv, tau))
    )
    steps, still = h * jnp.eye(chain.nv), jnp.zeros((chain.nv, chain.nv))
    for got, ahead, behind in (
        (closed.q, forward(steps, still), forward(-steps, still)),
        (closed.qd, forward(still, steps), forward(still, -steps)),
    ):
        assert relative(got, (ahead - behind).T / (2 * h)) < 1e-6


def test_derivatives_of_dynamics_equal_those_of_pinocchio():
    chain = jaxdyn.robots.panda()
    model = to_pinocchio(chain)
    data = model.createData()
    states = np.random.default_rng(2).normal(size=(3, 5, 7))
    inverse = jax.jit(jax.vmap(jaxdyn.inverse_dynamics_derivatives, (None, 0, 0, 0)))(chain, *states)
    forward = jax.jit(jax.vmap(jaxdyn.forward_dynamics_derivatives, (None, 0, 0, 0)))(chain, *states)
    for i, (q, qd, x) in enumerate(states.transpose(1, 0, 2)):
        pin.computeRNEADerivatives(model, data, q, qd, x)
        assert relative(inverse.q[i], data.dtau_dq) < 1e-12
        assert relative(inverse.qd[i], data.dtau_dv) < 1e-12
        pin.computeABADerivatives(model, data, q, qd, x)
        for got, reference in ((forward.q, data.ddq_dq), (forward.qd, data.ddq_dv), (forward.tau, data.Minv)):
            assert relative(got[i], np.array(reference)) < 1e-11


@pytest.mark.nightly
def test_parameters_are_the_regressor_and_its_accelerations():
    chain, (q, qd, x), _ = problem("serial")
    inverse = jaxdyn.inverse_dynamics_derivatives(chain, q, qd, x, parameters=True)
    assert relative(inverse.parameters, jaxdyn.regressor(chain, q, qd, x)) == 0.0
    forward = jaxdyn.forward_dynamics_derivatives(chain, q, qd, x, parameters=True)
    moved = lambda inertia: jaxdyn.aba(dataclasses.replace(chain, inertia=inertia), q, qd, x)
    automatic = once(jax.jacfwd(moved))(chain.inertia).reshape(chain.n, -1)
    assert relative(forward.parameters, automatic) < 1e-11
    assert jaxdyn.inverse_dynamics_derivatives(chain, q, qd, x).parameters is None


@pytest.mark.nightly
def test_gradients_of_one_state_and_of_a_compiled_batch_are_the_closed_forms():
    chain = random_chain(4)
    state = jnp.stack([jnp.stack(random_state(4, seed)) for seed in range(4)], axis=1)  # as many states as joints
    f = lambda q, qd, qdd: jaxdyn.inverse_dynamics(chain, q, qd, qdd)
    torques, pull = jax.vjp(jax.jit(jax.vmap(f)), *state)
    assert torques.shape == (4, 4)
    assert relative(torques, jax.vmap(f)(*state)) < 1e-14
    weights = random_state(16)[0].reshape(4, 4)
    closed = jax.jit(jax.vmap(lambda *x: jaxdyn.inverse_dynamics_derivatives(chain, *x)))(*state)
    for got, matrices in zip(pull(weights), closed, strict=False):
        assert relative(got, jnp.einsum("bi,bij->bj", weights, matrices)) < 1e-13
    one = once(jax.jacrev(f, argnums=(0, 1, 2)))(*state[:, 1])
    for got, matrices in zip(one, closed, strict=False):
        assert relative(got, matrices[1]) < 1e-13


@pytest.mark.ci
def test_long_chains_differentiate_the_recursion():
    chain = random_chain(DENSE + 1)
    q, qd, qdd = random_state(chain.n)
    gradient = once(jax.grad(lambda q: jaxdyn.inverse_dynamics(chain, q, qd, qdd).sum()))(q)
    closed = jax.jit(jaxdyn.inverse_dynamics_derivatives)(chain, q, qd, qdd).q.sum(0)
    assert relative(gradient, closed) < 1e-11


@pytest.mark.ci
def test_second_derivatives_of_inverse_dynamics_equal_differences():
    chain = random_chain(3)
    q, qd, qdd = random_state(3)
    f = lambda q: jaxdyn.inverse_dynamics(chain, q, qd, qdd)
    got = once(jax.jacfwd(jax.jacrev(f)))(q)
    reference = once(jax.jacfwd(jax.jacfwd(lambda q: plain(chain, q, qd, qdd, None))))(q)
    assert relative(got, reference) < 1e-12


@pytest.mark.parametrize(
    "n", [pytest.param(4, marks=pytest.mark.ci), *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 30))]
)
def test_the_inverse_of_the_mass_matrix_inverts_it(n):
    chain = random_chain(n)
    q, qd, tau = random_state(n)
    inverse = jax.jit(jaxdyn.mass_matrix_inverse)(chain, q)
    m = jaxdyn.crba(chain, q)
    bound = 1e-15 * float(np.linalg.cond(m))
    assert relative(inverse @ m, np.eye(n)) < max(bound, 1e-13)
    bias = jaxdyn.bias_force(chain, q, qd)
    assert relative(inverse @ (tau - bias), jaxdyn.aba(chain, q, qd, tau)) < max(10 * bound, 1e-12)


@pytest.mark.ci
def test_the_derivative_of_the_inverse_of_the_mass_matrix_equals_differences():
    chain = random_chain(3)
    q, direction, _ = random_state(3)
    _, change = once(lambda q, d: jax.jvp(lambda x: jaxdyn.mass_matrix_inverse(chain, x), (q,), (d,)))(q, direction)
    h = 1e-6
    ahead, behind = (jaxdyn.mass_matrix_inverse(chain, q + x * direction) for x in (h, -h))
    assert relative(change, (ahead - behind) / (2 * h)) < 1e-7


@pytest.mark.parametrize("n", [1, 4, 10, 30])
def test_positive_matrices_of_any_size_are_inverted(n):
    """By elimination, and by Cholesky factors beyond."""
    roots = np.random.default_rng(n).normal(size=(3, n, n))
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(n)
    expected = np.linalg.inv(matrices)
    batch = jax.jit(jax.vmap(inverse_of_mass_matrix))(jnp.asarray(matrices))
    assert relative(batch, expected) < 1e-12
    assert relative(jax.jit(inverse_of_mass_matrix)(jnp.asarray(matrices[0])), expected[0]) < 1e-12
