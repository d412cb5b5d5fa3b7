"""Stiff friction, thinned and checkpointed rollouts, adaptive steps, fleets of robots, buffers given away."""

import dataclasses
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, random_state, relative
from jaxdyn import ModelError, Topology, textbook
from jaxdyn.simulation.integrate import with_implicit_friction
from jaxdyn.simulation.rollouts import level_sizes

EXPLICIT = ("semi_implicit_euler", "explicit_euler")


def dry_friction(chain, coulomb, width=1e-4):
    full = jnp.full(chain.n, 1.0, chain.dtype)
    return jaxdyn.model.with_leaves(
        chain, {"friction.coulomb": coulomb * full, "friction.coulomb_velocity": width * full}
    )


# implicit damping


@once
def implicit_step(chain, q, qd, tau, dt):
    return jaxdyn.step(chain, q, qd, tau, dt, method="implicit_damping")


@once
def damped_equation(chain, q, qd, tau):
    """M, dfriction/dqd and tau - h - passive, by routes of their own."""
    rest = tau - jaxdyn.bias_force(chain, q, qd) - jaxdyn.resistive_force(chain, q, qd)
    return jaxdyn.crba(chain, q), jax.jacfwd(lambda v: jaxdyn.friction_force(chain, v))(qd), rest


@pytest.mark.parametrize(
    "robot",
    ["serial", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("coupled", "free"))],
)
def test_implicit_damping_solves_its_equation(robot):
    """(M + dt D) dqd = dt (tau - h - passive), D = d friction / d qd: trees with quaternions, couplings and motors too."""
    if robot == "serial":
        chain = random_chain(3, 41)
        q, qd, _ = random_state(3, 41)
        chain = jaxdyn.model.with_leaves(
            chain, {"friction.stribeck": jnp.zeros(3), "friction.viscous": jnp.full(3, 30.0)}
        )
    else:
        chain = random_mechanism(41, coupled=robot == "coupled")
        q, qd, _ = mechanism_state(chain, 41)
    tau, dt = jnp.linspace(-1, 1, chain.nv), 1e-3
    mass, damping, rest = map(np.asarray, damped_equation(chain, q, qd, tau))
    new_q, new_qd = implicit_step(chain, q, qd, tau, dt)
    expected = np.asarray(qd) + np.linalg.solve(mass + dt * damping, dt * rest)
    assert np.all(expected * np.asarray(qd) > 0) and dt * np.abs(damping).max() > 1e-5
    assert relative(new_qd - qd, expected - np.asarray(qd)) < 1e-9
    assert relative(new_q, jaxdyn.integrate(chain, q, dt * new_qd)) < 1e-13


def test_slopes_of_friction_are_never_negative_and_chords_where_a_joint_turns():
    """One joint, one motor; Stribeck friction falls at 0.1 rad/s."""
    plain = textbook.pendulum(1)
    chain = jaxdyn.model.with_leaves(
        jaxdyn.with_transmission(
            plain, gear_ratio=10.0, viscous_friction=0.2, coulomb_friction=0.5, coulomb_velocity=2.0
        ),
        {
            "friction.viscous": jnp.array([0.1]),
            "friction.coulomb": jnp.array([1.0]),
            "friction.coulomb_velocity": jnp.array([1e-3]),
            "friction.stribeck": jnp.array([2.0]),
            "friction.stribeck_velocity": jnp.array([0.1]),
            "friction.offset": jnp.array([0.7]),
        },
    )

    def added(v, after):
        damped = with_implicit_friction(chain, jnp.array([v]), jnp.array([after]), jnp.asarray(0.5))
        return float(damped.armature[0] - chain.armature[0]), float(damped.transmission.rotor_inertia[0])

    joint, motor = added(0.1, 0.1)
    assert joint == 0.0  # 0.1 - 2 (2 / 0.1) exp(-1) < 0
    np.testing.assert_allclose(motor, 0.5 * (0.2 + 0.5 / 2.0 / np.cosh(1.0 / 2.0) ** 2), rtol=1e-12)
    joint, motor = added(0.1, -0.1)
    np.testing.assert_allclose(joint, 0.5 * (0.1 * 0.1 + 1 + 2 * np.exp(-1)) / 0.1, rtol=1e-12)
    np.testing.assert_allclose(motor, 0.5 * (0.2 + 0.5 * np.tanh(0.5) / 1.0), rtol=1e-12)
    for v in (0.0, 1e-300, 1e-9):
        np.testing.assert_allclose(added(v, -1.0)[0], 0.5 * (0.1 + 3.0 / 1e-3), rtol=1e-9)


