"""The verdict against that of engineers, case by case (`verdict_cases`), on simulated and on real logs."""

import dataclasses
import functools
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import IdentificationError, Log, friction_force, identify, inverse_dynamics, mass_matrix, read_log
from jaxdyn.identification import (
    Columns,
    Consistency,
    Filters,
    Terms,
    base_parameters,
    diagnose,
    diagnose_identification,
    diagnostics,
    motor_to_joint,
    random_excitation,
)
from jaxdyn.identification.consistency import no_constraints
from jaxdyn.identification.consistent import (
    ConsistentProblem,
    consistent_least_squares,
    consistent_within,
    equivalent_density,
    filled_share,
    link_bounds,
    unusual_links,
)
from jaxdyn.identification.factors import QRFactors
from jaxdyn.identification.prediction import MOVING
from jaxdyn.identification.terms import PARTS
from jaxdyn.identification.validation import play
from jaxdyn.io import check_log, load, loads
from jaxdyn.model import with_leaves, with_transmission
from jaxdyn.report import verdict
from jaxdyn.report.quality import floored, resimulated, simulated_against_coasting, torque_figures
from jaxdyn.report.verdicts import LIMITS
from verdict_cases import REAL, SIMULATED, Case

URDF = """<robot name="arm"><link name="base"/>
<link name="turret"><inertial><origin xyz="0 0 -0.1"/><mass value="6"/>
  <inertia ixx="0.05" ixy="0" ixz="0" iyy="0.05" iyz="0" izz="0.03"/></inertial></link>
<link name="upper"><inertial><origin xyz="0 0.02 0.18"/><mass value="5"/>
  <inertia ixx="0.08" ixy="0" ixz="0" iyy="0.08" iyz="0" izz="0.015"/></inertial></link>
<link name="fore"><inertial><origin xyz="0.01 0 0.15"/><mass value="3"/>
  <inertia ixx="0.04" ixy="0" ixz="0" iyy="0.04" iyz="0" izz="0.006"/></inertial></link>
<link name="tip"/>
<joint name="turn" type="revolute"><parent link="base"/><child link="turret"/><origin xyz="0 0 0.3"/><axis xyz="0 0 1"/>
  <limit lower="-2.5" upper="2.5" velocity="2.5" effort="150"/></joint>
<joint name="shoulder" type="revolute"><parent link="turret"/><child link="upper"/><axis xyz="{axis}"/>
  <limit lower="-2" upper="2" velocity="2.5" effort="150"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="fore"/><origin xyz="0 0 0.4"/><axis xyz="0 1 0"/>
  <limit lower="-2.4" upper="2.4" velocity="2.5" effort="80"/></joint>
<joint name="flange" type="fixed"><parent link="fore"/><child link="tip"/><origin xyz="0 0 0.35"/></joint>
</robot>"""
FRICTION = {
    "friction.viscous": [2.0, 2.0, 1.0],
    "friction.coulomb": [3.0, 3.0, 1.5],
    "friction.offset": [0.2, -0.3, 0.1],
    "armature": [0.3, 0.3, 0.15],
}
RATE = 100.0


@functools.cache
def truth():
    return with_leaves(loads(URDF.format(axis="0 1 0")), {k: jnp.asarray(v) for k, v in FRICTION.items()})


@jax.jit
def torques(chain, q, qd, qdd):
    return jax.vmap(lambda *x: inverse_dynamics(chain, *x) + friction_force(chain, x[1]))(q, qd, qdd)


def log(
    chain, seconds, seed, *, span=1.0, noise=0.2, delay=0.0, gains=(1, 1, 1), counterbalance=0.0, gravity=None
) -> Log:
    """A run of the arm, filtered by nobody: positions with encoders' noise, torques with white noise."""
    t = np.arange(round(seconds * RATE)) / RATE
    motion = random_excitation(truth(), 10.0, 5, seed)
    q = span * np.asarray(motion(jnp.asarray(t))[0])
    then = [span * np.asarray(x) for x in motion(jnp.asarray(t - delay))]
    acting = chain.gravity if gravity is None else jnp.asarray(gravity, chain.dtype)
    tau = np.array(torques(dataclasses.replace(chain, gravity=acting), *then))
    angle = then[0][:, 1] + 0.3  # a gas spring between the turret and the upper arm
    length = np.sqrt(0.3**2 + 0.25**2 - 2 * 0.3 * 0.25 * np.cos(angle))
    tau[:, 1] += counterbalance * np.sin(angle) * 0.3 * 0.25 / length / (1.3 - 2 * length)
    rng = np.random.default_rng(seed)
    q = q + 2e-5 * rng.normal(size=q.shape)
    return Log(t, q, None, tau * np.array(gains) + noise * rng.normal(size=tau.shape), source=f"run {seed}")


