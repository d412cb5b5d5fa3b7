"""Two models on a log: errors against those computed by hand, what is shown, and the command."""

import dataclasses
import hashlib
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import jaxdyn
from jaxdyn import IdentificationError, Log, friction_force, inverse_dynamics, save_model, save_urdf
from jaxdyn.cli import main
from jaxdyn.identification import Filters, TorqueModel, compare_models, preprocess
from jaxdyn.identification.filters import low_pass
from jaxdyn.identification.friction_model import chain_friction_model
from jaxdyn.identification.friction_terms import FRICTION
from jaxdyn.model.chain import coordinate_names
from jaxdyn.report import print_comparison, write_comparison
from jaxdyn.report.comparison import comparison_verdict
from jaxdyn.report.markup import rounded
from regression import known_arm
from report_example import small_example


@pytest.fixture(scope="module")
def models():
    truth, result = small_example()
    return truth, jaxdyn.model.with_leaves(result.prior, {"friction.viscous": 0 * truth.friction.viscous})


@pytest.fixture(scope="module")
def log(models):
    """Three seconds of the true robot, with noise on the torques."""
    rng = np.random.default_rng(0)
    t = np.arange(600) / 200
    w = np.array([3.0, 5.0])
    q, qd, qdd = 0.5 * np.sin(w * t[:, None]), 0.5 * w * np.cos(w * t[:, None]), -0.5 * w**2 * np.sin(w * t[:, None])
    tau = _torque(models[0], q, qd, qdd)
    return Log(t, q, None, tau + 0.05 * rng.normal(size=q.shape), source="run.csv")


@pytest.fixture(scope="module")
def comparison(models, log):
    return compare_models(*models, log, ("true", "given"))


def _torque(chain, q, qd, qdd):
    force = jax.vmap(lambda *x: inverse_dynamics(chain, *x) + friction_force(chain, x[1]))
    return np.asarray(force(*map(jnp.asarray, (q, qd, qdd))))


@pytest.mark.ci
def test_friction_is_filtered_whatever_the_kind_of_model(models, log, tmp_path):
    """A URDF of the exact robot, its chain, and its friction as filtered terms, as a fit gives them, predict the same."""
    truth = models[0]
    law, coefficients = chain_friction_model(truth)
    law = dataclasses.replace(law.for_joints(truth.n), cutoff=8.0)
    fitted = TorqueModel(truth, law, coefficients)
    save_urdf(truth, tmp_path / "robot.urdf")
    read = jaxdyn.load(tmp_path / "robot.urdf", gravity=truth.gravity)
    noise = np.sqrt(((preprocess(log).tau - preprocess(_without_noise(log, truth)).tau) ** 2).mean(0))
    for first, second in ((truth, fitted), (read, read)):
        fits = compare_models(first, second, log).fits
        np.testing.assert_allclose(fits[0].rms, fits[1].rms, rtol=1e-9)
        np.testing.assert_allclose(fits[0].rms, noise, rtol=0.1)


def test_friction_of_a_chain_as_terms():
    """With Stribeck friction, and motors that rub in addition to the joints."""
    wrist = jaxdyn.textbook.coupled_wrist()
    parts = {"viscous": 0.3, "coulomb": 0.2, "stribeck": 0.4, "offset": 0.1}
    wrist = jaxdyn.model.with_leaves(wrist, {f"friction.{name}": jnp.full(3, x) for name, x in parts.items()})
    t = np.linspace(0, 4, 400)[:, None]
    samples = preprocess(Log(t[:, 0], np.sin(t * [1.0, 2.0, 3.0]), None, np.zeros((400, 3)), "wrist"), Filters(10.0))
    terms = TorqueModel(wrist).filtered(10.0).unfiltered
    assert terms.terms == ("Viscous", "Coulomb", "Offset", "Stribeck")
    np.testing.assert_allclose(terms.predict(samples), TorqueModel(wrist).predict(samples), atol=1e-6)


def _without_noise(log, chain):
    w = np.array([3.0, 5.0])
    qd, qdd = 0.5 * w * np.cos(w * log.t[:, None]), -0.5 * w**2 * np.sin(w * log.t[:, None])
    return dataclasses.replace(log, tau=_torque(chain, log.q, qd, qdd))


def test_errors_are_those_of_each_model(models, log, comparison):
    s, whole = preprocess(log), preprocess(log, Filters(stride=1))
    for k, chain in enumerate(models):
        zero = jaxdyn.model.with_leaves(chain, {f"friction.{x}": 0 * chain.friction.viscous for x in FRICTION})
        friction = _torque(chain, whole.q, whole.qd, whole.qdd) - _torque(zero, whole.q, whole.qd, whole.qdd)
        behind = low_pass(friction, whole.rate, whole.torque_cutoff)[:: round(whole.rate / s.rate)]
        error = s.tau - _torque(zero, s.q, s.qd, s.qdd) - behind
        fit = comparison.fits[k]
        np.testing.assert_allclose(fit.rms, np.sqrt((error**2).mean(0)), rtol=1e-6)
        np.testing.assert_allclose(
            fit.relative, 100 * np.linalg.norm(error, axis=0) / np.linalg.norm(s.tau, axis=0), rtol=1e-6
        )
        moving = np.abs(s.qd) > 0.02
        expected = [100 * np.linalg.norm(error[m, j]) / np.linalg.norm(s.tau[m, j]) for j, m in enumerate(moving.T)]
        np.testing.assert_allclose(fit.relative_moving, expected, rtol=1e-6)
    np.testing.assert_allclose(comparison.ratio, comparison.fits[1].rms / comparison.fits[0].rms)
    assert np.all(comparison.ratio > 2)
    true, given = comparison.runs[0].simulations
    assert np.all(true.rms < given.rms) and np.all(true.rms < 0.1 * true.coasting_rms)