INERTIA = 1 / 3  # of the one link below


@functools.cache
def level_link():
    """One link that gravity does not move, under Coulomb friction of 1 N m, 1e-4 rad/s wide."""
    return dry_friction(dataclasses.replace(textbook.pendulum(1), gravity=jnp.zeros(3)), 1.0)


@functools.partial(once, static_argnums=(3, 4))
def slide(chain, speeds, torques, dt, method):
    """A second from q = 0 at some speeds, under some torques: the last hundredth of it."""
    steps = round(1 / dt)

    def one(speed, torque):
        policy = lambda t, q, qd: torque
        return jaxdyn.rollout(chain, jnp.zeros(1), speed, policy, dt, steps, method)

    q, qd = jax.vmap(one)(speeds, torques)
    return q[:, -steps // 100 :, 0], qd[:, -steps // 100 :, 0]


# slides to rest; breaks away; is held
SPEEDS, TORQUES = jnp.array([[1.0], [0.0], [0.0]]), jnp.array([[0.0], [1.1], [0.9]])


@pytest.mark.ci
def test_stiff_friction_stops_holds_and_lets_go_at_a_millisecond():
    """The width asks explicit schemes for steps of 3e-5 s; stopping converges at first order whatever the width."""
    errors = []
    for dt in (1e-3, 2.5e-4):
        q, qd = map(np.asarray, slide(level_link(), SPEEDS, TORQUES, dt, "implicit_damping"))
        assert np.abs(qd[0]).max() < 1e-15  # at rest, and stays
        np.testing.assert_allclose(qd[2], 1e-4 * np.arctanh(0.9), rtol=1e-9)  # creeps as tanh has it
        np.testing.assert_allclose(qd[1, -1], 0.1 / INERTIA, rtol=5e-3)
        errors.append(abs(q[0, -1] - INERTIA / 2))  # v^2 I / (2 fc)
    assert errors[0] < 1e-3 and 3.0 < errors[0] / errors[1] < 5.0


@pytest.mark.parametrize("method", [EXPLICIT[0], pytest.param(EXPLICIT[1], marks=pytest.mark.nightly)])
def test_explicit_schemes_chatter_under_stiff_friction(method):
    """They jump by as much as dt fc / I: never at rest, never held."""
    _, qd = map(np.asarray, slide(level_link(), SPEEDS, TORQUES, 1e-3, method))
    for k in (0, 2):
        assert np.ptp(qd[k]) > 0.4 * 1e-3 / INERTIA


@pytest.mark.nightly
def test_an_arm_comes_to_rest_under_stiff_friction():
    """Seven joints, gravity compensated: at rest, where steps a quarter as long end too; explicit steps never rest."""
    arm = dry_friction(jaxdyn.robots.panda(), 2.0)
    q = jnp.array([0.5, 0.3, -0.4, -1.5, 0.2, 1.8, 0.3])
    policy = lambda t, q, qd: jaxdyn.gravity_force(arm, q)
    ends = {}
    for method, dt in (("implicit_damping", 1e-3), ("implicit_damping", 2.5e-4), ("semi_implicit_euler", 1e-3)):
        steps = round(2 / dt)
        roll = jax.jit(
            lambda q, dt=dt, steps=steps, method=method: jaxdyn.rollout(
                arm, q, jnp.ones(7), policy, dt, steps, method, every=steps // 2000
            )
        )
        positions, velocities = roll(q)
        ends[method, dt] = np.asarray(positions[-1]), np.abs(velocities[-200:]).max()
    assert ends["implicit_damping", 1e-3][1] < 1e-15 < 0.1 < ends["semi_implicit_euler", 1e-3][1]
    assert np.abs(ends["implicit_damping", 1e-3][0] - ends["implicit_damping", 2.5e-4][0]).max() < 2e-3


@pytest.mark.ci
@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.nightly), np.float64])
def test_derivatives_of_an_implicit_step_equal_differences(dtype):
    """Forward and reverse are the same and those of differences, also at rest; the type stays."""
    chain = jax.tree.map(lambda x: x.astype(dtype), dry_friction(textbook.pendulum(1), 0.5, 0.05))

    @once
    def both(v):
        f = lambda v, tau: implicit(chain, v, tau)
        return f(v, v), jax.jacfwd(f, (0, 1))(v, v), jax.jacrev(f, (0, 1))(v, v), f(v + h, v), f(v - h, v)

    def implicit(chain, v, tau):
        return jnp.concatenate(jaxdyn.step(chain, 0.3 + 0 * v, v, 0 * v + 0.1 * tau, 1e-2, method="implicit_damping"))

    h = np.asarray(1e-2 if dtype == np.float32 else 1e-5, dtype)
    for speed in (0.0, 0.02, 2.0):
        value, forward, reverse, above, below = both(jnp.asarray([speed], dtype))
        assert value.dtype == dtype and np.all(np.isfinite(value))
        for a, b in zip(forward, reverse, strict=True):
            np.testing.assert_allclose(a, b, rtol=100 * np.finfo(dtype).eps, atol=10 * np.finfo(dtype).eps)
        if speed and dtype == np.float64:
            np.testing.assert_allclose((above - below) / (2 * h), forward[0][:, 0], rtol=1e-6)


