"""Steps and rollouts: orders of convergence, energy, friction, policies, and derivatives through time."""

import functools
import inspect
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import jaxdyn
from helpers import derivatives, directions, linear_friction, once, random_chain, relative
from jaxdyn import textbook
from oracle import closed_form
from peer_models import anonymous

METHODS = ("semi_implicit_euler", "explicit_euler", "rk4")
CHUNK = 100


@functools.partial(jax.jit, static_argnames="method")
def march(chain, q, qd, tau, dt, method):
    """The state CHUNK steps later under a constant torque, and the energy after every step."""

    def body(state, _):
        state = jaxdyn.step(chain, *state, tau, dt, method=method)
        return state, jaxdyn.total_energy(chain, *state)

    return jax.lax.scan(body, (q, qd), length=CHUNK)


def simulate(chain, q, qd, tau, dt, duration, method):
    """Final state and energies of a simulation whose number of steps is a multiple of CHUNK."""
    chain = anonymous(chain)
    chunks = round(duration / (CHUNK * dt))
    assert abs(chunks * CHUNK * dt - duration) < 1e-9
    energies, state = [], (q, qd)
    for _ in range(chunks):
        state, energy = march(chain, *state, tau, dt, method)
        energies.append(energy)
    return state, np.concatenate(energies)


@pytest.mark.parametrize(
    ("method", "dt", "order"),
    [
        pytest.param("semi_implicit_euler", 4e-4, (0.7, 1.4), marks=pytest.mark.nightly),
        pytest.param("explicit_euler", 4e-4, (0.9, 1.2), marks=pytest.mark.nightly),
        ("rk4", 2e-2, (3.8, 5.2)),
    ],
)
def test_energy_drift_of_a_free_pendulum_shrinks_at_the_order_of_the_method(method, dt, order):
    chain = textbook.pendulum(3)
    q, zero = jnp.asarray([0.6, -0.3, 0.4]), jnp.zeros(3)
    start = float(jaxdyn.total_energy(chain, q, zero))
    drift = []
    for h in (dt, dt / 2):
        _, energies = simulate(chain, q, zero, zero, h, 10, method)
        drift.append(np.abs(energies - start).max())
    measured = np.log2(drift[0] / drift[1])
    assert order[0] < measured < order[1]
    assert 0 < drift[1] < 0.2  # J, of a pendulum that swings with several


def energy_gained(chain, q, dt, duration, method):
    """The energy that a robot let go at q has gained at the end."""
    zero = jnp.zeros(chain.nv)
    _, energies = simulate(chain, q, zero, zero, dt, duration, method)
    return energies[-1] - float(jaxdyn.total_energy(chain, q, zero))


ELBOW = textbook.planar_elbow(), jnp.asarray([0.5, 0.5])
READY = jnp.asarray([0, -np.pi / 4, 0, -3 * np.pi / 4, 0, np.pi / 2, np.pi / 4])


@pytest.mark.nightly
def test_energy_drifts_of_the_methods_are_those_of_the_documentation():
    """A tenth of the horizon of docs/rollouts.md: there -1.7, +1.6 and -1.5e-4 J."""
    assert -2.3 < energy_gained(*ELBOW, 1e-3, 10, "semi_implicit_euler") < -1.2
    assert 1.4 < energy_gained(*ELBOW, 1e-3, 10, "explicit_euler") < 2.2
    assert -2.5e-4 < energy_gained(*ELBOW, 4e-3, 10, "rk4") < -5e-5


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "dt", "least", "most"),
    [
        ("semi_implicit_euler", 1e-3, -22, -8),
        ("explicit_euler", 1e-3, 12, 35),
        ("rk4", 4e-3, -3e-3, -4e-4),
        ("rk4", 1e-3, -5e-6, -5e-7),
    ],
)
def test_the_energy_of_a_free_elbow_after_a_hundred_seconds_is_that_of_the_documentation(method, dt, least, most):
    """The table of docs/rollouts.md."""
    assert least < energy_gained(*ELBOW, dt, 100, method) < most


@pytest.mark.nightly
def test_the_energy_drift_of_a_free_panda_is_that_of_the_documentation():
    """The table of docs/rollouts.md, and its figure with friction."""
    none = jnp.zeros(7)
    panda = jaxdyn.model.with_leaves(jaxdyn.robots.panda(), {"friction.viscous": none, "friction.coulomb": none})
    assert not energy_gained(panda, READY, 1e-3, 10, "semi_implicit_euler") < 20  # more, or not a number
    assert not np.isfinite(energy_gained(panda, READY, 1e-3, 100, "semi_implicit_euler"))
    assert 40 < energy_gained(panda, READY, 1e-3, 100, "explicit_euler") < 160
    assert abs(energy_gained(panda, READY, 4e-3, 100, "rk4")) < 0.6
    damped = jaxdyn.model.with_leaves(panda, {"friction.viscous": none + 0.1})
    last = lambda dt, method: np.asarray(simulate(damped, READY, none, none, dt, 1, method)[0][0])
    exact = last(2e-4, "rk4")
    assert np.abs(last(2e-3, "rk4") - exact).max() < 1e-4
    assert 0.5 < np.abs(last(1e-3, "semi_implicit_euler") - exact).max() < 2


