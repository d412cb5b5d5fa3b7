"""Controllers in joint space: what each claims about the closed loop, and against modern_robotics and closed forms."""

import dataclasses
import importlib
import itertools

import jax
import jax.numpy as jnp
import modern_robotics as mr
import numpy as np
import pytest

import jaxdyn
from closed_loops import acceleration, along, disturbed, runge_kutta, wave
from helpers import mechanism_state, once, random_chain, random_mechanism, random_state, relative
from jaxdyn.control.joint_space import apply_gain, error_rate

KP, KD = 40.0, 9.0


def kinetic_and_spring(chain, goal, kp):
    def energy(state):
        error = jaxdyn.difference(chain, state[0], goal)
        return jaxdyn.kinetic_energy(chain, *state) + 0.5 * kp * (error @ error)

    return energy


def test_computed_torque_gives_the_numbers_of_modern_robotics():
    """With the integral that its function adds to, and against its own code in other states."""
    between = np.array(
        [
            [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.089159], [0, 0, 0, 1]],
            [[0, 0, 1, 0.28], [0, 1, 0, 0.13585], [-1, 0, 0, 0], [0, 0, 0, 1]],
            [[1, 0, 0, 0], [0, 1, 0, -0.1197], [0, 0, 1, 0.395], [0, 0, 0, 1]],
            [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.14225], [0, 0, 0, 1]],
        ]
    )
    inertias = np.array(
        [
            np.diag([0.010267, 0.010267, 0.00666, 3.7, 3.7, 3.7]),
            np.diag([0.22689, 0.22689, 0.0151074, 8.393, 8.393, 8.393]),
            np.diag([0.0494433, 0.0494433, 0.004095, 2.275, 2.275, 2.275]),
        ]
    )
    screws = np.array([[1, 0, 1, 0, 1, 0], [0, 1, 0, -0.089, 0, 0], [0, 1, 0, -0.089, 0, 0.425]], float)
    length = np.linalg.norm(screws[:, :3], axis=1)  # the first is no unit screw: its joint turns sqrt 2 times as far
    home = list(itertools.accumulate(between, np.matmul))
    chain = jaxdyn.from_screws(screws / length[:, None], home[:3], inertias, tip_pose=home[3], gravity=(0, 0, -9.8))

    @jax.jit
    def ours(q, v, total, q_d, v_d, a_d):
        reference = jaxdyn.control.JointReference(q_d * length, v_d * length, a_d * length)
        integral = jaxdyn.control.ErrorIntegral(jnp.zeros(3)).update(
            chain, q * length, jaxdyn.control.JointReference((q + total) * length, v, v), 1.0
        )
        return length * jaxdyn.control.computed_torque(
            chain, q * length, v * length, reference, 1.3, 1.1, integral, 1.2
        )

    def theirs(q, v, total, q_d, v_d, a_d):
        g = np.array([0, 0, -9.8])
        gains = {"Kp": 1.3, "Ki": 1.2, "Kd": 1.1}
        return mr.ComputedTorque(q, v, total, g, between, inertias, screws.T, q_d, v_d, a_d, **gains)

    rng = np.random.default_rng(0)
    documented = np.array([[0.1] * 3, [0.1, 0.2, 0.3], [0.2] * 3, [1.0] * 3, [2, 1.2, 2], [0.1] * 3])
    for k, x in enumerate((documented, *rng.normal(size=(3, 6, 3)))):
        q, v, total, q_d, v_d, a_d = x
        got = ours(q, v, total + q_d - q, q_d, v_d, a_d)  # it adds the present error to the sum
        assert relative(got, theirs(q, v, total, q_d, v_d, a_d)) < 1e-12
        if k == 0:
            np.testing.assert_allclose(got, [133.00525246, -29.94223324, -3.03276856], atol=1e-8)


