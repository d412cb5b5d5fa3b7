"""Policies and optimal control through contact, against differences, MuJoCo and `contact_rollout`."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jaxtyping import Array
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once
from jaxdyn import contact, trajectory
from jaxdyn.errors import ModelWarning, TrajectoryError

# a leg below a trunk on a vertical rail
LEG = """<mujoco><compiler angle="radian"/><option timestep="0.01"/><default><geom density="0" condim="3"/></default><worldbody>
<geom type="plane" size="5 5 .1" friction="0.8"/>
<body name="trunk"><joint name="rail" type="slide" axis="0 0 1"/><inertial pos="0 0 0" mass="3" diaginertia=".02 .02 .02"/>
<body name="thigh"><joint name="hip" axis="0 1 0" range="-2 2" limited="true" damping=".1" armature=".01"/>
  <inertial pos="0 0 -.1" mass=".6" diaginertia=".004 .004 .004"/>
<body name="shank" pos="0 0 -.2"><joint name="knee" axis="0 1 0" range="-2.6 -.1" limited="true" damping=".1"/>
  <inertial pos="0 0 -.1" mass=".3" diaginertia=".002 .002 .002"/>
  <geom type="sphere" size=".03" pos="0 0 -.2"/></body></body></body></worldbody></mujoco>"""
LIMITS = jnp.array([[0.0, 0.0], [-30.0, 30.0], [-30.0, 30.0]])


def loaded(text):
    """The model, the robot and its contacts."""
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.solver, model.opt.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.tolerance, model.opt.iterations = 0, 200
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-14, 200
    with pytest.warns(ModelWarning, match=r"omitted: contacts"):
        chain = jaxdyn.io.from_mujoco(model)
    return model, chain, contact.contacts_from_mujoco(model, chain)


leg = functools.cache(functools.partial(loaded, LEG))


def played_by_mujoco(model, q0, forces):
    """Positions after every step from rest."""
    data = mujoco.MjData(model)
    data.qpos[:], found = q0, []
    for force in forces:
        data.qfrc_applied[:] = force
        mujoco.mj_step(model, data)
        found.append(data.qpos.copy())
    return np.array(found)


def standing(knee, height=0.0):
    """The leg with the foot below the hip, this far above the floor."""
    return jnp.array([0.03 + 0.4 * np.cos(knee / 2) + height, knee / 2, -knee])


def stand_up(steps, **named):
    """From a crouch to 3/4 of the way up."""
    _, chain, contacts = leg()
    goal, still = standing(0.8, -0.001), jnp.zeros(3)
    return trajectory.OptimalControlProblem(
        chain,
        standing(1.6, -0.001),
        still,
        steps,
        0.01,
        running=(trajectory.StateCost(goal, still, 0.3, 0.1), trajectory.TorqueCost(0.02)),
        terminal=(trajectory.StateCost(goal, still, 30.0, 3.0),),
        torque_limits=LIMITS,
        **{"contacts": contacts} | named,
    )


def test_steps_of_a_problem_are_those_of_mujoco():
    """A ball on a vertical rail, pushed against the floor."""
    ball = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="1 1 1" condim="1"/>
    <body><joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1" condim="1"/></body></worldbody></mujoco>"""
    model, chain, contacts = loaded(ball)
    problem = trajectory.OptimalControlProblem(
        chain, jnp.array([0.12]), jnp.zeros(1), 30, 0.01, (trajectory.TorqueCost(0.1),), contacts=contacts
    )
    force = jnp.linspace(-20.0, 90.0, 30)[:, None]
    found = once(trajectory.simulate_controls)(problem, force)
    assert found.q.min() < 0.1 < found.q[-1]
    assert_allclose(found.q[1:], played_by_mujoco(model, problem.q0, force), atol=1e-12)


class Springs(eqx.Module):
    """Springs [10 N m/rad] and dampers of hip and knee about a posture."""

    posture: Array
    stiffness: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([jnp.zeros(1), 10 * self.stiffness * (self.posture - q[1:]) - 0.5 * v[1:]])


@pytest.mark.ci
def test_a_policy_learns_to_stand():
    """On floors of different friction, from a jump; the first gradient is that of differences."""
    _, chain, contacts = leg()
    problem, floors = stand_up(50), jnp.linspace(0.3, 1.0, 8)
    contacts = eqx.tree_at(lambda c: c.friction, contacts, floors[:, None, None] * contacts.friction[None])
    q0 = jnp.stack([standing(x) for x in np.linspace(0.8, 1.4, 8)])
    arguments = problem, q0, 0 * q0, (chain, contacts)
    cost = lambda posture, stiffness: trajectory.policy_costs(Springs(posture, stiffness), *arguments).mean()
    start = jnp.array([0.7, -1.4, 2.0, 2.0])
    unit = 1e-6 * jnp.eye(4)
    slope = [cost(*jnp.split(start + e, 2)) - cost(*jnp.split(start - e, 2)) for e in unit]
    descent = trajectory.clipped_adam(0.05)
    found = trajectory.optimise_policy(Springs(*jnp.split(start, 2)), *arguments, updates=80, optimiser=descent)
    assert_allclose(found.history["gradient"][0], np.linalg.norm(slope) / 2e-6, rtol=1e-6)
    assert found.cost < 1e-3 * found.history["cost"][0] and found.stopped == 0
    motion = jax.jit(trajectory.policy_trajectory)(found.policy, problem)
    assert abs(motion.q[-1, 0] - 0.4) < 0.03 and jnp.abs(motion.v[-1]).max() < 0.1