@functools.cache
def exact_motion():
    """A driven chain with a joint of every kind, with friction, for half a second: NumPy's matrix form and DOP853."""
    chain = linear_friction(random_chain(3, 21))
    rng = np.random.default_rng(21)
    q, qd, tau = rng.normal(size=(3, 3))
    viscous, coulomb, width, offset = (
        np.asarray(attrgetter(k)(chain))
        for k in ("friction.viscous", "friction.coulomb", "friction.coulomb_velocity", "friction.offset")
    )
    stiffness, rest = np.asarray(chain.springs.stiffness), np.asarray(chain.springs.rest_position)

    def rate(_, state):
        x, xd = state[:3], state[3:]
        terms = closed_form(chain, x, xd)
        friction = viscous * xd + coulomb * np.tanh(xd / width) + offset + stiffness * (x - rest)
        return np.concatenate(
            [xd, np.linalg.solve(terms.mass_matrix, tau - friction - terms.coriolis_force - terms.gravity_force)]
        )

    solution = scipy.integrate.solve_ivp(
        rate, (0, 0.5), np.concatenate([q, qd]), method="DOP853", rtol=1e-12, atol=1e-12
    )
    return chain, jnp.asarray(q), jnp.asarray(qd), jnp.asarray(tau), solution.y[:, -1]


@pytest.mark.parametrize(
    ("method", "dt", "order"),
    [
        pytest.param("semi_implicit_euler", 1e-3, 1, marks=pytest.mark.nightly),
        pytest.param("explicit_euler", 1e-3, 1, marks=pytest.mark.nightly),
        ("rk4", 5e-3, 4),
        pytest.param("implicit_damping", 1e-3, 1, marks=pytest.mark.nightly),
    ],
)
def test_motion_converges_to_the_exact_one_at_the_order_of_the_method(method, dt, order):
    chain, q, qd, tau, exact = exact_motion()
    errors = []
    for h in (dt, dt / 2):
        state, _ = simulate(chain, q, qd, tau, h, 0.5, method)
        errors.append(np.abs(np.concatenate(state) - exact).max())
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.2
    assert errors[1] < (1e-6 if method == "rk4" else 0.05)


def test_a_pendulum_swings_with_its_period():
    """Small swings of a physical pendulum: 2 pi sqrt(I / (m g l))."""
    chain = textbook.pendulum(1, mass=2.0, length=0.9)
    period = 2 * np.pi * np.sqrt((0.9**2 / 3) / (9.81 * 0.45))
    state, _ = simulate(chain, jnp.asarray([1e-4]), jnp.zeros(1), jnp.zeros(1), period / (5 * CHUNK), period, "rk4")
    np.testing.assert_allclose(state[0], [1e-4], rtol=1e-8)
    assert abs(state[1][0]) < 1e-11


@functools.cache
def rolled(method):
    return once(functools.partial(jaxdyn.rollout, method=method))


@pytest.mark.parametrize("method", [METHODS[0], *(pytest.param(x, marks=pytest.mark.nightly) for x in METHODS[1:])])
def test_a_rollout_is_repeated_steps(method):
    chain = random_chain(3, 22)
    rng = np.random.default_rng(22)
    q, qd = jnp.asarray(rng.normal(size=(2, 3)))
    controls = jnp.asarray(rng.normal(size=(5, 3)))
    positions, velocities = rolled(method)(chain, q, qd, controls, 0.01)
    assert positions.shape == velocities.shape == (6, 3)
    step = jax.jit(functools.partial(jaxdyn.step, method=method))
    for k in range(5):
        assert relative(positions[k], q) < 1e-13 and relative(velocities[k], qd) < 1e-13
        q, qd = step(chain, q, qd, controls[k], 0.01)
    assert relative(positions[5], q) < 1e-13 and relative(velocities[5], qd) < 1e-13