def simulated(make):
    """The identification that a case describes."""
    made = dict(make)
    inertials, axis, terms = made.pop("inertials", True), made.pop("axis", "0 1 0"), made.pop("terms", None)
    seconds, validate = made.pop("seconds", 20.0), made.pop("validate", None)
    load_mass, friction = made.pop("load", 0.0), made.pop("friction", 1.0)
    consistent, span = made.pop("consistent", Consistency()), made.pop("span", 1.0)
    model = loads(URDF.format(axis=axis))
    factors = jnp.asarray([1.15, 0.85, 1.2])[:, None]
    model = dataclasses.replace(model, inertia=model.inertia * factors * (1.0 if inertials else 0.0))
    later = truth()
    tip = jnp.asarray([0.0, 0.0, 0.35])
    point = load_mass * jnp.concatenate([jnp.ones(1), tip, jnp.asarray([0.35**2, 0, 0.35**2, 0, 0, 1e-3])])
    later = dataclasses.replace(later, inertia=later.inertia.at[2].add(point))
    leaves = {
        k: friction * jnp.asarray(v) for k, v in FRICTION.items() if k in ("friction.viscous", "friction.coulomb")
    }
    later = with_leaves(later, leaves)
    fitted = log(truth(), seconds, 1, span=span, **made)
    unseen = validate or log(later, 10.0, 3, **made)
    plain = Terms(choose=()) if terms is None else Terms(terms, choose=())
    return identify(model, fitted, unseen, consistent=consistent, terms=plain)


def levels(result):
    return tuple(use.level for use in verdict(result).uses)


def agrees(case: Case, found) -> bool:
    return all(
        level in said.split("|")
        for level, said in zip(found, (case.gravity, case.feed_forward, case.simulation), strict=True)
    )


def trusted_wrongly(case: Case, found) -> bool:
    """A use is called good that no engineer would call so."""
    return any(
        level == "good" and "good" not in said
        for level, said in zip(found, (case.gravity, case.feed_forward, case.simulation), strict=True)
    )


@pytest.mark.parametrize("name", [name for name, case in SIMULATED.items() if case.tier == "default"])
def test_the_verdict_is_an_engineers(name):
    found = levels(simulated(SIMULATED[name].make))
    assert agrees(SIMULATED[name], found), (found, SIMULATED[name])


@pytest.mark.parametrize("inertials", [True, False])
@pytest.mark.parametrize(
    ("gravity", "text"),
    [
        ((0, 0, 0), "contain no gravity"),
        ((0, 9.81, 0), r"--gravity -?0\.\d\d 9\.\d\d"),
        ((1.7, 0, -9.66), "--gravity 1."),
    ],
)
def test_gravity_that_is_missing_or_points_elsewhere_is_found(gravity, text, inertials):
    model = loads(URDF.format(axis="0 1 0"))
    model = dataclasses.replace(model, inertia=model.inertia * jnp.array([1.15, 0.85, 1.2])[:, None] * float(inertials))
    (found,) = diagnose(model, log(truth(), 15.0, 1, gravity=gravity))
    assert found.kind == "gravity" and re.search(text, found.text)
    right = dataclasses.replace(model, gravity=jnp.asarray(gravity, model.dtype))
    assert not [f for f in diagnose(right, log(truth(), 15.0, 1, gravity=gravity)) if f.kind == "gravity"]


def test_without_gravity_in_the_torques_no_gravity_compensation():
    model = loads(URDF.format(axis="0 1 0"))
    runs = [log(truth(), 15.0, seed, gravity=(0, 0, 0)) for seed in (1, 2, 3)]  # each repeats its motion of 10 s
    result = identify(model, runs[:2], runs[2])
    judged = verdict(result)
    assert [use.level for use in judged.uses] == ["poor", "fair", "poor"]
    assert "hese torques contain no gravity" in judged.uses[0].text
    assert verdict(result, findings=()).uses[0].level == "good"  # errors would not show it