@pytest.mark.nightly
def test_the_error_under_computed_torque_is_a_linear_oscillator():
    """Friction, springs and all: at random states, and over a second against the oscillator's closed form."""
    chain = jaxdyn.model.with_leaves(random_chain(3, 4), {"friction.coulomb_velocity": jnp.full(3, 0.5)})
    q, v, _ = random_state(3, 1)
    reference = wave(jnp.zeros(3), 0.4, 3.0)

    @once
    def run(q, v):
        def rate(t, state):
            x, u = state
            tau = jaxdyn.control.computed_torque(chain, x, u, reference(t), KP, KD)
            return u, acceleration(chain, x, u, tau)

        wanted = reference(0.3)
        found = rate(0.3, (q, v))[1]
        left = wanted.qdd - found + KD * (wanted.qd - v) + KP * (wanted.q - q)
        return left, found, runge_kutta(rate, (q, v), 2e-3, 500)[0]

    left, found, positions = run(q, v)
    assert np.abs(left).max() < 1e-12 * np.abs(found).max()
    t = np.arange(501) * 2e-3
    at = [np.asarray(x) for x in jax.vmap(reference)(jnp.asarray(t))]
    e, rate = at[0][0] - q, at[1][0] - v
    roots = np.roots([1, KD, KP]).astype(complex)
    weights = np.linalg.solve(np.array([[1, 1], roots]), np.array([e, rate], complex))
    exact = (np.exp(np.outer(t, roots)) @ weights).real
    assert np.abs(at[0] - positions - exact).max() < 1e-7


@pytest.mark.ci
def test_gravity_compensation_and_pd_lose_energy_at_the_rate_of_their_damping():
    chain = random_chain(3, 5)
    q, v, goal = random_state(3, 2)

    @once
    def run(q, v):
        tau = jaxdyn.control.pd_gravity_control(chain, q, v, goal, 30.0, jnp.array([2.0, 1.0, 3.0]))
        rate = along(kinetic_and_spring(chain, goal, 30.0), (q, v), (v, acceleration(chain, q, v, tau)))
        floating = jaxdyn.control.gravity_compensation(chain, q, v, 0.5)
        kinetic = lambda state: jaxdyn.kinetic_energy(chain, *state)
        free = along(kinetic, (q, v), (v, acceleration(chain, q, v, floating)))
        friction = v @ jaxdyn.friction_force(chain, v)
        return rate + v @ (jnp.array([2.0, 1.0, 3.0]) * v) + friction, free + 0.5 * v @ v + friction

    assert np.abs(run(q, v)).max() < 1e-10


@pytest.mark.nightly
def test_pd_with_gravity_brings_a_panda_to_its_goal():
    """From far away: V never increases, and the arm arrives."""
    panda = jaxdyn.robots.panda()
    start = jnp.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8])
    goal = jnp.array([0.9, 0.5, -0.6, -1.2, 0.5, 2.6, -0.4])
    kp = jnp.array([200.0, 200, 150, 150, 40, 40, 20])
    kd = jnp.array([40.0, 40, 30, 30, 4, 4, 1])

    @jax.jit
    def run():
        def rate(t, state):
            q, v = state
            return v, acceleration(panda, q, v, jaxdyn.control.pd_gravity_control(panda, q, v, goal, kp, kd))

        def watch(t, state):
            error = goal - state[0]
            return jaxdyn.kinetic_energy(panda, *state) + 0.5 * error @ (kp * error), error, state[1]

        return runge_kutta(rate, (start, jnp.zeros(7)), 1e-3, 6000, watch)

    stored, error, speed = run()
    assert np.diff(stored).max() < 1e-12 * stored[0]
    assert stored[-1] < 1e-9 * stored[0]
    assert np.abs(error[-1]).max() < 1e-4 and np.abs(speed[-1]).max() < 1e-3


@pytest.mark.nightly
def test_integral_action_reaches_the_goal_on_a_panda_of_other_masses():
    """It settles where M_hat Kp e = g - g_hat, and at the goal with integral action."""
    model = jaxdyn.robots.panda()
    truth = disturbed(model, 2)
    goal = jnp.array([0.2, -0.2, 0.3, -1.8, 0.2, 2.1, 0.6])
    reference = jaxdyn.control.hold_configuration(model, goal)

    @jax.jit
    def run(ki):
        def controller(integral, t, q, v):
            tau = jaxdyn.control.computed_torque(model, q, v, reference, 100.0, 20.0, integral, ki)
            return tau, integral.update(model, q, reference, 1e-3, 1.0)

        first = jaxdyn.control.ErrorIntegral(jnp.zeros(7))
        motion = jaxdyn.control.controlled_rollout(
            truth, goal + 0.1, jnp.zeros(7), (controller, first), 1e-3, 10000, every=10000
        )
        q = motion.q[-1]
        missing = jaxdyn.gravity_force(truth, q) - jaxdyn.gravity_force(model, q)
        return goal - q, jnp.linalg.solve(jaxdyn.crba(model, q), missing) / 100.0

    error, expected = run(0.0)
    assert relative(error, expected) < 1e-6 and np.abs(error).max() > 1e-3
    assert np.abs(run(200.0)[0]).max() < 1e-6