@pytest.mark.ci
def test_shooting_finds_a_motion_that_mujoco_repeats():
    model, chain, contacts = leg()
    problem = eqx.tree_at(lambda p: p.q0, stand_up(60), standing(1.2, -0.001))
    guess = once(trajectory.policy_trajectory)(Springs(jnp.array([0.5, -1.0]), jnp.array([2.0, 2.0])), problem)
    solution = once(trajectory.solve_by_shooting)(problem, guess)
    assert solution.status == trajectory.Status.CONVERGED and solution.iterations < 15
    found = solution.trajectory
    start = contact.ContactState(problem.q0, 0 * problem.q0, 0 * problem.q0)
    motion = contact.contact_rollout(chain, contacts, start, found.tau, problem.dt)
    assert_allclose(motion.q, found.q, atol=1e-12)
    assert_allclose(found.q[1:], played_by_mujoco(model, problem.q0, found.tau), atol=1e-10)


@pytest.mark.nightly
def test_solutions_are_differentiable_by_contacts():
    """The cost by the time constant of the contact and by friction, against differences."""
    problem = eqx.tree_at(lambda p: p.q0, stand_up(60), standing(1.2, -0.001))
    guess = once(trajectory.policy_trajectory)(Springs(jnp.array([0.5, -1.0]), jnp.array([2.0, 2.0])), problem)
    where = lambda p: (p.contacts.softness.reference, p.contacts.friction)
    at = lambda x: eqx.tree_at(where, problem, tuple(y * (1 + x[k]) for k, y in enumerate(where(problem))))
    solve = jax.jit(lambda x: trajectory.solve_by_shooting(at(x), guess, tolerance=1e-9).cost)
    slope = jax.jit(jax.jacfwd(solve))(jnp.zeros(2))
    expected = [(solve(e) - solve(-e)) / 2e-4 for e in 1e-4 * jnp.eye(2)]
    assert_allclose(slope, expected, rtol=1e-3, atol=1e-8)


def test_what_is_not_supported_is_refused():
    *_, contacts = leg()
    with pytest.raises(TrajectoryError, match=re.escape("steps with contacts are those of 'semi_implicit_euler'")):
        stand_up(3, method="rk4")
    with pytest.raises(TrajectoryError, match="of a robot with 3 velocities, but this one has 2"):
        trajectory.OptimalControlProblem(
            jaxdyn.textbook.planar_elbow(), jnp.zeros(2), jnp.zeros(2), 3, 0.01, contacts=contacts
        )
    for solve in (trajectory.solve_by_collocation, trajectory.solve_by_inverse_dynamics):
        with pytest.raises(TrajectoryError, match="do not support contacts"):
            solve(stand_up(3))


@pytest.mark.ci
@pytest.mark.parametrize("base", ("rail", "free"))
def test_derivatives_of_steps_are_differences(base):
    """Of a leg that touches the floor, with damping that is integrated implicitly, on a rail and as a free body."""
    text = LEG if base == "rail" else LEG.replace('<joint name="rail" type="slide" axis="0 0 1"/>', "<freejoint/>")
    _, chain, contacts = leg() if base == "rail" else loaded(text)
    rng, n = np.random.default_rng(2), chain.nv
    start = standing(1.2, -0.004)
    q = start if base == "rail" else jnp.concatenate([jnp.array([0.1, 0, start[0], 1, 0.05, 0.1, 0]), start[1:]])
    v, tau, damping = (jnp.asarray(rng.normal(size=n)) for _ in range(3))
    damping, dt, zero = jnp.abs(damping).at[: n - 2].set(0), 0.004, jnp.zeros(n)
    q = jaxdyn.model.normalise_configuration(chain, q) if base == "free" else q

    @jax.jit
    @jax.vmap
    def after(z):
        dq, dv, dtau = jnp.split(z, 3)
        state = contact.ContactState(jaxdyn.integrate(chain, q, dq), v + dv, zero)
        return contact.contact_step(chain, contacts, state, tau + dtau, dt, damping)

    state = contact.ContactState(q, v, zero)
    found = jax.jit(lambda: contact.contact_step_derivatives(chain, contacts, state, tau, dt, damping))()
    unit = 1e-6 * jnp.eye(3 * n)
    ends = [after(sign * unit) for sign in (1, -1)]
    motion = jax.vmap(lambda x, y: jaxdyn.difference(chain, x, y))(ends[1].q, ends[0].q)
    expected = (jnp.concatenate([motion, ends[0].qd - ends[1].qd], axis=1) / 2e-6).T
    assert_allclose(jnp.concatenate(found, axis=1), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