@pytest.mark.parametrize(
    ("delay", "choose"),
    [
        ((0.11, 0.11, 0.11), ("delays",)),
        pytest.param((0.06, 0.06, 0.06), PARTS, marks=pytest.mark.nightly),
        pytest.param((0.15, 0.15, 0.15), PARTS, marks=pytest.mark.nightly),
    ],
)
def test_long_delays_are_removed_and_named(delay, choose):
    """Torques that are tens of milliseconds late are not taken for hysteresis, whose inertia is wrong by up to 78 %."""
    late = [log(truth(), 20.0, 1, delay=d, noise=0.05).tau[:, j] for j, d in enumerate(delay)]
    run = dataclasses.replace(log(truth(), 20.0, 1), tau=np.stack(late, axis=1))
    result = identify(loads(URDF.format(axis="0 1 0")), run, terms=Terms(choose=choose))
    np.testing.assert_allclose(result.delay, delay, atol=1.5e-3)
    inertia = lambda chain: np.diag(mass_matrix(chain, jnp.array([0.3, 0.5, -0.7], chain.dtype)))
    np.testing.assert_allclose(inertia(result.chain), inertia(truth()), rtol=0.03)
    (found,) = [f for f in diagnose_identification(result) if f.kind == "delay"]
    assert found.about == tuple(name for name, d in zip(result.rows, delay, strict=True) if abs(d) > 0.02)


@pytest.mark.parametrize("seconds", [0.0, 0.06, *(pytest.param(x, marks=pytest.mark.nightly) for x in (0.01, -0.05))])
def test_delays_that_were_not_looked_for_are_named(seconds):
    run = log(truth(), 20.0, 1, delay=seconds, noise=0.05)
    result = identify(loads(URDF.format(axis="0 1 0")), run, terms=Terms(choose=()))
    findings = [f for f in diagnose_identification(result) if f.kind == "delay"]
    if abs(seconds) < 0.02:
        assert not findings
        return
    (found,) = findings
    assert ("late" if seconds > 0 else "early") in found.text and "not removed" in found.text
    assert float(re.search(r"--delay (\S+?)[;.]? ", found.text).group(1)) == pytest.approx(seconds, abs=2e-3)
    assert {use.level for use in verdict(result, findings=findings).uses[1:]} <= {"fair", "poor"}


def test_the_same_data_twice_is_said():
    run = log(truth(), 8.0, 1)
    result = identify(
        loads(URDF.format(axis="0 1 0")), [run, dataclasses.replace(run, source="copy")], run, terms=Terms(choose=())
    )
    assert sum("contain the same data" in note for note in result.notes) == 2
    assert not result.is_validated and all(use.level != "good" for use in verdict(result).uses)


def test_reversed_signs_of_all_torques_are_found():
    run, model = log(truth(), 15.0, 1), loads(URDF.format(axis="0 1 0"))
    (found,) = diagnose(model, dataclasses.replace(run, tau=-run.tau))
    assert (found.kind, found.about) == ("sign", ("turn", "shoulder", "elbow")) and "all joints" in found.text


@pytest.mark.ci
@pytest.mark.parametrize(
    "name", ["ur10e", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("panda", "rokae", "ur10", "kr300"))]
)
def test_real_arms_stand_upright(shared_data, name):
    """Nothing is found in real logs; turned onto a wall, or with all signs reversed, that is named and nothing else."""
    result = real(shared_data, name)
    samples = [e.samples for e in result.fitted]
    found = lambda chain, runs: [(f.kind, len(f.about)) for f in diagnose(chain, runs) if f.kind in ("gravity", "sign")]
    assert found(result.prior, samples) == []
    assert found(result.prior, [dataclasses.replace(s, tau=-s.tau) for s in samples]) == [("sign", result.chain.nv)]
    if name != "kr300":  # half of the torque of its joint 2, a counterbalance's, fits no gravity
        wall = dataclasses.replace(result.prior, gravity=jnp.array([0.0, 9.81, 0.0]))
        assert found(wall, samples) == [("gravity", 0)]