@pytest.mark.nightly
def test_gains_about_a_quaternion_lose_energy_too():
    chain = random_mechanism(3, free=False)
    q, v, _ = mechanism_state(chain, 1)
    goal, _, _ = mechanism_state(chain, 2)

    @once
    def run(q, v):
        tau = jaxdyn.control.pd_gravity_control(chain, q, v, goal, 30.0, 2.0)
        moved = lambda t: (jaxdyn.integrate(chain, q, t * v), v + t * acceleration(chain, q, v, tau))
        energy = lambda t: kinetic_and_spring(chain, goal, 30.0)(moved(t))
        return along(energy, jnp.zeros(()), jnp.ones(())) + 2 * v @ v + v @ jaxdyn.friction_force(chain, v)

    assert abs(run(q, v)) < 1e-10


@pytest.mark.ci
def test_the_drift_is_the_rate_of_the_momentum_without_torques():
    chain = random_chain(4, 6)
    q, v, _ = random_state(4, 3)

    @once
    def both(q, v):
        direct = jaxdyn.coriolis_matrix(chain, q, v).T @ v - jaxdyn.gravity_force(chain, q)
        return jaxdyn.dynamics.momentum_drift(chain, q, v), direct - chain.springs.stiffness * (
            q - chain.springs.rest_position
        )

    got, expected = both(q, v)
    assert relative(got, expected) < 1e-12


@pytest.mark.nightly
def test_frame_accelerations_are_derivatives_of_twists():
    chain = random_mechanism(4)
    q, v, a = mechanism_state(chain, 3)

    @once
    def both(q, v, a):
        j = jaxdyn.jacobian(chain, q, reference="mixed")
        dj = jaxdyn.jacobian_derivative(chain, q, v, reference="mixed")
        return jaxdyn.frame_acceleration(chain, q, v, a), j @ a + dj @ v

    assert relative(*both(q, v, a)) < 1e-12


def watched(chain, observer, start, torque, external, dt, steps):
    """The states of an observer while the robot moves."""

    def controller(state, t, q, v):
        observed, applied = state
        observed = jax.lax.cond(t > 0, lambda s: observer.update(chain, s, q, v, applied, dt), lambda s: s, observed)
        tau = torque(t, q, v)
        return tau, (observed, tau)

    first = observer.start(chain, start, jnp.zeros(chain.nv)), jnp.zeros(chain.nv)
    return jaxdyn.control.controlled_rollout(
        chain, start, jnp.zeros(chain.nv), (controller, first), dt, steps, "rk4", disturbance=external
    )


@pytest.mark.nightly
def test_the_observer_of_a_robot_that_stands_still_filters_the_push_and_recovers_from_a_bad_sample():
    chain, q, v, dt = jaxdyn.textbook.pendulum(2), jnp.array([0.4, -0.9]), jnp.zeros(2), 1e-2
    push, gain = jnp.array([1.5, -0.7]), jnp.array([20.0, 60.0])
    observer = jaxdyn.control.MomentumObserver(gain, jnp.array([1.0, 0.5]))
    update = once(lambda state, tau: observer.update(chain, state, q, v, tau, dt))
    holding, state = once(lambda q: (jaxdyn.gravity_force(chain, q) - push, observer.start(chain, q, v)))(q)
    for k in range(1, 6):
        state = update(state, holding)
        assert relative(state.residual, -push * jnp.expm1(-gain * k * dt)) < 1e-12
    for bad in (state._replace(momentum=jnp.full(2, jnp.inf)), update(state, jnp.array([jnp.nan, 0.0]))):
        assert bool(observer.collision(bad._replace(residual=jnp.full(2, jnp.nan))).detected)
        state = update(bad, holding)
        assert not bool(observer.collision(state).detected) and not state.residual.any()
        assert relative(update(state, holding).residual, -push * jnp.expm1(-gain * dt)) < 1e-12