# thinning and checkpoints


@functools.partial(once, static_argnums=(2, 3))
def thinned(chain, controls, every, checkpoint):
    wrenches = jnp.linspace(-1, 1, controls.shape[0] * 6).reshape(-1, 1, 6)
    f = lambda u: jaxdyn.rollout(
        chain, jnp.array([0.4]), jnp.array([0.1]), u, 0.05, every=every, checkpoint=checkpoint,
        external_wrenches=wrenches,
    )  # fmt: skip
    return f(controls), jax.grad(lambda u: sum((x[-1] ** 2).sum() for x in f(u)))(controls)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("every", "checkpoint"),
    [(7, 2), *(pytest.param(*x, marks=pytest.mark.nightly) for x in ((14, 1), (1, 3), (1, 2), (2, None)))],
)
def test_thinned_and_checkpointed_rollouts_are_the_plain_one(every, checkpoint):
    """States and derivatives; 14 steps do not fill levels of 3 or 4 turns."""
    chain = textbook.pendulum(1, damping=0.3)
    controls = jnp.asarray(np.random.default_rng(3).normal(size=(14, 1)))
    (q, qd), gradient = thinned(chain, controls, 1, None)
    (few_q, few_qd), same = thinned(chain, controls, every, checkpoint)
    assert few_q.shape == (14 // every + 1, 1)
    assert relative(few_q, q[::every]) < 1e-14 and relative(few_qd, qd[::every]) < 1e-14
    assert relative(same, gradient) < 1e-12


def test_levels_of_checkpoints_hold_all_steps():
    for length in (*range(1, 60), 997, 1000, 4096, 123457):
        for levels in (1, 2, 3, 4):
            turns = max(2, int(np.ceil(length ** (1 / levels) - 1e-9)))
            sizes = level_sizes(length, turns)
            assert length <= np.prod(sizes) <= 1.5 * length + 2 and max(sizes) <= 1.7 * turns, sizes
    assert level_sizes(1000, 32) == (25, 40) and level_sizes(1000, 10) == (10, 10, 10)


def memory_of_gradient(steps, checkpoint):
    chain = textbook.pendulum(1)

    def end(gain):
        policy = lambda t, q, qd: -gain * qd
        return jaxdyn.rollout(
            chain, jnp.array([0.4]), jnp.zeros(1), policy, 1e-3, steps, every=steps, checkpoint=checkpoint
        )[0][-1, 0]

    return once(jax.grad(end)).lower(jnp.asarray(0.3)).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.nightly
def test_memory_of_a_checkpointed_gradient_grows_slower_than_the_horizon():
    assert memory_of_gradient(1000, 2) <= 3 * memory_of_gradient(100, 2)


@pytest.mark.nightly
def test_levels_of_checkpoints_reduce_the_memory_of_gradients():
    """10000 steps: everything stored, states alone, states of two levels, of three."""
    levels = (None, 1, 2, 3)
    least = [memory_of_gradient(10, checkpoint) for checkpoint in levels]  # what does not hang on the horizon
    sizes = [memory_of_gradient(10000, checkpoint) - x for checkpoint, x in zip(levels, least, strict=True)]
    assert sizes[0] > 4 * sizes[1] > 50 * sizes[2] and sizes[3] < 1.2 * sizes[2], (sizes, least)


@pytest.mark.ci
def test_memory_of_a_thinned_rollout_does_not_grow_with_the_horizon():
    chain = textbook.pendulum(1)
    policy = lambda t, q, qd: -qd
    sizes = []
    for steps in (100, 1000000):
        roll = once(lambda q, steps=steps: jaxdyn.rollout(chain, q, q, policy, 1e-3, steps, every=steps))
        memory = roll.lower(jnp.ones(1)).compile().memory_analysis()
        sizes.append(memory.temp_size_in_bytes + memory.output_size_in_bytes)
    assert sizes[1] == sizes[0]


@pytest.mark.ci
def test_a_hundred_thousand_steps_keep_their_energy():
    """One call, 100 s of a pendulum, eleven states of it."""
    chain = textbook.pendulum(1)
    start = jnp.array([1.0])
    rest = lambda t, q, qd: jnp.zeros(1)
    roll = jax.jit(lambda q: jaxdyn.rollout(chain, q, 0 * q, rest, 1e-3, 100_000, "rk4", every=10_000))
    positions, velocities = roll(start)
    assert positions.shape == (11, 1)
    energy = np.asarray(once(jax.vmap(lambda q, v: jaxdyn.total_energy(chain, q, v)))(positions, velocities))
    assert np.abs(energy - energy[0]).max() < 1e-9 and np.abs(velocities).max() > 0.1


@pytest.mark.nightly
def test_constrained_rollouts_take_the_same_options():
    """A closed loop with dry friction: comes to rest by implicit damping; thinned and checkpointed it is the same."""
    chain, constraint = jaxdyn.mechanisms.linkages.four_bar()
    chain = dry_friction(chain, 0.5)
    q = jaxdyn.mechanisms.project_configuration(
        chain, constraint, 0.3 + jaxdyn.neutral_configuration(chain)
    ).configuration

    def roll(q, **options):
        still = lambda t, q, qd: jnp.zeros(chain.nv)
        return jaxdyn.mechanisms.constrained_rollout(
            chain, constraint, q, jnp.zeros(chain.nv), still, 2e-3, 200, "implicit_damping", **options
        )

    plain, thin = jax.jit(roll)(q), jax.jit(functools.partial(roll, every=20, checkpoint=2))(q)
    assert relative(thin[0], plain[0][::20]) < 1e-12
    assert np.all(np.isfinite(plain[0]))
    residual = jax.jit(jax.vmap(lambda q: jaxdyn.mechanisms.constraint_residual(chain, constraint, q)))(thin[0])
    assert np.abs(residual).max() < 1e-9


def test_rollouts_refuse_wrong_intervals_and_levels():
    chain, zero = textbook.pendulum(1), jnp.zeros(1)
    roll = functools.partial(jaxdyn.rollout, chain, zero, zero, jnp.zeros((6, 1)), 0.01)
    with pytest.raises(ModelError, match="every=4 does not divide 6 steps"):
        roll(every=4)
    with pytest.raises(ModelError, match="every=0 does not"):
        roll(every=0)
    with pytest.raises(ModelError, match="checkpoint=0; the number of checkpoint levels"):
        roll(checkpoint=0)


# adaptive steps


def times_and_torques(nv):
    return jnp.linspace(0, 0.5, 6), jnp.asarray(np.random.default_rng(5).normal(size=(5, nv)))


@pytest.mark.ci
def test_adaptive_steps_end_where_small_ones_do():
    """Two links with friction under torques that jump, against rk4."""
    pytest.importorskip("diffrax")
    chain, q = textbook.pendulum(2, damping=0.2), jnp.array([0.5, -0.3])
    times, torques = times_and_torques(2)
    found = once(lambda q: jaxdyn.adaptive_rollout(chain, q, jnp.zeros(2), torques, times, 1e-9, 1e-9))(q)
    each = jnp.repeat(torques, 20, 0)
    fine = once(lambda q: jaxdyn.rollout(chain, q, jnp.zeros(2), each, 5e-3, method="rk4", every=20))(q)
    assert found.successful and 10 < found.steps < 400
    assert np.abs(found.positions - fine[0]).max() < 1e-6 and np.abs(found.velocities - fine[1]).max() < 1e-5
    stopped = once(lambda q: jaxdyn.adaptive_rollout(chain, q, jnp.zeros(2), torques, times, 1e-9, 1e-9, max_steps=7))(
        q
    )
    assert not stopped.successful and not np.isfinite(stopped.positions[-1]).all() and stopped.steps == 7


def free_body():
    """One body, free, with three different moments of inertia."""
    body = [2.0, 0.1, 0.0, 0.2, 0.5, 0.0, 1.0, 0.0, 0.0, 1.4]
    return jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (6, 1, 1)),
        translation=np.zeros((6, 3)),
        screw=np.eye(6),
        inertia=[*np.zeros((5, 10)), body],
        topology=Topology.serial(6, compound_joints=[(0, "free")]),
    )


