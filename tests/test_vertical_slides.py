"""Vertical prismatic joints (SCARA robots, lifts), whose gravity, torque offset and moving mass act alike."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import inverse_dynamics
from jaxdyn.cli import main
from jaxdyn.dynamics import friction_force
from jaxdyn.identification import (
    Columns,
    FrictionModel,
    LoadDependent,
    Terms,
    base_parameters,
    identify,
    random_excitation,
    synthetic_log,
)
from jaxdyn.identification.friction_terms import chain_terms
from jaxdyn.io import Log, loads
from jaxdyn.model import with_leaves

BODY = (
    '<inertial><origin xyz="0.1 0.02 -0.1"/><mass value="{}"/>'
    '<inertia ixx=".05" ixy="0" iyy=".06" ixz="0" iyz="0" izz=".04"/></inertial>'
)


def slides(axis="0 0 1"):
    links = "".join(f'<link name="l{k}">{BODY.format(m) if m else ""}</link>' for k, m in enumerate((0, 4.0, 1.5)))
    joint = (
        '<joint name="j{}" type="{}"><parent link="l{}"/><child link="l{}"/><origin xyz="0.3 0 0"/><axis xyz="{}"/>'
        '<limit lower="-{}" upper="{}" effort="300" velocity="4"/><dynamics damping="5" friction="2"/></joint>'
    )
    joints = joint.format(1, "revolute", 0, 1, "0 0 1", 2, 2) + joint.format(2, "prismatic", 1, 2, axis, 0.2, 0.2)
    return loads(f'<robot name="scara">{links}{joints}</robot>')


@pytest.mark.parametrize(("axis", "weight"), [("0 0 1", 9.81), ("0 0 -1", -9.81)])
def test_the_mass_on_a_vertical_slide_adds_to_its_torque_offset(axis, weight):
    chain, model = slides(axis), FrictionModel(chain_terms(0.02))
    columns = Columns(("armature",), friction=model)
    base = base_parameters(chain, columns)
    assert "m2 + Ia2" in base.names and base.size == len(base.names) == base.matrix.shape[0]
    assert columns.names(2)[-6:] == model.names(2)
    expected = np.eye(6, 28, 22)
    expected[5, 21] = -weight  # off2 - g Ia2, beside m2 + Ia2
    np.testing.assert_allclose(base.matrix[-6:], expected, atol=1e-9)
    assert base.names[-1] == f"off2 {'-' if weight > 0 else '+'} 9.81 Ia2"
    level = base_parameters(slides("1 0 0"), columns)
    np.testing.assert_array_equal(level.matrix[-6:], np.eye(6, 28, 22))


@pytest.mark.ci
def test_identify_a_scara_robot():
    chain = slides()
    t = np.arange(0, 12, 0.005)
    phase = 2 * np.pi * 0.25 * np.arange(1, 6)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 2)) * [0.5, 0.05] / np.arange(1, 6)[:, None]
    s, c = np.sin(np.outer(t, phase)), np.cos(np.outer(t, phase))
    q, qd, qdd = s @ a + c @ b, (c * phase) @ a - (s * phase) @ b, -(s * phase**2) @ a - (c * phase**2) @ b
    tau = jax.vmap(inverse_dynamics, (None, 0, 0, 0))(chain, *map(jnp.asarray, (q, qd, qdd)))
    tau = np.asarray(tau + jax.vmap(lambda v: friction_force(chain, v))(jnp.asarray(qd)))
    log = Log(t, q + 1e-6 * rng.normal(size=q.shape), None, tau + 0.02 * rng.normal(size=q.shape))
    result = identify(chain, log, terms=Terms(choose=("friction",)))
    assert "] N m or N\n" in str(result)
    assert "m2 + Ia2" in result.base.names
    k = result.base.names.index("m2 + Ia2")
    assert result.estimate.values[k] == pytest.approx(1.5, abs=0.01)
    found, friction = result.chain, result.friction
    assert friction is not None
    offset = result.parameters[result.names.index("off2")]
    assert offset + 9.81 * float(found.inertia[1, 0]) == pytest.approx(9.81 * 1.5, abs=0.05)
    at_rest = np.asarray(inverse_dynamics(found, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2)) + found.friction.offset)
    assert at_rest[1] == pytest.approx(9.81 * 1.5, abs=0.05)
    assert result.validation[0].fit.total_relative < 1
    run = result.validation[0].run
    assert run is not None
    np.testing.assert_allclose(friction.predict(run), result.model.predict(run), rtol=1e-6, atol=1e-6)


def test_forces_of_slides_have_their_unit_in_payloads_and_gains(tmp_path, capsys):
    chain, names, logs = slides(), ("t", "q1", "q2", "tau1", "tau2"), []
    jaxdyn.io.save_model(chain, tmp_path / "arm.eqx")
    for k, arm in enumerate((chain, jaxdyn.attach(chain, None, 2.0, com=jnp.array([0.1, 0.0, 0.0])))):
        log = synthetic_log(arm, random_excitation(arm, 8.0, 5, seed=k), 8.0, 200.0, 1e-6, 0.02, seed=k)
        logs.append(str(tmp_path / f"{k}.csv"))
        np.savetxt(logs[k], np.c_[log.t, log.q, log.tau], delimiter=",", header=",".join(names), comments="")
    line = ["payload", "--model", str(tmp_path / "arm.eqx"), "--unloaded", logs[0], "--loaded", logs[1]]
    assert main(line) == 0
    assert re.search(r"held-out torque errors of the joints, RMS: j1 \S+ N m, j2 \S+ N\n", capsys.readouterr().out)
    assert main([*line, "--mass", "2"]) == 0
    assert re.search(
        r"j1 .* payload torque \S+ N m RMS .*\n  j2 .* payload torque \S+ N RMS\n", capsys.readouterr().out
    )


@pytest.mark.ci
def test_friction_that_grows_with_the_weight_of_a_vertical_slide():
    """The armature adds to the inertia of the mass, but not to the weight that presses on the guide."""
    chain = with_leaves(
        jaxdyn.textbook.cartesian_two_link(),
        {
            "armature": jnp.array([4.0, 1.0]),
            "friction.viscous": jnp.array([3.0, 2.0]),
            "friction.coulomb": jnp.array([1.0, 2.0]),
        },
    )
    log = synthetic_log(chain, random_excitation(chain, 10.0, 5, seed=0), 10.0, 200.0, 1e-5, 0.02)
    q, qd, qdd = random_excitation(chain, 10.0, 5, seed=0)(jnp.asarray(log.t))[:3]
    load = np.asarray(jax.vmap(inverse_dynamics, (None, 0, 0, 0))(chain, q, qd, qdd))
    tau = log.tau + np.array([1.0, 0.0]) * 0.1 * np.abs(load) * np.tanh(np.asarray(qd) / 0.02)
    terms = Terms(further=(LoadDependent(width=0.02, joints=(1,)),), choose=())
    result = identify(chain, dataclasses.replace(log, tau=tau), terms=terms)
    assert result.validation[0].fit.relative[0] < 0.3
    assert result.parameters[result.names.index("fc1")] == pytest.approx(1.0, abs=0.05)
