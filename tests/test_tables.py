"""Tables for pandas: what they hold, and what is said where pandas is not installed."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import Log, TrajectoryError
from jaxdyn.identification import (
    Coulomb,
    FrictionModel,
    Viscous,
    compare_models,
    fit_friction,
)
from jaxdyn.trajectory import Trajectory
from report_example import small_example

LOG = Log(np.arange(5) / 10, np.arange(10.0).reshape(5, 2), None, -np.arange(10.0).reshape(5, 2))


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        LOG.to_pandas()


def test_log(pandas):
    table = LOG.to_pandas()
    assert list(table.columns) == ["q1", "q2", "tau1", "tau2"] and table.index.name == "t"
    np.testing.assert_array_equal(table["tau2"], LOG.tau[:, 1])
    np.testing.assert_array_equal(table.index, LOG.t)


def test_trajectory(pandas):
    x = jnp.arange(8.0).reshape(4, 2)
    motion = Trajectory(t=jnp.arange(4) / 10, q=x, v=10 * x, tau=x[:-1])
    table = motion.to_pandas()
    assert list(table.columns) == ["q1", "q2", "v1", "v2", "tau1", "tau2"]
    np.testing.assert_array_equal(table["v2"], motion.v[:, 1])
    assert table["tau1"].isna().tolist() == [False, False, False, True]
    batch = jax.tree.map(lambda x: x[None], motion)
    with pytest.raises(TrajectoryError, match="one motion, not a batch of shape \\(1,\\); select one"):
        batch.to_pandas()


def test_identified_parameters(pandas):
    _, result = small_example()
    table = result.to_pandas()
    base = table[table["kind"] == "base"]
    assert list(base.index) == list(result.base.names) and len(table) == len(result.base.names) + len(result.names)
    np.testing.assert_array_equal(base["value"], result.estimate.values)
    np.testing.assert_allclose(
        base["upper"] - base["lower"], 2 * 2.178813 * result.estimate.standard_deviations, rtol=1e-6
    )
    assert base["upper"].notna().all() and table["standard_deviation"].dtype == float
    np.testing.assert_array_equal(table[table["kind"] == "full"]["value"], result.parameters)
    assert {"unit", "prior", "identifiable", "belongs_to"} <= set(table.columns)


def test_models_compared(pandas):
    truth, result = small_example()
    rng = np.random.default_rng(0)
    t = np.arange(600) / 200
    q = np.sin(t[:, None] * [3.0, 4.1])
    log = Log(t, q, None, rng.normal(size=q.shape))
    compared = compare_models(truth, result.prior, log, ("true", "given"))
    table = compared.to_pandas()
    assert list(table.index) == list(truth.joint_names)
    np.testing.assert_array_equal(table["given", "rms"], compared.fits[1].rms)


def test_friction_parameters(pandas):
    _, result = small_example()
    fit = fit_friction(result.prior, [result.fitted[0].samples], FrictionModel((Coulomb(), Viscous())), iterations=1)
    table = fit.to_pandas()
    assert list(table.index)[:4] == list(fit.names[-4:]) and table["unit"].iloc[0]
    np.testing.assert_array_equal(table["value"][:4], fit.values[-4:])
    np.testing.assert_allclose(table["standard_deviation"][:4], np.sqrt(np.diag(fit.covariance))[-4:])
