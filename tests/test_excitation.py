"""Excitation design: families of motions, limits, quality of a motion, and designs within limits that beat random ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import interpolate

from jaxdyn import (
    BSplines,
    Columns,
    FourierSeries,
    IdentificationError,
    ModelError,
    SplineTrajectory,
    base_parameters,
    compare_with_log,
    draw_trajectory,
    excitation_quality,
    friction_force,
    inverse_dynamics,
    limit_usage,
    load,
    motion_limits,
    optimal_excitation,
    random_excitation,
    read_log,
    sample_trajectory,
    variance_ratio,
    write_trajectory,
)
from jaxdyn.cli import main
from jaxdyn.identification import excitation_design
from jaxdyn.identification.excitation_basis import rest_basis
from jaxdyn.identification.excitation_compare import summary
from regression import dense, known_arm, states

FAMILIES = [FourierSeries(4.0, 5), BSplines(4.0, 9), BSplines(3.0, 8, 4)]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_matrices_and_trajectories_are_one_motion_at_rest_at_both_ends(family):
    rest = rest_basis(family)
    coefficients = (rest @ np.random.default_rng(0).normal(size=(rest.shape[1], 2))).T
    t = np.linspace(0, family.duration, 41)
    q, qd, qdd, qddd = family.matrices(t) @ coefficients.T
    trajectory = family.trajectory(coefficients)
    assert trajectory.duration == family.duration
    motion = jax.jit(lambda t: jax.jvp(trajectory, (t,), (jnp.ones_like(t),)))(jnp.asarray(t))
    (x, xd, xdd), (y, yd, ydd) = motion
    for ours, theirs in ((x, q), (xd, qd), (xdd, qdd), (y, qd), (yd, qdd), (ydd, qddd)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    np.testing.assert_allclose(np.stack([qd, qdd])[:, [0, -1]], 0, atol=1e-10 * np.abs(qdd).max())
    np.testing.assert_allclose(family.matrices(t)[:, :, :] @ family.constant, np.eye(4, 1) * np.ones(41), atol=1e-9)


def test_spline_trajectories_are_scipys():
    control = np.random.default_rng(1).normal(size=(2, 12))
    trajectory = SplineTrajectory(control, 2.0)
    knots = np.concatenate([np.zeros(5), np.linspace(0, 2, 8), np.full(5, 2.0)])
    peer = interpolate.BSpline(knots, control.T, 5)
    t = np.linspace(0, 2, 30)
    for order, ours in enumerate(trajectory(jnp.asarray(t))):
        np.testing.assert_allclose(ours, peer(t, order), rtol=1e-9, atol=1e-9)
    single = trajectory(jnp.asarray(t, jnp.float32))[0]
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, peer(t), atol=1e-4)


def test_families_of_bad_numbers():
    with pytest.raises(IdentificationError, match="at least 3 harmonics, not 2"):
        FourierSeries(10.0, 2)
    with pytest.raises(IdentificationError, match="duration of a motion is -1 s"):
        FourierSeries(-1.0, 5)
    with pytest.raises(IdentificationError, match="at least 4 intervals, not 3"):
        BSplines(10.0, 3)
    with pytest.raises(IdentificationError, match="jerk that jumps"):
        BSplines(10.0, 9, 3)


def test_limits_come_from_the_chain_unless_given():
    chain = dataclasses.replace(known_arm(), velocity_limit=jnp.array([1.0, 2.0, 3.0]))
    limits = motion_limits(chain, lower=[-1, -2, -3], acceleration=5.0)
    np.testing.assert_array_equal(limits.velocity, [1, 2, 3])
    np.testing.assert_array_equal(limits.acceleration, [5, 5, 5])
    np.testing.assert_array_equal(limits.lower, [-1, -2, -3])
    assert np.isinf(limits.jerk).all() and np.isinf(limits.upper).all()
    with pytest.raises(IdentificationError, match=r"velocity limit has shape \(2,\)"):
        motion_limits(chain, velocity=[1.0, 2.0])
    with pytest.raises(IdentificationError, match="torque limit holds NaN"):
        motion_limits(chain, torque=float("nan"))
    with pytest.raises(IdentificationError, match="joint2: the jerk limit is 0"):
        motion_limits(chain, jerk=[1, 0, 1])
    with pytest.raises(IdentificationError, match="joint1: the lower position limit 1 is not below the upper one 1"):
        motion_limits(chain, lower=1.0, upper=1.0)


@pytest.mark.ci
@pytest.mark.parametrize("torque_rate", [np.inf, 300.0])
def test_usage_of_limits_is_that_of_finite_differences(torque_rate):
    chain, motion = known_arm(), random_excitation(known_arm(), 4.0, 4, seed=1)
    limits = motion_limits(
        chain, lower=-2.0, upper=3.0, velocity=4.0, acceleration=9.0, jerk=50.0, torque=70.0, torque_rate=torque_rate
    )
    t = np.linspace(0, 4, 4001)
    used, least = limit_usage(chain, motion, limits, t, clearance=lambda q: 3.0 - q)
    q, qd, qdd = (np.asarray(x) for x in motion(jnp.asarray(t)))
    torque = jax.vmap(lambda *x: inverse_dynamics(chain, *x) + friction_force(chain, x[1]))
    tau = np.asarray(torque(*map(jnp.asarray, (q, qd, qdd))))
    slope = lambda x: np.gradient(x, t, axis=0)
    expected = {"position": (q - 0.5) / 2.5, "velocity": qd / 4, "acceleration": qdd / 9, "jerk": slope(qdd) / 50}
    expected |= {"torque": tau / 70, "torque_rate": slope(tau) / torque_rate}
    for name, values in expected.items():
        tolerance = 2e-2 if name == "torque_rate" else 1e-4  # Coulomb friction is steep
        np.testing.assert_allclose(used[name], np.abs(values).max(0), rtol=tolerance)
    np.testing.assert_allclose(least, (3.0 - q).min(), rtol=1e-12)


def test_quality_is_that_of_the_stacked_regressor():
    chain, columns = known_arm(), Columns()
    base = base_parameters(chain, columns)
    noise = np.array([1.0, 0.5, 2.0])
    q, qd, qdd = states(60)
    quality = excitation_quality(chain, q, qd, qdd, columns, base, noise)
    w = (dense(chain, q, qd, qdd) / noise[None, :, None])[:, :, base.kept].reshape(-1, base.size)
    np.testing.assert_allclose(quality.log_det, np.linalg.slogdet(w.T @ w / 60)[1], rtol=1e-8)
    np.testing.assert_allclose(quality.condition, np.linalg.cond(w), rtol=1e-8)
    np.testing.assert_allclose(quality.scaled_condition, np.linalg.cond(w / np.linalg.norm(w, axis=0)), rtol=1e-8)
    twice = dataclasses.replace(quality, log_det=quality.log_det + base.size * np.log(2))
    np.testing.assert_allclose(variance_ratio(twice, quality), 2)
    with pytest.raises(IdentificationError, match="base parameters; rate both on the same"):
        variance_ratio(quality, dataclasses.replace(quality, parameters=3))
    with pytest.raises(IdentificationError, match="15 rows of samples cannot determine"):
        excitation_quality(chain, q[:5], qd[:5], qdd[:5], columns, base)


def test_tables_are_logs(tmp_path):
    chain, motion = known_arm(), random_excitation(known_arm(), 2.0, 4, seed=1)
    samples = sample_trajectory(chain, motion, 100.0)
    assert len(samples.t) == 201 and samples.t[-1] == 2.0
    write_trajectory(tmp_path / "t.csv", samples)
    log = read_log(tmp_path / "t.csv", 3)
    np.testing.assert_allclose(log.q, samples.q, atol=1e-9)
    np.testing.assert_allclose(log.tau, samples.tau, rtol=1e-8, atol=1e-8)
    header = (tmp_path / "t.csv").read_text().splitlines()[0]
    assert header == "t,q1,q2,q3,qd1,qd2,qd3,qdd1,qdd2,qdd3,tau1,tau2,tau3"
    draw_trajectory(tmp_path / "t.png", chain, samples, motion_limits(chain, velocity=2.0))
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(IdentificationError, match="give a higher rate"):
        sample_trajectory(chain, motion, 0.1)
    with pytest.raises(ModelError, match="cannot be written"):
        write_trajectory(tmp_path / "none" / "t.csv", samples)


LIMITS = {"lower": -2.0, "upper": 2.0, "velocity": 2.0, "acceleration": 10.0, "torque": [60.0, 60.0, 12.0]}


def check(chain, design, usage, limits, clearance=None):
    """All limits hold at times that are not those of the design."""
    t = np.sort(np.random.default_rng(0).uniform(0, design.trajectory.duration, 3000))
    used, least = limit_usage(chain, design.trajectory, limits, t, clearance)
    for name, share in design.usage.items():
        assert share.max() <= usage * (1 + 1e-9), name
        assert used[name].max() <= usage + 2e-3, name
    assert design.clearance >= 0 and least > -1e-3
    for x in design.trajectory(jnp.array([0.0, design.trajectory.duration]))[1:]:
        np.testing.assert_allclose(x, 0, atol=1e-10)
    assert all(variance_ratio(design.quality, random) > 1.5 for random in design.random)


@pytest.mark.ci
def test_designs_hold_all_limits_and_beat_random_motions(monkeypatch):
    chain = known_arm()
    limits = motion_limits(chain, **LIMITS)
    settings = {"starts": 2, "rounds": 8, "limits": limits}
    calls = []
    design = optimal_excitation(chain, FourierSeries(4.0, 5), **settings, progress=lambda *x: calls.append(x))
    check(chain, design, 0.95, limits)
    assert design.rounds == 8 and calls[-1][1:] == (8, 8) and design.notes == ()
    assert design.usage["velocity"].min() > 0.9  # a good motion is a fast one
    text = summary(design, chain.joint_names)
    assert "best of 2 random motions" in text and "velocity" in text and "jerk" not in text

    again = optimal_excitation(chain, FourierSeries(4.0, 5), **settings)
    np.testing.assert_array_equal(again.trajectory.a, design.trajectory.a)

    # interrupted in the second round, what the first one found is what there is
    solve, rounds = excitation_design.advance, []

    def interrupted(*arguments):
        if rounds:
            raise KeyboardInterrupt
        rounds.append(1)
        return solve(*arguments)

    monkeypatch.setattr(excitation_design, "advance", interrupted)
    short = optimal_excitation(chain, FourierSeries(4.0, 5), **settings)
    assert short.rounds == 1 and "interrupted after 1 of 8 rounds" in short.notes[0]
    assert short.quality.log_det > max(random.log_det for random in short.random)
    assert max(share.max() for share in short.usage.values()) <= 0.95 * (1 + 1e-9)
    monkeypatch.undo()

    short = optimal_excitation(chain, FourierSeries(4.0, 5), **settings, time_limit=1e-9)
    assert "time limit after 0 of 8 rounds" in short.notes[0]

    weak = motion_limits(chain, **{**LIMITS, "torque": [1e-3, 60, 12]})
    with pytest.raises(
        IdentificationError, match=r"in the middle of the position ranges joint1 takes .* times its torque"
    ):
        optimal_excitation(chain, FourierSeries(4.0, 5), **{**settings, "limits": weak, "rounds": 1})


@pytest.mark.nightly
def test_splines_with_clearance_and_torque_rates():
    chain = known_arm()
    limits = motion_limits(chain, **LIMITS, torque_rate=[300.0, 300.0, 60.0], jerk=200.0)
    clearance = lambda q: jnp.stack([1.2 - q[0], 1.5 + q[1]])
    design = optimal_excitation(
        chain, BSplines(4.0, 10), limits=limits, clearance=clearance, starts=2, rounds=8, usage=0.9
    )
    check(chain, design, 0.9, limits, clearance)
    assert design.clearance < 0.1  # it goes where it may


def test_bad_settings_are_refused_before_any_work():
    chain = known_arm()
    with pytest.raises(IdentificationError, match=r"usage of the limits is 1.5"):
        optimal_excitation(chain, usage=1.5)
    with pytest.raises(IdentificationError, match="starts is 0"):
        optimal_excitation(chain, starts=0)
    with pytest.raises(IdentificationError, match=r"torque noise is .* one positive number for each of the 3 joints"):
        optimal_excitation(chain, torque_noise=[1.0, -1.0, 1.0])


PANDA = {
    "lower": [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973],
    "upper": [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973],
    "velocity": [2.175] * 4 + [2.61] * 3,
    "acceleration": [15, 7.5, 10, 12.5, 15, 20, 20],
    "jerk": [7500, 3750, 5000, 6250, 7500, 10000, 10000],
    "torque": [87] * 4 + [12] * 3,
}


@pytest.mark.nightly
def test_panda_beside_its_published_motion(shared_data):
    chain = load(shared_data / "panda" / "panda_phat.urdf")
    columns = Columns(("viscous", "coulomb", "offset"))
    limits = motion_limits(chain, **PANDA)
    design = optimal_excitation(
        chain, FourierSeries(21.0, 21), limits=limits, columns=columns, starts=1, rounds=8, condition_weight=0.5
    )
    assert max(share.max() for share in design.usage.values()) <= 0.95 * (1 + 1e-9)
    log = read_log(shared_data / "panda" / "exciting_1.csv", 7)
    own, published = compare_with_log(chain, design, log, columns)
    assert own.samples == published.samples and own.parameters == 64
    assert variance_ratio(own, published) > 5
    assert own.condition < published.condition and own.scaled_condition < published.scaled_condition / 2


@pytest.mark.ci
def test_command_line(tmp_path, capsys):
    model = tmp_path / "arm.urdf"
    link = '<link name="{}"><inertial><origin xyz="0.2 0 0.01"/><mass value="2"/>'
    link += '<inertia ixx="0.02" iyy="0.03" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    joint = '<joint name="j{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><origin xyz="0.4 0 0"/>'
    joint += '<axis xyz="0 1 0"/><limit lower="-2" upper="2" velocity="3" effort="{3}"/></joint>'
    parts = ['<link name="base"/>', link.format("a"), link.format("b"), joint.format(1, "base", "a", 60)]
    model.write_text(f"<robot name='arm'>{''.join(parts)}{joint.format(2, 'a', 'b', 30)}</robot>")
    out, picture = tmp_path / "out" / "traj.csv", tmp_path / "traj.svg"
    options = ["--out", str(out), "--picture", str(picture), "--duration", "4", "--rate", "100", "--starts", "2"]
    options += ["--rounds", "4", "--acceleration", "20", "--torque-noise", "1", "--seed", "1"]
    assert main(["excite", str(model), *options, "--compare", str(_recorded(tmp_path, model))]) == 0
    text = capsys.readouterr().out
    assert "median random motion" in text and "log " in text and "written:" in text
    log = read_log(out, 2)
    assert len(log.t) == 401 and np.abs(log.q).max() < 2 and np.abs(log.qd).max() < 3 and picture.read_text()
    assert main(["excite", str(model), *options, "--lower", "3"]) == 1
    assert "the lower position limit 3 is not below" in capsys.readouterr().err
    assert main(["excite", str(model), "--usage", "2"]) == 2


def _recorded(folder, model):
    chain = load(model)
    path = folder / "log.csv"
    write_trajectory(path, sample_trajectory(chain, random_excitation(chain, 6.0, 5, seed=3), 200.0))
    return path