@pytest.mark.ci
def test_the_residual_is_the_external_torque_through_a_first_order_filter():
    chain = dataclasses.replace(jaxdyn.textbook.pendulum(2, damping=0.2), armature=jnp.full(2, 0.1))
    pushed, dt, begin = np.array([1.5, -0.7]), 1e-3, 0.1
    observer = jaxdyn.control.MomentumObserver(jnp.array([20.0, 60.0]), jnp.array([1.0, 0.5]))
    torque = lambda t, q, v: 3 * jnp.sin(jnp.array([4.0, 7.0]) * t)
    external = lambda t, q, v: jnp.where(t > begin - dt / 2, 1.0, 0.0) * pushed
    motion = jax.jit(lambda q: watched(chain, observer, q, torque, external, dt, 400))(jnp.array([0.4, -0.9]))
    residual = np.asarray(motion.state[0].residual)  # of row k: found at the start of period k, from samples until then
    t = (np.arange(401) - 1)[:, None] * dt
    exact = pushed * np.where(t > begin, -np.expm1(-np.array([20.0, 60.0]) * (t - begin)), 0)
    assert np.abs(residual - exact).max() < 1e-5
    hit = jax.vmap(observer.collision)(motion.state[0])
    first = int(np.argmax(hit.detected))
    assert t[first] == pytest.approx(begin - np.log(1 - 0.5 / 0.7) / 60, abs=dt) and int(hit.last[first]) == 1
    assert not hit.detected[:100].any() and hit.joints[-1].all()
    assert bool(observer.collision(motion.state[0]._replace(residual=jnp.full(2, jnp.nan))).detected)
    np.testing.assert_allclose(
        jaxdyn.control.collision_threshold(motion.state[0].residual), 1.5 * np.abs(residual).max(0)
    )


@pytest.mark.nightly
def test_a_rollout_without_memory_is_a_rollout():
    chain = jaxdyn.textbook.pendulum(2, damping=0.1)
    q, v, _ = random_state(2, 5)
    policy = lambda t, q, v: jaxdyn.gravity_force(chain, q) + 5.0 * (jnp.sin(t) - q) - v

    @once
    def run(q, v):
        plain = jaxdyn.rollout(chain, q, v, policy, 2e-3, 20, every=5)
        count = lambda state, t, q, v: (policy(t, q, v), state + 1)
        return plain, jaxdyn.control.controlled_rollout(chain, q, v, (count, jnp.zeros((), int)), 2e-3, 20, every=5)

    plain, motion = run(q, v)
    assert relative(motion.q, plain[0]) < 1e-14 and relative(motion.qd, plain[1]) < 1e-14
    assert list(motion.state) == [0, 5, 10, 15, 20] and motion.t[-1] == pytest.approx(0.04)
    assert relative(motion.tau[-1], policy(0.038, *(jnp.asarray(x) for x in (motion.q[-1], motion.qd[-1])))) < 0.05


def test_a_controller_is_sampled_and_its_torque_held(monkeypatch):
    """Of masses on rails, against a loop: substeps, a disturbance that they feel, the rows that are kept."""
    ahead = lambda chain, q, v, tau, dt, method: (q + dt * v + dt**2 / 2 * tau, v + dt * tau)
    monkeypatch.setattr(importlib.import_module("jaxdyn.simulation.rollouts"), "step", ahead)
    chain, q, v, dt = jaxdyn.textbook.cartesian_two_link(), np.array([0.3, -0.2]), np.array([0.5, 1.0]), 0.2
    push = lambda t, q, v: np.array([0.7, -0.3]) * t + 0.1 * q * v
    control = lambda state, t, q, v: (state * np.array([1.0, 2.0]) - 3.0 * q - v + t, state + 1.0)
    for substeps, disturbance in ((1, None), (3, push)):
        motion = jaxdyn.control.controlled_rollout(
            *(chain, jnp.asarray(q), jnp.asarray(v), (control, jnp.asarray(0.5)), dt, 4),
            substeps=substeps,
            every=2,
            disturbance=disturbance,
        )
        x, u, state, rows = q, v, 0.5, []
        for k in range(4):
            rows.append((dt * k, x, u, state))
            tau, state = control(state, dt * k, x, u)
            for j in range(substeps):
                acting = tau + (0 if disturbance is None else push(dt * k + j * dt / substeps, x, u))
                x, u = ahead(chain, x, u, acting, dt / substeps, "")
            rows[-1] += (tau,)
        expected = (*zip(*(rows[k][:4] for k in (0, 2)), strict=True),)
        for found, begun, end in zip(motion[:3], expected, (0.8, x, u), strict=False):
            np.testing.assert_allclose(found, [*begun, end], rtol=1e-12)
        np.testing.assert_allclose(motion.state, [*expected[3], state], rtol=1e-12)
        np.testing.assert_allclose(motion.tau, [0 * v, rows[1][4], rows[3][4]], rtol=1e-12)