def test_several_logs_are_pooled(models, log, comparison):
    short = Log(log.t[:300], log.q[:300], None, log.tau[:300], source="short.csv")
    both = compare_models(*models, [log, short])
    sizes = [len(r.samples) for r in both.runs]
    squares = [r.fits[1].rms ** 2 for r in both.runs]
    np.testing.assert_allclose(both.fits[1].rms ** 2, np.average(squares, axis=0, weights=sizes), rtol=1e-12)
    np.testing.assert_allclose(both.runs[0].fits[1].rms, comparison.fits[1].rms, rtol=1e-12)


def test_what_cannot_be_compared_is_refused(models, log):
    with pytest.raises(IdentificationError, match="no log"):
        compare_models(*models, [])
    wide = Log(log.t, np.hstack([log.q, log.q]), None, np.hstack([log.tau, log.tau]), source="wide.csv")
    with pytest.raises(IdentificationError, match=r"wide\.csv: the log has 4 joints, but one has 2: joint1, joint2"):
        compare_models(*models, wide, ("one", "two"))


def test_the_page_shows_the_numbers(comparison, tmp_path):
    write_comparison(comparison, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    shown = [re.sub("<[^>]*>", "|", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)]
    for letter, fit in zip("ab", comparison.fits, strict=True):
        row = next(r for r in shown if f"|{letter}: " in r)
        numbers = [rounded(x) for j in range(2) for x in (fit.relative_moving[j], fit.rms[j])]
        assert [c for c in row.split("|") if c][1:] == [rounded(fit.total_relative), *numbers]
    positions = next(r for r in shown if r.startswith("|joint1|"))
    true, given = comparison.runs[0].simulations
    assert [c for c in positions.split("|") if c][2:4] == [rounded(true.rms[0]), rounded(given.rms[0])]
    assert text.count('<figure class="plot">') == 1 and text.count("<h1>") == 1


@pytest.mark.ci
def test_models_with_coupled_joints_are_compared_by_coordinate(log, tmp_path):
    arm = jaxdyn.with_coupling(known_arm(), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -0.5]]))
    heavy = jaxdyn.with_inertial_parameters(arm, 1.1 * arm.inertia)
    found = compare_models(arm, heavy, log, ("arm", "heavy"))
    console = Console(file=io.StringIO(), width=100)
    print_comparison(found, console)
    rows = [row.split()[0] for row in console.file.getvalue().splitlines()]
    assert rows[1:4] == [*coordinate_names(arm), "all"] and len(coordinate_names(arm)) == 2
    write_comparison(found, tmp_path / "page.html")
    assert "joints are matched by their order" not in (tmp_path / "page.html").read_text("utf-8")


def test_the_verdict_names_the_better_model(comparison):
    assert comparison_verdict(comparison).endswith("true is better on every joint.")
    first, second = comparison.fits
    same = dataclasses.replace(comparison, fits=(first, dataclasses.replace(second, rms=first.rms * 1.04)))
    assert comparison_verdict(same).endswith("The errors of the two models differ by no more than 5 % on any joint.")
    mixed = dataclasses.replace(comparison, fits=(first, dataclasses.replace(second, rms=first.rms * [2.0, 0.5])))
    assert comparison_verdict(mixed).endswith("true is better on joint1; given on joint2.")
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_comparison(comparison, console)
    printed = console.file.getvalue()
    assert all(rounded(f.total_relative) in printed for f in comparison.fits) and "every joint" in printed
    assert f"joint1 {rounded(comparison.fits[0].relative[0])} " in re.sub(" +", " ", printed)


def test_the_command_compares_files_of_different_kinds(models, log, tmp_path, capsys):
    truth, given = models
    save_model(truth, tmp_path / "model.eqx")
    save_urdf(given, tmp_path / "robot.urdf")
    header = "t,q1,q2,tau1,tau2"
    np.savetxt(
        tmp_path / "run.csv", np.column_stack([log.t, log.q, log.tau]), delimiter=",", header=header, comments=""
    )
    out = tmp_path / "page.html"
    words = ["compare", str(tmp_path / "model.eqx"), str(tmp_path / "robot.urdf"), "--log", str(tmp_path / "run.csv")]
    assert main([*words, "--out", str(out)]) == 0
    assert "model.eqx is better on every joint." in " ".join(capsys.readouterr().out.split())
    page = out.read_text("utf-8")
    assert all(
        hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() in page for n in ("model.eqx", "robot.urdf", "run.csv")
    )
    # the URDF holds the given model with its gravity
    again = compare_models(truth, given, log)
    assert f">{rounded(again.fits[1].relative_moving[0])}<small>" in page and "gravity is" not in page
    assert float(re.search(r"low-pass ([\d.]+) Hz", page)[1]) != 12
    (tmp_path / "my.toml").write_text("cutoff = 12\nstride = 2")
    assert main([*words, "--settings", str(tmp_path / "my.toml"), "--out", str(out), "--quiet"]) == 0
    assert "low-pass 12 Hz on positions, 12 Hz on torques" in out.read_text("utf-8")
    (tmp_path / "my.toml").write_text("terms = []")
    assert main([*words, "--settings", str(tmp_path / "my.toml"), "--out", str(out)]) == 1
    assert "the key 'terms' belongs to another command. The keys are lock, tip" in capsys.readouterr().err
    assert main([*words, "--log", str(tmp_path / "gone.csv"), "--out", str(tmp_path / "no.html")]) == 1
    assert "gone.csv" in capsys.readouterr().err and not (tmp_path / "no.html").exists()