@pytest.mark.parametrize(("span", "said"), [([0.002, 1, 0.002], "poor"), ([1, 1, 0.002], "fair")])
def test_a_joint_that_did_not_move_is_not_tested(span, said):
    """By the default terms: no use is relied on, and without motion of most joints none is good at all."""
    model = loads(URDF.format(axis="0 1 0"))
    judged = verdict(identify(model, log(truth(), 15.0, 1, span=np.array(span), noise=0.02)))
    assert judged.joints == tuple("untested" if x < 1 else "good" for x in span)
    assert all(use.level != "good" for use in judged.uses)
    assert judged.uses[1].level == said and "ot tested: " in judged.uses[1].text
    assert any("alidation does not" in check.text or "alidation says nothing" in check.text for check in judged.checks)


def test_an_uncertain_torque_that_matters_little_is_excused():
    """Position-dependent errors of a joint with little torque refer to a twentieth of the largest torque."""
    torque = np.array([100.0, 1.0, 0.0])
    np.testing.assert_allclose(floored(torque, truth()), [100, 5, 5])


def test_the_worst_run_decides_on_simulation():
    """Two good runs and one bad one are bad, and a joint at rest in a run is not compared with coasting there."""
    result = simulated({})
    (evaluation, run), *_ = resimulated(result.model, result.validation)
    bad = dataclasses.replace(run, rms=3 * run.coasting_rms)
    ratio = simulated_against_coasting(result.chain, [(evaluation, run), (evaluation, bad), (evaluation, run)])
    np.testing.assert_allclose(ratio, 3)
    samples = evaluation.samples
    still = dataclasses.replace(evaluation, samples=dataclasses.replace(samples, qd=samples.qd * [1, 0, 1]))
    assert np.isnan(simulated_against_coasting(result.chain, [(still, bad)])).tolist() == [False, True, False]


def test_errors_confined_to_low_speeds_are_not_averaged_away():
    """A tenth of the motion may err by twice the limit: 15 % of the torque there is tolerable, 30 % is not."""
    result = simulated({})
    (run,) = result.validation
    speed = np.abs(run.samples.qd[:, 1])
    slow = (speed > MOVING) & (speed < np.quantile(speed[speed > MOVING], 0.1))
    torque = np.sqrt(np.mean(run.samples.tau[:, 1] ** 2))
    for size, level in ((0.15, "good"), (0.3, "fair")):
        error = size * torque * slow * np.array([0, 1, 0])[:, None]
        stuck = dataclasses.replace(run, prediction=run.prediction + error.T)
        judged = verdict(dataclasses.replace(result, validation=(stuck,)))
        found = torque_figures(dataclasses.replace(result, validation=(stuck,)))
        assert found["torque"][1] < LIMITS["torque"].good and found["slow"][1] == pytest.approx(size, rel=0.1)
        assert judged.joints == ("good", level, "good") and judged.uses[1].level == level
    assert re.search(
        r"t speeds of [\d.]+ to [\d.]+ rad/s, the torque error is .*% of the torque \(shoulder\)",
        judged.uses[1].text,
    )


def test_play_is_found_and_forbids_reliance_on_simulation():
    """Positions that lead by half the play in the direction of the torque; neither noise nor elasticity is taken for it."""
    model, sound = loads(URDF.format(axis="0 1 0")), log(truth(), 20.0, 1)
    loose = [dataclasses.replace(run, q=run.q + 0.01 * np.sign(run.tau)) for run in (sound, log(truth(), 10.0, 3))]
    result = identify(model, *loose, terms=Terms(choose=()))
    np.testing.assert_allclose(result.play, 0.02, rtol=0.4)
    (found,) = [f for f in diagnose_identification(result) if f.kind == "play"]
    assert found.about == result.rows
    (simulation,) = [use for use in verdict(result).uses if use.use == "simulation"]
    assert simulation.level != "good"
    others = {
        "nothing": sound,
        "elastic": dataclasses.replace(sound, q=sound.q + sound.tau * np.array([4e-3, 3e-4, 2e-3])),
        "coarse": dataclasses.replace(sound, q=1e-3 * np.round(sound.q / 1e-3)),
        "short": dataclasses.replace(sound, t=sound.t[:100], q=sound.q[:100], tau=sound.tau[:100]),
    }
    for name, run in others.items():
        assert not play(truth(), [run], Filters(), 8.0).any(), name


UR10E_GAINS = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]