def test_errors_of_ball_joints_have_the_rates_of_their_differences():
    """d/dt difference(q, q_d) by differences while both turn; an integral of errors within its limit."""
    chain, h = random_mechanism(3, free=False, coupled=False), 1e-3
    (q, v, _), (q_d, v_d, _) = (mechanism_state(chain, k) for k in (1, 2))

    @once
    def run(q, v):
        moved = lambda t: jaxdyn.difference(
            chain, jaxdyn.integrate(chain, q, t * v), jaxdyn.integrate(chain, q_d, t * v_d)
        )
        errors = jax.vmap(moved)(h * jnp.arange(-2.0, 3.0))
        integral = jaxdyn.control.ErrorIntegral(v).update(
            chain, q, jaxdyn.control.JointReference(q_d, v_d, v_d), 0.2, 0.8
        )
        return error_rate(chain, q, v, q_d, v_d), errors, integral.value

    rate, errors, integral = map(np.asarray, run(q, v))
    assert relative(rate, np.array([1, -8, 0, 8, -1]) @ errors / (12 * h)) < 1e-9
    assert relative(integral, np.clip(v + 0.2 * errors[2], -0.8, 0.8)) < 1e-12
    for gain in (3.0, jnp.array([1.0, 2.0]), jnp.array([[1.0, 2.0], [3.0, 4.0]])):
        whole = gain if jnp.ndim(gain) == 2 else jnp.diag(gain * jnp.ones(2))
        assert relative(jax.vmap(lambda x, gain=gain: apply_gain("gain", gain, x), out_axes=1)(jnp.eye(2)), whole) == 0


def everything(chain, q, v):
    """Torques of every controller, and the next states of stateful ones."""
    reference = jaxdyn.control.JointReference(0.5 * q, 0.2 * v, v)
    pose = jaxdyn.frame_pose(chain, 0.9 * q)
    task = jaxdyn.control.TaskReference(pose, 0.1 * jnp.ones_like(pose, shape=6), jnp.ones_like(pose, shape=6))
    integral = jaxdyn.control.ErrorIntegral(v).update(chain, q, reference, 1e-3, 2.0)
    posture = jaxdyn.control.posture_torque(chain, q, v, 0.8 * q, 3.0, 1.0)
    observer = jaxdyn.control.MomentumObserver(20.0, 1.0)
    observed = observer.update(chain, observer.start(chain, q, v), 1.01 * q, v, posture, 1e-3)
    out = {
        "gravity": jaxdyn.control.gravity_compensation(chain, q, v, 0.1),
        "pd": jaxdyn.control.pd_gravity_control(chain, q, v, 0.5 * q, 3.0, jnp.ones_like(v)),
        "computed torque": jaxdyn.control.computed_torque(chain, q, v, reference, 9.0, 6.0, integral, 1.0),
        "operational space": jaxdyn.control.operational_space_control(chain, q, v, task, 9.0, 6.0, posture)[:4],
        "stiffness": jaxdyn.control.stiffness_control(chain, q, v, pose, 9.0, 1.0, 0.1),
        "impedance": jaxdyn.control.impedance_control(chain, q, v, task, 9.0, 1.0, posture)[:4],
        "energy": jaxdyn.control.impedance_energy(chain, q, v, task, 9.0, task="position"),
        "damping": jaxdyn.control.impedance_damping(
            jaxdyn.control.task_space(chain, q, v).inertia, jnp.eye(6, dtype=v.dtype)
        ),
        "observer": (observed, observer.collision(observed).detected),
    }
    drives = jaxdyn.control.DriveAdaptation(1.0, ("viscous", "coulomb", "offset"))
    for law in (
        jaxdyn.control.EuclideanAdaptation,
        jaxdyn.control.NaturalAdaptation,
        jaxdyn.control.LogCholeskyAdaptation,
    ):
        controller = jaxdyn.control.AdaptiveControl(2.0, 3.0, law(0.1, 0.01), drives)
        state = controller.start(chain)
        ahead = controller.update(chain, state, q, v, reference, 1e-2)
        out[law.__name__] = ahead, controller.torque(chain, ahead, q, v, reference)
    return out


@pytest.mark.ci
def test_controllers_keep_the_type_of_their_inputs():
    """In single precision nothing turns double; what is traced is not compiled here."""
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (random_chain(3, 9), *random_state(3, 6)[:2]))

    leaves = jax.tree.leaves(jax.eval_shape(everything, *single))
    floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    assert len(floats) > 25 and all(x.dtype == jnp.float32 for x in floats)