def adaptive_and_fine(chain, q, qd, tau, steps):
    times = jnp.linspace(0, 0.5, 6)
    policy = lambda t, q, qd: tau
    found = once(lambda q: jaxdyn.adaptive_rollout(chain, q, qd, policy, times, 1e-10, 1e-10))(q)
    fine = once(lambda q: jaxdyn.rollout(chain, q, qd, policy, 0.5 / steps, steps, "rk4", every=steps // 5))(q)
    assert found.successful
    return found, fine


@pytest.mark.nightly
def test_adaptive_steps_keep_quaternions_and_momentum():
    """A body that tumbles and falls: as rk4 on the manifold; quaternions of unit length, momentum kept."""
    pytest.importorskip("diffrax")
    chain = free_body()
    q, qd, _ = mechanism_state(chain, 8)
    found, fine = adaptive_and_fine(chain, q, 3 * qd, jnp.zeros(6), 200)
    assert np.abs(found.positions - fine[0]).max() < 1e-6 and np.abs(found.velocities - fine[1]).max() < 1e-6
    np.testing.assert_allclose(np.linalg.norm(found.positions[:, 3:], axis=1), 1, rtol=1e-14)


@pytest.mark.nightly
def test_adaptive_steps_work_with_couplings_and_motors():
    """Quaternions, a coupling and motors at once."""
    pytest.importorskip("diffrax")
    chain = random_mechanism(43)
    q, qd, _ = mechanism_state(chain, 43)
    found, fine = adaptive_and_fine(chain, q, qd, jnp.zeros(chain.nv), 500)
    assert relative(found.positions, fine[0]) < 1e-5 and relative(found.velocities, fine[1]) < 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize("robot", ["pendulum", "free"])
def test_derivatives_of_adaptive_steps_equal_differences(robot):
    """Reverse, forward and differences, with respect to a policy's gain."""
    diffrax = pytest.importorskip("diffrax")
    chain = textbook.pendulum(1, damping=0.2) if robot == "pendulum" else free_body()
    q, qd, _ = mechanism_state(chain, 8)
    times = jnp.linspace(0, 0.4, 3)

    def end(gain, **options):
        policy = lambda t, x, xd: -gain * xd
        out = jaxdyn.adaptive_rollout(chain, q, qd, policy, times, 1e-11, 1e-11, **options)
        return (out.positions[-1] ** 2).sum() + out.velocities[1].sum()

    gain, h = jnp.asarray(1.5), 1e-4
    reverse = once(jax.grad(lambda g: end(g)))(gain)
    forward = once(jax.jacfwd(lambda g: end(g, adjoint=diffrax.ForwardMode())))(gain)
    values = once(jax.vmap(lambda g: end(g)))(gain + jnp.array([h, -h]))
    assert abs(reverse - forward) < 1e-10 * abs(forward)
    assert abs((values[0] - values[1]) / (2 * h) - forward) < 1e-6 * abs(forward)


@pytest.mark.nightly
def test_implicit_adaptive_steps_go_through_stiff_friction():
    diffrax = pytest.importorskip("diffrax")
    chain, times = level_link(), jnp.array([0.0, 1.0])
    still = lambda t, q, qd: jnp.zeros(1)
    roll = jax.jit(
        lambda qd: jaxdyn.adaptive_rollout(chain, jnp.zeros(1), qd, still, times, 1e-6, 1e-9, solver=diffrax.Kvaerno5())
    )
    found = roll(jnp.ones(1))
    assert found.successful and found.steps < 500
    assert abs(float(found.positions[-1, 0]) - INERTIA / 2) < 1e-4


def test_adaptive_rollouts_refuse_wrong_times_and_torques(monkeypatch):
    pytest.importorskip("diffrax")
    chain, zero = textbook.pendulum(1), jnp.zeros(1)
    with pytest.raises(ModelError, match="3 rows of torques are given for 4 intervals"):
        jaxdyn.adaptive_rollout(chain, zero, zero, jnp.zeros((3, 1)), jnp.arange(5.0))
    with pytest.raises(ModelError, match="needs at least two times"):
        jaxdyn.adaptive_rollout(chain, zero, zero, jnp.zeros((0, 1)), jnp.zeros(1))
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r'pip install "jaxdyn\[adaptive\]"'):
        jaxdyn.adaptive_rollout(chain, zero, zero, jnp.zeros((4, 1)), jnp.arange(5.0))


# fleets


@pytest.mark.nightly
def test_robots_of_a_fleet_have_parameters_of_their_own():
    """vmap over a chain whose leaves have one more axis: each robot moves as it does alone."""
    nominal = textbook.pendulum(2, damping=0.1)
    scales, start = jnp.array([0.8, 1.0, 1.3]), jnp.array([0.5, -0.2])
    still = lambda t, q, qd: jnp.zeros(2)

    def lighter(scale):
        return dataclasses.replace(nominal, inertia=scale * nominal.inertia)

    def roll(chain):
        return jaxdyn.rollout(chain, start, jnp.zeros(2), still, 1e-2, 20, "implicit_damping", every=20)[0]

    one = once(roll)
    alone = np.array([one(lighter(scale)) for scale in scales])
    assert np.abs(alone[0, -1] - alone[2, -1]).max() > 1e-6
    assert relative(once(jax.vmap(roll))(jax.vmap(lighter)(scales)), alone) < 1e-12


@pytest.mark.nightly
def test_a_fleet_whose_robots_differ_in_some_leaves():
    nominal, start = textbook.pendulum(2, damping=0.1), jnp.array([0.5, -0.2])

    def roll(scale):
        robot = dataclasses.replace(nominal, inertia=scale * nominal.inertia)
        return jaxdyn.rollout(robot, start, jnp.zeros(2), lambda t, q, qd: 0 * q, 1e-2, 20, every=20)[0]

    scales = jnp.array([0.8, 1.0, 1.3])
    alone = np.array([jax.jit(roll)(scale) for scale in scales])
    assert relative(jax.jit(jax.vmap(roll))(scales), alone) < 1e-12


@pytest.mark.ci
def test_the_memory_of_donated_states_is_reused():
    chain = textbook.pendulum(1)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def ahead(q, qd):
        roll = lambda q, qd: jaxdyn.rollout(chain, q, qd, lambda t, q, qd: -qd, 1e-3, 10, every=10)
        positions, velocities = jax.vmap(roll)(q, qd)
        return positions[:, -1], velocities[:, -1]

    q, qd = jnp.ones((8, 1)), jnp.zeros((8, 1))
    new_q, new_qd = ahead(q, qd)
    assert q.is_deleted() and qd.is_deleted()
    assert new_q.shape == new_qd.shape == (8, 1)