def real(folder, name):
    """A real log with its identification."""
    robot = name.split(",")[0].split(" ")[0]
    plain, behind_gears = Terms(choose=()), Terms(("viscous", "coulomb", "offset"), choose=())
    if robot in ("panda", "rokae"):
        file = "exciting_1" if robot == "panda" else "exciting"
        chain = load(folder / robot / f"{robot}_kinematics.urdf")
        without = name in ("panda", "rokae, without armature")
        log = check_log(read_log(folder / robot / f"{file}.csv", 7), chain)
        return identify(chain, log, terms=behind_gears if without else plain)
    if robot == "ur10":
        chain = load(folder / "ur10" / "ur10_kinematics.urdf")
        return identify(chain, check_log(read_log(folder / "ur10" / "exciting.csv", 6), chain), terms=plain)
    if robot == "kr300":
        chain = load(folder / "kr300" / "kr300_kinematics.urdf")
        a, b = (
            check_log(read_log(folder / "kr300" / f"{run}.csv", 6, rows=rows), chain)
            for run, rows in (("A", (125, 2370)), ("B", (133, 2330)))
        )
        return identify(chain, a, b, terms=plain)
    if robot == "tx40":
        ratios = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
        ratios[5, 4] = 32.0
        chain = with_transmission(load(folder / "tx40" / "tx40_kinematics.urdf"), matrix=ratios)
        motor = read_log(folder / "tx40" / "motor_log.csv", 6, rows=(500, 37500))
        offset = np.array([0.0, -np.pi / 2, np.pi / 2, 0.0, 0.0, 0.0])
        run = check_log(motor_to_joint(motor, np.linalg.inv(ratios), position_offset=offset), chain)
        return identify(chain, run, terms=plain)
    other = "kr300" if name.endswith("kr300's URDF") else "ur10e"
    chain = load(folder / other / f"{other}_kinematics.urdf")
    gains = np.array(UR10E_GAINS)
    if name == "ur10e, a sign":
        gains[1] *= -1
    if name == "ur10e, gains":
        gains[1] *= 2
    read = lambda run, **options: check_log(read_log(folder / "ur10e" / f"{run}.csv", 6, gains=gains, **options), chain)
    train = read("train_30sec_12harm", rows=(635, 3510))
    if name == "ur10e, loaded later":
        return identify(chain, train, read("loaded_15harm50sec", on_bad_rows="drop"), terms=plain)
    return identify(chain, train, read("validate_ptp_10_points", rows=(700, 4200)), terms=plain)


@pytest.mark.nightly
def test_the_verdict_agrees_with_engineers_on_the_whole_table(shared_data):
    """All but three cases agree in all three uses; of those three the verdict is stricter; nothing is called good that is not.

    The aim is 19 of 20. The TX40's joint 5 errs by 36 % of its torque, where its case asks for "good" by the total error; the
    inconsistent links' torque at rest is known to 29 %, where 25 % is the limit. The simulated logs repeat 10 s twice: without
    friction terms, what the model lacks repeats too, and the torque at rest is known to 37 % only.
    """
    found = {name: (case, levels(simulated(case.make))) for name, case in SIMULATED.items()}
    found |= {name: (case, levels(real(shared_data, name))) for name, case in REAL.items()}
    wrong = {name: uses for name, (case, uses) in found.items() if not agrees(case, uses)}
    assert len(found) >= 26 and set(wrong) <= {"tx40", "not physically consistent", "no friction terms"}, wrong
    assert not [name for name, (case, uses) in found.items() if trusted_wrongly(case, uses)]


def solid(mass, semi_axes, centre=(0.0, 0.0, 0.0)):
    """Ten parameters of a solid ellipsoid."""
    a, c = np.asarray(semi_axes, float), np.asarray(centre, float)
    second = mass * (np.diag(a**2) / 5 + np.outer(c, c))
    i = np.trace(second) * np.eye(3) - second
    return np.array([mass, *(mass * c), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])


