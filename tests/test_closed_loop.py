"""The simulated closed loop and the estimators that use it, against other integrators, differences and the truth."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxdyn import (
    NOISE_LEVELS,
    ClosedLoop,
    Columns,
    ComputedTorque,
    IdentificationError,
    ModelError,
    NoiseLevel,
    ProportionalDerivative,
    base_parameters,
    closed_loop_log,
    coupled_drive,
    drive_gains,
    estimate_cloe,
    estimate_didim,
    estimate_iv,
    estimate_ols,
    estimate_wls,
    estimation_problem,
    following,
    forward_dynamics,
    from_dh,
    passive_force,
    perturbed_chains,
    preprocess,
    prior_parameters,
    random_excitation,
    simulate_closed_loop,
    tracking,
    tx40_like,
)
from jaxdyn.identification.completion import with_parameters
from jaxdyn.identification.parametric import model_acceleration, model_torque, parameters_of
from jaxdyn.model.build import check_inertia
from regression import dense, known_arm

SMOOTH = Columns(("armature", "viscous"))


def planar_arm(**leaves):
    """Two links in a vertical plane, with viscous friction and a rotor."""
    link = [3.0, 0.6, 0, 0, 0.03, 0, 0.15, 0, 0, 0.15]
    given = {"armature": [0.0, 0.05], "viscous_friction": [1.0, 0.6], "velocity_limit": [3.0, 3.0]}
    given |= {"position_limits": [(-2.0, 2.0)] * 2}
    table = {"a": [0, 0.5], "alpha": [np.pi / 2, 0], "d": [0, 0], "theta": [0, 0], "convention": "modified"}
    return from_dh(**table, inertia=[link, link], **{**given, **leaves})


@pytest.mark.nightly
def test_sensitivities_of_one_state_are_those_of_differences():
    arm = known_arm()
    columns = Columns(("viscous", "armature"), (coupled_drive(2, 3, velocity=0.1),))
    p = np.concatenate([prior_parameters(arm, columns)[:-3], [0.02, 0.1, 0.2]])
    rng = np.random.default_rng(0)
    q, qd, qdd = rng.normal(size=(3, 3))
    directions = [jnp.asarray(rng.normal(size=x.shape)) for x in (p, q, qd, qdd)]

    @jax.jit
    def both(p, q, qd, qdd, directions):
        tau, by_torque = jax.jvp(lambda *x: model_torque(columns, arm, *x), (p, q, qd, qdd), tuple(directions))
        back, by_motion = jax.jvp(
            lambda *x: model_acceleration(columns, arm, *x), (p, q, qd, tau), (*directions[:3], by_torque)
        )
        return tau, by_torque, back, by_motion

    point = tuple(map(jnp.asarray, (p, q, qd, qdd)))
    tau, by_torque, back, by_motion = both(*point, directions)
    coulomb = np.asarray(arm.coulomb_friction) * np.tanh(qd / np.asarray(arm.coulomb_velocity))
    everything = dense(arm, q[None], qd[None], qdd[None])[0]
    rigid = everything[:, :30] @ p[:30] + p[30:36:2] * qd + p[31:36:2] * qdd
    extra = np.asarray(columns.extra[0].matrix(arm, *point[1:])) @ p[-3:]
    np.testing.assert_allclose(tau, rigid + coulomb + np.asarray(arm.torque_offset) + extra, rtol=1e-10)
    np.testing.assert_allclose(back, qdd, rtol=1e-8, atol=1e-9)
    step = 1e-6
    moved = [both(*(x + s * step * d for x, d in zip(point, directions, strict=True)), directions)[0] for s in (1, -1)]
    np.testing.assert_allclose(by_torque, (moved[0] - moved[1]) / (2 * step), rtol=1e-6, atol=1e-6)
    # along torques that change as those of the motion do, the motion changes as it was told to
    np.testing.assert_allclose(by_motion, directions[3], rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(parameters_of(arm, columns)[:-3], prior_parameters(arm, columns)[:-3])


def test_starts_of_the_benchmark_are_possible_robots():
    arm = tx40_like()
    assert arm.n == 6
    starts = perturbed_chains(arm, 3, seed=1)
    for chain in (arm, *starts):
        for name, pi in zip(chain.link_names, np.asarray(chain.inertia), strict=True):
            check_inertia(name, pi)
    ratio = np.stack([np.asarray(c.viscous_friction) / np.asarray(arm.viscous_friction) for c in starts])
    assert 0.05 < np.std(ratio) < 0.3 and np.abs(ratio - 1).min() > 0
    again = perturbed_chains(arm, 3, seed=1)[2]
    np.testing.assert_array_equal(again.inertia, starts[2].inertia)
    point_mass = dataclasses.replace(arm, inertia=arm.inertia.at[0, 4:].set(0.0))
    with pytest.raises(ModelError, match="no possible body was found within 15 % of link1"):
        perturbed_chains(point_mass, 1)
    assert set(NOISE_LEVELS) >= {"standard", "high_position"}


def test_loops_refuse_what_they_cannot_do():
    arm = planar_arm()

    def hold(t):
        still = jnp.zeros((len(t), 2))
        return still, still, still

    loop = following(hold, ComputedTorque(jnp.asarray(20.0), jnp.asarray(1.0)), 0.1, 1e-3, every=10)
    assert loop.rate == pytest.approx(100) and len(loop.q) == 101
    np.testing.assert_array_equal(loop.rows(np.array([0.0, 0.05, 0.1])), [0, 5, 10])
    for t in ([0.005, 0.02], [0.09, 0.11]):
        with pytest.raises(IdentificationError, match="are not among the closed loop's"):
            loop.rows(np.array(t))
    damped = dataclasses.replace(loop, method="implicit_damping")
    with pytest.raises(IdentificationError, match="simulated explicitly"):
        simulate_closed_loop(damped, arm)


@pytest.fixture(scope="module")
def planar():
    """An arm, its base parameters, and its loop: 6 s at 500 Hz."""
    arm = planar_arm()
    base = base_parameters(arm, SMOOTH)
    motion = random_excitation(arm, 6.0, 5, seed=1, usage=0.5)
    return arm, base, following(motion, drive_gains(arm, 40.0), 6.0, 2e-3, every=2)


@pytest.mark.ci
def test_the_loop_moves_as_another_integrator_says(planar):
    arm, _, loop = planar
    short = dataclasses.replace(loop, **{k: getattr(loop, k)[:101] for k in ("q", "qd", "qdd")}, every=1)
    motion = jax.jit(simulate_closed_loop)(short, arm)
    rate = jax.jit(lambda x, tau: forward_dynamics(arm, x[:2], x[2:], tau - passive_force(arm, x[:2], x[2:])))
    state, law = np.concatenate([np.asarray(x) for x in short.start]), short.law
    for k in range(100):
        np.testing.assert_allclose(np.concatenate([motion.q[k], motion.qd[k]]), state, rtol=1e-6, atol=1e-8)
        tau = law.kp * (short.q[k] - state[:2]) + law.kd * (short.qd[k] - state[2:])
        np.testing.assert_allclose(motion.tau[k], tau, rtol=1e-5, atol=1e-6)
        right = lambda t, x, tau=tau: np.concatenate([x[2:], np.asarray(rate(jnp.asarray(x), tau))])
        state = solve_ivp(right, (0, short.dt), state, rtol=1e-10, atol=1e-12).y[:, -1]
    nominal = ProportionalDerivative(
        law.kp, law.kd, arm
    )  # with the true model fed forward only rounding is left to follow
    exact = jax.jit(simulate_closed_loop)(dataclasses.replace(loop, law=nominal), arm)
    assert np.abs(np.asarray(exact.q) - np.asarray(loop.q)[::2]).max() < 2e-3


@pytest.mark.ci
def test_estimators_that_simulate_recover_the_truth_and_say_how_well(planar):
    arm, base, loop = planar
    truth = base.matrix @ prior_parameters(arm, SMOOTH)
    quiet = preprocess(closed_loop_log(arm, loop, NoiseLevel(0.0, 0.0)), position_cutoff=50.0, stride=1)
    noisy = preprocess(closed_loop_log(arm, loop, NoiseLevel(2e-5, 0.1), seed=4), position_cutoff=50.0, stride=1)
    for k, start in enumerate(perturbed_chains(arm, 3, seed=2)):
        for estimator in (estimate_iv, estimate_didim, estimate_cloe):
            if k == 0:
                exact = estimator(estimation_problem(start, quiet, SMOOTH, base=base, loops=loop), tolerance=1e-8)
                # a held torque lags half a period behind the accelerations of measured positions; a simulated one does not
                assert np.abs(exact.values - truth).max() < (0.03 if exact.method == "IV" else 1e-8), exact.method
            found = estimator(estimation_problem(start, noisy, SMOOTH, base=base, loops=loop))
            z = (found.values - truth) / found.standard_deviations
            assert found.converged and np.abs(z).max() < 5, (found.method, z)
            assert found.simulations >= found.iterations and np.abs(found.values - truth).max() < 0.05


@pytest.mark.ci
def test_instruments_take_away_the_bias_that_noisy_velocities_give_least_squares(planar):
    """Noise of 3e-4 rad at the encoders, hardly filtered: 20 logs."""
    arm, base, loop = planar
    found = {"OLS": [], "IV": []}

    def problem_of(noise, seed):
        s = preprocess(closed_loop_log(arm, loop, noise, seed=seed), position_cutoff=40.0, stride=1)
        return estimation_problem(arm, s, SMOOTH, base=base, loops=loop)

    truth = estimate_iv(problem_of(NoiseLevel(0.0, 0.0), 0)).values  # but for the lag of a held torque, half a period
    assert np.abs(truth - base.matrix @ prior_parameters(arm, SMOOTH)).max() < 0.03
    for seed in range(20):
        problem = problem_of(NoiseLevel(3e-4, 0.05), seed)
        found["OLS"].append(estimate_ols(problem).values)
        found["IV"].append(estimate_iv(problem, tolerance=1e-2).values)
    bias = {k: (np.mean(v, 0) - truth) / (np.std(v, 0) / np.sqrt(20)) for k, v in found.items()}
    size = {k: np.abs(np.mean(v, 0) - truth).max() for k, v in found.items()}
    assert np.sqrt((bias["IV"] ** 2).mean()) < 4 < 50 < np.sqrt((bias["OLS"] ** 2).mean()), bias
    assert size["IV"] < 0.01 < 0.9 < size["OLS"]


@pytest.mark.nightly
def test_a_log_without_its_controller_is_tracked(planar):
    arm, base, loop = planar
    truth = base.matrix @ prior_parameters(arm, SMOOTH)
    s = preprocess(closed_loop_log(arm, loop, NoiseLevel(1e-5, 0.05)), position_cutoff=20.0, stride=2)
    problem = estimation_problem(arm, s, SMOOTH, base=base, loops=tracking(s, period=8e-3))
    assert isinstance(problem.loops[0], ClosedLoop) and problem.loops[0].every == 1
    for estimator in (estimate_wls, estimate_didim, estimate_iv):
        found = estimator(problem)
        assert np.abs(found.values - truth).max() < (0.1 if found.method == "DIDIM" else 0.03), found.method
    with pytest.raises(IdentificationError, match=r"does not tell|do not excite"):
        estimate_cloe(problem)  # the motion follows its reference whatever the parameters are
    broken = dataclasses.replace(s, segments=((0, 100), (100, len(s))))
    with pytest.raises(IdentificationError, match="in 2 pieces cannot be simulated"):
        tracking(broken)


@pytest.mark.nightly
def test_with_parameters_and_without_the_motion_is_one(planar):
    arm, _, loop = planar
    p = prior_parameters(arm, SMOOTH)
    own = jax.jit(simulate_closed_loop)(loop, arm)
    other = dataclasses.replace(arm, inertia=arm.inertia * 2)
    given = jax.jit(lambda p: simulate_closed_loop(loop, other, SMOOTH, p))(jnp.asarray(p))
    for a, b in zip(own, given, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert np.array_equal(with_parameters(other, SMOOTH, p).inertia, arm.inertia)