def numbers(out):
    return [x for x in jax.tree.leaves(out) if jnp.issubdtype(x.dtype, jnp.floating)]


@pytest.mark.nightly
def test_controllers_are_accurate_in_single_precision():
    chain, q, v = random_chain(7, 9, "revolute"), *random_state(7, 2)[:2]
    run = once(lambda q, v, chain: numbers(everything(chain, q, v)))
    single = run(*jax.tree.map(lambda x: x.astype(jnp.float32), (q, v, chain)))
    for x, y in zip(single, run(q, v, chain), strict=True):
        assert x.dtype == jnp.float32 and relative(x, y) < 2e-2


@pytest.mark.nightly
def test_controllers_work_in_batches_and_can_be_differentiated():
    chain, q, v = random_chain(7, 9, "revolute"), *random_state(7, 2)[:2]
    adaptive = jaxdyn.control.AdaptiveControl(2.0, 3.0)

    def torques(q, v):
        reference = jaxdyn.control.JointReference(0.5 * q, 0.2 * v, v)
        state = adaptive.update(chain, adaptive.start(chain), q, v, reference, 1e-2)
        home = jaxdyn.control.hold_pose(jaxdyn.frame_pose(chain, 0.9 * q))
        frame = jaxdyn.control.operational_space_control(
            chain, q, v, home, 9.0, 6.0, v, threshold=1e-9
        ).tau  # not damped
        return jnp.stack([adaptive.torque(chain, state, q, v, reference), frame])

    weights = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7)))
    total = lambda q, v: (weights * torques(q, v)).sum()
    several = once(jax.vmap(total))(jnp.stack([q - 1e-5 * v, q, q + 1e-5 * v]), jnp.stack([v, v, v]))
    value, slope = once(jax.value_and_grad(total))(q, v)
    assert relative(several[1], value) < 1e-10
    assert relative(slope @ v, (several[2] - several[0]) / 2e-5) < 1e-6


@pytest.mark.nightly
def test_every_transform_of_every_controller_keeps_the_type():
    """Batches, forward and backward derivatives in single precision, traced as for compilation but not compiled."""

    def transformed(chain, q, v):
        outputs = lambda q, v: numbers(everything(chain, q, v))
        ahead = jax.vmap(lambda dq, dv: jax.jvp(outputs, (q, v), (dq, dv)))(jnp.stack([q, v]), jnp.stack([v, q]))
        values, back = jax.vjp(outputs, q, v)
        return values, ahead, back([jnp.ones_like(x) for x in values])

    single = jax.tree.map(lambda x: x.astype(jnp.float32), (random_chain(2, 9), *random_state(2, 6)[:2]))
    found = jax.tree.leaves(jax.eval_shape(transformed, *single))
    assert len(found) > 90 and all(x.dtype == jnp.float32 for x in found)


def test_controllers_refuse_wrong_shapes_and_gains():
    chain, q = jaxdyn.textbook.pendulum(2), jnp.zeros(2)
    reference = jaxdyn.control.hold_configuration(chain, q)
    with pytest.raises(jaxdyn.ControlError, match="kp has shape"):
        jax.eval_shape(lambda q: jaxdyn.control.pd_gravity_control(chain, q, q, q, jnp.ones(3), 1.0), q)
    with pytest.raises(jaxdyn.ControlError, match="kd has shape"):
        jax.eval_shape(lambda q: jaxdyn.control.computed_torque(chain, q, q, reference, 1.0, jnp.ones((2, 3))), q)
    with pytest.raises(jaxdyn.ControlError, match="controlled_rollout: q has shape"):
        jaxdyn.control.controlled_rollout(chain, q[:-1], q, (lambda s, t, q, v: (q, s), q), 1e-3, 2)
    with pytest.raises(jaxdyn.ControlError, match="substeps=0"):
        jaxdyn.control.controlled_rollout(chain, q, q, (lambda s, t, q, v: (q, s), q), 1e-3, 2, substeps=0)
    with pytest.raises(jaxdyn.ControlError, match="torques have shape"):
        jaxdyn.control.controlled_rollout(chain, q, q, (lambda s, t, q, v: (q[:1], s), q), 1e-3, 2)
    with pytest.raises(jaxdyn.ControlError, match="gain is"):
        jaxdyn.control.MomentumObserver(-1.0).start(chain, q, q)
    with pytest.raises(jaxdyn.ControlError, match="threshold has shape"):
        jaxdyn.control.MomentumObserver(1.0, jnp.ones(3)).start(chain, q, q)