def test_density_and_room_of_a_link():
    chain = loads(URDF.format(axis="0 1 0"))
    bare = dataclasses.replace(chain, inertia=0 * chain.inertia)
    bounds = link_bounds(bare)
    assert equivalent_density(solid(3.0, (0.1, 0.05, 0.2), (1, 2, 3))) == pytest.approx(3 / (4 / 3 * np.pi * 1e-3))
    # the upper arm reaches from its joint to the elbow, 0.4 m along z, and half as far across
    np.testing.assert_allclose(bounds.centres[1], [0, 0, 0.2])
    np.testing.assert_allclose(bounds.semi_axes[1], [0.2, 0.2, 0.4])
    np.testing.assert_allclose(np.abs(bounds.rotations[1] @ [0, 0, 1]), [0, 0, 1])
    assert unusual_links(chain) == ()
    for pi, words in (
        (solid(199.0, (0.01, 0.01, 0.01)), "199 kg and a density of 4.8e+07 kg/m^3"),
        (solid(0.032, (0.8, 0.8, 0.8)), "0.032 kg and a density of 0.015 kg/m^3"),
        (solid(60.0, (0.1, 0.1, 0.1), (0, 0, 0.9)), "times as far as"),
    ):
        (sentence,) = unusual_links(dataclasses.replace(chain, inertia=chain.inertia.at[1].set(jnp.asarray(pi))))
        assert sentence.startswith("link 'upper'") and words in sentence
    # a given model's own links are within its bounds
    heavy = dataclasses.replace(chain, inertia=chain.inertia.at[1].set(jnp.asarray(solid(60.0, (0.03, 0.03, 0.03)))))
    assert unusual_links(heavy) and unusual_links(heavy, model=heavy) == ()
    with pytest.raises(IdentificationError, match="must satisfy 0 <= lower < upper"):
        link_bounds(chain, (5.0, 5.0))


def test_estimates_keep_within_densities_and_room():
    """Torques that ask for impossible machines, ten parameters per link each known to a percent."""
    chain = loads(URDF.format(axis="0 1 0"))
    bare = dataclasses.replace(chain, inertia=0 * chain.inertia)
    wanted = np.stack(
        [solid(199.0, (0.01, 0.012, 0.01)), solid(0.5, (0.25, 0.2, 0.3), (0, 0, 0.2)), solid(3.0, (0.1, 0.1, 0.1))]
    )
    base = base_parameters(chain, Columns(()))
    base = dataclasses.replace(base, matrix=np.eye(30), kept=np.arange(30))
    weights = 1 / (0.01 * np.maximum(np.abs(wanted), 1e-3 * np.abs(wanted[:, :1])))
    problem = ConsistentProblem(
        matrix=np.diag(weights.ravel()),
        values=(weights * wanted).ravel(),
        floor=0.0,
        prior=np.tile(solid(2.0, (0.1, 0.1, 0.1)), 3),
        start=wanted.ravel(),
        links=3,
        positive=np.zeros(30, bool),
        constraints=no_constraints(30),
        weight=1e-3,
    )
    free = consistent_least_squares(problem, base).parameters.reshape(3, 10)
    np.testing.assert_allclose(free[:, 0], wanted[:, 0], rtol=0.05)
    bounds = link_bounds(bare)
    found = consistent_within(problem, base, bounds)
    links = found.parameters.reshape(3, 10)
    densities = [equivalent_density(pi) for pi in links]
    assert equivalent_density(free[0]) > 1e7 and densities[0] <= 1.02 * 20_000
    assert equivalent_density(free[1]) < 10 and densities[1] >= 100 / 1.02
    np.testing.assert_allclose(links[2], free[2], rtol=1e-3, atol=1e-4)  # which was within bounds
    np.testing.assert_allclose(found.values, found.parameters)
    assert all(filled_share(bounds, i, pi) <= 1.001 for i, pi in enumerate(links))


@pytest.mark.nightly
def test_a_missing_counterbalance_accuses_no_joint(shared_data):
    """The KR300's joint 3 fits the others with its sign reversed, because joint 2's counterbalance is missing."""
    findings = diagnose_identification(real(shared_data, "kr300"))
    assert not [f for f in findings if f.kind == "sign"]


@pytest.mark.ci
def test_a_wrong_sign_of_a_real_log_is_named(shared_data):
    result = real(shared_data, "ur10e, a sign")
    assert [f.about for f in diagnose_identification(result) if f.kind == "sign"] == [(result.chain.joint_names[1],)]


def test_a_log_is_too_short_by_its_independent_samples(annotations_unchecked):
    """40 samples of 2 joints, of which the filter leaves every tenth independent, are 8 numbers."""
    factors = QRFactors(np.zeros((2, 11, 11)), np.array([40, 40]))
    base = SimpleNamespace(size=10)
    (found,) = diagnostics._short(factors, base, 0.1)
    assert "40 samples of 2 joints contain about 8 independent values, too few for 10 base parameters" in found.text
    assert diagnostics._short(factors, base, 0.2) == []
