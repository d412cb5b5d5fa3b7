"""Files that version 0.2 wrote are still read, and mean the same: models, factors, exported functions and policies."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

import jaxdyn
from data_paths import ROOT
from jaxdyn.identification import Filters, load_factors, load_torque_model, preprocess
from test_policy_gradient import OPTIONS, Q0, REGULATOR, V0, Feedback

FILES = ROOT / "tests" / "data" / "written_by_0_2"
RESULTS = json.loads((FILES / "results.json").read_text())


def test_a_robot_with_joints_of_every_kind():
    chain, expected = jaxdyn.load_model(FILES / "mechanism.eqx"), RESULTS["mechanism"]
    assert jaxdyn.io.model_about(FILES / "mechanism.eqx")["note"] == "written by 0.2"
    q = jnp.asarray(expected["q"])
    v, a = jnp.linspace(-1, 1, chain.nv), jnp.linspace(0.5, -0.7, chain.nv)
    assert_allclose(jaxdyn.inverse_dynamics(chain, q, v, a), expected["torques"], rtol=1e-11)
    assert_allclose(jaxdyn.resistive_force(chain, q, v), expected["resistance"], rtol=1e-11)
    assert_allclose(jaxdyn.random_configuration(chain, jax.random.key(0)), q, rtol=1e-12)


def test_a_model_with_friction_that_has_memory():
    model = load_torque_model(FILES / "model.eqx")
    t = np.arange(200) / 100
    q = np.c_[np.sin(3 * t), np.cos(2 * t)]
    samples = preprocess(jaxdyn.Log(t=t, q=q, qd=None, tau=0.1 * np.cos(q)), Filters(20.0, stride=1))
    assert_allclose(model.predict(samples)[::40], RESULTS["model"]["torques"], rtol=1e-10)


def test_factors_of_a_log():
    factors = load_factors(FILES / "factors.npz")
    assert factors.counts.tolist() == [[50, 50]] and np.isfinite(factors.r).all()


def test_an_exported_function():
    gravity = jaxdyn.deployment.load_exported(FILES / "gravity.jaxdyn")
    assert_allclose(gravity(jnp.array([0.3, -0.4])), RESULTS["gravity"], rtol=1e-12)


def test_the_progress_of_a_policy(tmp_path):
    start, file = Feedback(jnp.zeros((1, 2))), shutil.copy(FILES / "policy.bin", tmp_path)
    found = jaxdyn.trajectory.optimise_policy(start, REGULATOR, Q0, V0, updates=3, file=file, **OPTIONS)
    assert_allclose(found.policy.gain, RESULTS["policy"], rtol=1e-12)