@pytest.mark.ci
def test_wrenches_on_links_change_a_step_as_their_joint_torques_do():
    """A wrench on every link changes the step as its joint torques do."""
    chain = random_chain(3, 23)
    rng = np.random.default_rng(23)
    q, qd, tau = jnp.asarray(rng.normal(size=(3, 3)))
    wrenches = jnp.asarray(rng.normal(size=(3, 6)))
    inverse_dynamics, step = jax.jit(jaxdyn.inverse_dynamics), jax.jit(jaxdyn.step)
    load = inverse_dynamics(chain, q, qd, tau) - inverse_dynamics(chain, q, qd, tau, wrenches)
    with_wrenches = step(chain, q, qd, tau, 0.01, wrenches)
    with_torques = step(chain, q, qd, tau + load, 0.01)
    for a, b in zip(with_wrenches, with_torques, strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.ci
def test_a_policy_is_asked_at_every_step():
    """A rollout under a policy equals the rollout with the torques the policy gave; time starts at zero."""
    chain = random_chain(3, 24)
    rng = np.random.default_rng(24)
    q, qd = jnp.asarray(rng.normal(size=(2, 3)))
    gain = 3.0

    def policy(t, q, qd):
        return jaxdyn.gravity_force(chain, q) - gain * qd + jnp.sin(20 * t) * jnp.ones(3)

    positions, velocities = jax.jit(lambda q, qd: jaxdyn.rollout(chain, q, qd, policy, 0.01, steps=20))(q, qd)
    assert positions.shape == (21, 3)
    torques = jax.jit(jax.vmap(policy))(jnp.arange(20.0) * 0.01, positions[:-1], velocities[:-1])
    again = rolled("semi_implicit_euler")(chain, q, qd, torques, 0.01)
    assert relative(again[0], positions) < 1e-12 and relative(again[1], velocities) < 1e-12


def test_friction_dissipates_energy():
    chain = textbook.pendulum(3, damping=3.0)
    q, zero = jnp.asarray([0.6, -0.3, 0.4]), jnp.zeros(3)
    _, energies = simulate(chain, q, zero, zero, 2e-2, 10, "rk4")
    hanging = float(jaxdyn.total_energy(chain, zero, zero))
    assert np.all(np.diff(energies) < 1e-12)
    assert energies[-1] - hanging < 0.1 * (energies[0] - hanging)


def test_batches_of_rollouts_equal_single_ones():
    chain = random_chain(3, 25)
    rng = np.random.default_rng(25)
    q, qd = jnp.asarray(rng.normal(size=(2, 4, 3)))
    controls = jnp.asarray(rng.normal(size=(4, 5, 3)))
    batch = jax.jit(jax.vmap(lambda q, qd, u: jaxdyn.rollout(chain, q, qd, u, 0.01)))(q, qd, controls)
    for k in range(4):
        single = rolled("semi_implicit_euler")(chain, q[k], qd[k], controls[k], 0.01)
        assert relative(batch[0][k], single[0]) < 1e-12 and relative(batch[1][k], single[1]) < 1e-12


def final_state(chain, q, qd, controls, dt):
    """Final state of a rollout by the default method, as one vector."""
    positions, velocities = jaxdyn.rollout(chain, q, qd, controls, dt)
    return jnp.concatenate([positions[-1], velocities[-1]])


@pytest.mark.ci
def test_derivatives_through_a_rollout_equal_differences():
    """With respect to the initial state, all torques, the step and every leaf of the chain."""
    chain = random_chain(3, 26)
    chain = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 1.0), chain)
    rng = np.random.default_rng(26)
    q, qd = jnp.asarray(rng.normal(size=(2, 3)))
    arguments = (chain, q, qd, jnp.asarray(rng.normal(size=(10, 3))), jnp.asarray(0.01))
    leaves, along = directions(arguments)
    along = (*along[:-1], along[-1] * 0.01)
    cotangent = jnp.asarray(rng.normal(size=6))
    _, forward, reverse, differences = map(np.asarray, derivatives(final_state, arguments, along, cotangent))
    for k, leaf in enumerate(leaves):
        scale = np.abs(forward[k]).max()
        assert np.abs(forward[k] - differences[k]).max() <= 1e-8 * scale + 1e-10, leaf
        assert abs(reverse[k] - forward[k] @ cotangent) <= 1e-12 * np.abs(forward[k] * cotangent).sum() + 1e-13, leaf
    moved = {leaf for k, leaf in enumerate(leaves) if np.abs(forward[k]).max() > 0}
    still = {leaf for leaf in leaves if leaf not in moved}
    assert still == {f"[0].{x}" for x in ("limits.position", "limits.velocity", "limits.effort", "frame_poses")}


def test_wrenches_are_one_row_per_link(annotations_unchecked):
    chain = random_chain(3, 27)
    with pytest.raises(jaxdyn.ModelError, match=r"external_wrenches has shape \(2, 6\); expected \(3, 6\)"):
        jaxdyn.forward_dynamics(chain, *jnp.zeros((3, 3)), external_wrenches=jnp.zeros((2, 6)))


def test_unknown_methods_and_missing_steps_are_refused():
    chain = random_chain(3, 27)
    zero = jnp.zeros(3)
    unknown = "'semi_implicit_euler', 'explicit_euler', 'rk4' or 'implicit_damping', not 'leapfrog'"
    with pytest.raises(jaxdyn.ModelError, match=unknown):  # without the annotations' own check, which the tests turn on
        inspect.unwrap(jaxdyn.step)(chain, zero, zero, zero, 0.01, method="leapfrog")
    with pytest.raises(jaxdyn.ModelError, match="5 rows of torques are given for 6 steps"):
        jaxdyn.rollout(chain, zero, zero, jnp.zeros((5, 3)), 0.01, steps=6)
    with pytest.raises(jaxdyn.ModelError, match="under a policy needs the number of steps"):
        jaxdyn.rollout(chain, zero, zero, lambda t, q, qd: q, 0.01)
