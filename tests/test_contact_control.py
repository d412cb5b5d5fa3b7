"""Policies and optimal control through contact, against differences, MuJoCo and `contact_rollout`."""

import dataclasses
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
import pytest
from jaxtyping import Array
from numpy.testing import assert_allclose

import jaxdyn
from jaxdyn import contact, trajectory
from jaxdyn.errors import ModelWarning, TrajectoryError

# a leg below a trunk on a vertical rail
LEG = """<mujoco><compiler angle="radian"/><option timestep="0.01"/><default><geom density="0" condim="3"/></default><worldbody>
<geom type="plane" size="5 5 .1" friction="0.8"/>
<body name="trunk"><joint name="rail" type="slide" axis="0 0 1"/><inertial pos="0 0 0" mass="3" diaginertia=".02 .02 .02"/>
<body name="thigh"><joint name="hip" axis="0 1 0" range="-2 2" limited="true" damping=".1" armature=".01"/>
  <inertial pos="0 0 -.1" mass=".6" diaginertia=".004 .004 .004"/>
<body name="shank" pos="0 0 -.2"><joint name="knee" axis="0 1 0" range="-2.6 -.1" limited="true" damping=".1"
    frictionloss=".1"/><inertial pos="0 0 -.1" mass=".3" diaginertia=".002 .002 .002"/>
  <geom type="sphere" size=".03" pos="0 0 -.2"/></body></body></body></worldbody></mujoco>"""
WEIGHT = 3.9 * 9.81
LIMITS = jnp.array([[0.0, 0.0], [-30.0, 30.0], [-30.0, 30.0]])


@functools.cache
def leg():
    """The model, the robot and its contacts."""
    model = mujoco.MjModel.from_xml_string(LEG)
    model.opt.solver, model.opt.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.tolerance, model.opt.iterations = 0, 200
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-14, 200
    with pytest.warns(ModelWarning, match=r"omitted: contacts"):
        chain = jaxdyn.io.from_mujoco(model)
    return model, chain, contact.contacts_from_mujoco(model, chain)


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


def test_slopes_of_a_motion_through_contact_are_those_of_differences():
    """The foot falls on the floor, and slides."""
    problem = dataclasses.replace(stand_up(20), q0=standing(1.6, 0.01))
    cost = lambda tau: trajectory.total_cost(problem, trajectory.simulate_controls(problem, tau, checkpoint=1))
    tau = jnp.tile(jnp.array([0.0, -3.0, 6.0]), (20, 1))
    direction = jnp.asarray(np.random.default_rng(0).normal(size=tau.shape))
    both = jax.jit(jax.value_and_grad(cost))
    _, slope = both(tau)
    expected = (both(tau + 1e-6 * direction)[0] - both(tau - 1e-6 * direction)[0]) / 2e-6
    assert_allclose(jnp.vdot(slope, direction), expected, rtol=1e-6)
    assert np.abs(slope).min() > 0 or np.isfinite(slope).all()


class Posture(eqx.Module):
    """Springs and dampers of hip and knee about a posture."""

    posture: Array
    stiffness: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([jnp.zeros(1), self.stiffness * (self.posture - q[1:]) - 0.5 * v[1:]])


@pytest.mark.ci
def test_a_policy_learns_to_hold_a_height():
    """From collapsing, on floors of different friction; the gradient of the first update is that of differences."""
    _, chain, contacts = leg()
    problem, count = stand_up(50), 8
    frictions = jnp.linspace(0.3, 1.0, count)[:, None, None] * contacts.friction[None]
    floors = eqx.tree_at(lambda c: c.friction, contacts, frictions)
    knees = np.linspace(0.8, 1.4, count)
    q0 = jnp.stack([standing(x) for x in knees])
    robots = (chain, floors)
    start = Posture(jnp.array([0.4, -0.8]), jnp.array([5.0, 5.0]))
    cost = lambda policy: float(trajectory.policy_costs(policy, problem, q0, 0 * q0, robots).mean())
    found = trajectory.optimise_policy(
        start, problem, q0, 0 * q0, robots, updates=60, optimiser=trajectory.clipped_adam(0.3)
    )
    print(cost(start), found)
    end = trajectory.policy_trajectory(found.policy, problem)
    print(end.q[::10])
    leaves, structure = jax.tree.flatten(start)
    slope = []
    for k, leaf in enumerate(leaves):
        for i in range(2):
            moved = [cost(jax.tree.unflatten(structure, [*leaves[:k], leaf.at[i].add(h), *leaves[k + 1 :]])) for h in (1e-6, -1e-6)]
            slope.append((moved[0] - moved[1]) / 2e-6)
    assert_allclose(found.history["gradient"][0], np.linalg.norm(slope), rtol=1e-6)
    assert found.cost < 0.2 * cost(start)


@pytest.mark.ci
def test_a_motion_of_shooting_is_that_of_mujoco():
    model, chain, contacts = leg()
    problem = stand_up(60)
    solution = jax.jit(trajectory.solve_by_shooting)(problem)
    print(solution)
    assert solution.status == trajectory.Status.CONVERGED and solution.iterations < 20
    found, still = solution.trajectory, jnp.zeros(3)
    start = contact.ContactState(problem.q0, still, still)
    motion = contact.contact_rollout(chain, contacts, start, found.tau, problem.dt)
    assert_allclose(motion.q, found.q, atol=1e-12)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = problem.q0, 0
    for tau, q in zip(found.tau, found.q[1:], strict=True):
        data.qfrc_applied[:] = tau
        mujoco.mj_step(model, data)
        assert_allclose(q, data.qpos, atol=1e-11)


def test_what_is_not_supported_is_refused():
    _, chain, contacts = leg()
    with pytest.raises(TrajectoryError, match=re.escape("steps with contacts are those of 'semi_implicit_euler'")):
        stand_up(3, method="rk4")
    with pytest.raises(TrajectoryError, match="of a robot with 3 velocities, but this one has 2"):
        trajectory.OptimalControlProblem(
            jaxdyn.textbook.planar_elbow(), jnp.zeros(2), jnp.zeros(2), 3, 0.01, contacts=contacts
        )
    for solve in (trajectory.solve_by_collocation, trajectory.solve_by_inverse_dynamics):
        with pytest.raises(TrajectoryError, match="do not support contacts"):
            solve(stand_up(3))
