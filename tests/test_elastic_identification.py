"""Elastic joints identified from encoders on both sides of the gear, in logs that MuJoCo simulates."""

import mujoco
import numpy as np
import pytest

import jaxdyn
from jaxdyn.errors import IdentificationError, LogError
from jaxdyn.identification import Filters, identify_elastic_joints
from jaxdyn.io import Log

K, D, J = np.array([900.0, 400.0]), np.array([0.8, 0.5]), np.array([0.3, 0.12])
B, OFFSET = np.array([1.5, 0.7]), np.array([0.4, -0.2])
STEP, EVERY, SECONDS = 5e-4, 2, 20.0
MODEL = """<mujoco><option timestep="{step}" integrator="RK4"/><worldbody>
  <body name="upper"><joint name="q1" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.04" mass="3"/>
    <body name="lower" pos="0.4 0 0"><joint name="q2" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1.5"/></body></body>
  {rotors}</worldbody><tendon>{springs}</tendon></mujoco>"""
ROTOR = """<body pos="0 {k} 1" gravcomp="1"><joint name="theta{k}" axis="0 1 0" damping="{b}"/>
  <inertial pos="0 0 0" mass="1" diaginertia="{j} {j} {j}"/></body>"""
SPRING = (
    '<fixed stiffness="{k}" damping="{d}"><joint joint="theta{n}" coef="1"/><joint joint="q{n}" coef="-1"/></fixed>'
)


@pytest.fixture(scope="module")
def exact():
    """t, q, theta and motor torques of a planar arm on springs, whose motors follow sums of sines; no noise."""
    rotors = "".join(ROTOR.format(k=k + 1, b=B[k], j=J[k]) for k in range(2))
    springs = "".join(SPRING.format(n=k + 1, k=K[k], d=D[k]) for k in range(2))
    model = mujoco.MjModel.from_xml_string(MODEL.format(step=STEP, rotors=rotors, springs=springs))
    model.geom_contype[:] = 0
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    speed, phase = 2 * np.pi * rng.uniform(0.1, 1.5, (6, 2)), rng.uniform(0, 6, (6, 2))
    names = ("q1", "q2", "theta1", "theta2")
    at = [model.joint(name).qposadr[0] for name in names]
    rows, motor = [], np.zeros(2)
    for k in range(round(SECONDS / STEP)):
        wanted = 0.12 * (np.sin(speed * k * STEP + phase) - np.sin(phase)).sum(axis=0)
        x, v = data.qpos[at], data.qvel[at]
        before, motor = motor, 150 * (wanted - x[2:]) - 15 * v[2:]
        data.qfrc_applied[at[2:]] = motor
        if k % EVERY == 0:
            rows.append(
                [k * STEP, *x, *(0.5 * (before + motor) + OFFSET)]
            )  # held from step to step: this is its middle
        mujoco.mj_step(model, data)
    rows = np.array(rows)
    return rows[:, 0], rows[:, 1:3], rows[:, 3:5], rows[:, 5:]


def noisy(exact, seed):
    t, q, theta, tau = exact
    rng = np.random.default_rng(seed)
    of = lambda x, size: x + size * rng.normal(size=x.shape)
    return Log(t, of(q, 2e-6), None, of(tau, 0.05), "arm"), of(theta, 2e-6)


TRUTH = np.stack([K, D, J, B, np.zeros(2), OFFSET], axis=1)


@pytest.mark.ci
def test_elastic_joints_from_both_encoders(exact):
    """Over 100 logs that differ in their noise; friction that is not there is found to be none."""
    found = [identify_elastic_joints(*noisy(exact, seed), Filters(position_cutoff=20.0)) for seed in range(100)]
    within = [np.abs(x.values - TRUTH) <= 2 * x.standard_deviations for x in found]
    assert np.mean(within) >= 0.9  # 93 to 94 % by Student's t for so few blocks; 91.3 % are found
    np.testing.assert_allclose(found[0].stiffness, K, rtol=5e-3)
    np.testing.assert_allclose(found[0].rotor_inertia, J, rtol=5e-3)
    assert found[0].residual.max() < 0.05  # of noise of 0.05, behind the filter


@pytest.mark.ci
def test_what_springs_do_to_the_links_is_their_torque(exact):
    """The links' log of an arm on springs, against inverse dynamics of the same arm made of capsules."""
    found = identify_elastic_joints(*noisy(exact, 3), Filters(position_cutoff=20.0, stride=1))
    links = found.links
    text = MODEL.format(step=STEP, rotors="", springs="")
    arm = jaxdyn.io.from_mujoco(mujoco.MjModel.from_xml_string(text))
    qdd = np.gradient(links.qd, links.t, axis=0)
    some = slice(50, len(links.t) - 50, 40)
    torque = np.array(
        [jaxdyn.inverse_dynamics(arm, *x) for x in zip(links.q[some], links.qd[some], qdd[some], strict=True)]
    )
    assert np.abs(torque - links.tau[some]).max() < 0.02 * np.abs(torque).max()


def test_bad_logs_of_elastic_joints_are_refused():
    t = np.arange(2000) * 1e-3
    q = np.sin(np.outer(t, [3.0, 5.0]))
    log = Log(t, q, None, np.cos(np.outer(t, [3.0, 5.0])))
    with pytest.raises(LogError, match="motor positions must be finite and of shape"):
        identify_elastic_joints(log, q[:, :1])
    with pytest.raises(IdentificationError, match="joint 1: stiffness, rotor inertia and friction cannot be separated"):
        identify_elastic_joints(log, q)
