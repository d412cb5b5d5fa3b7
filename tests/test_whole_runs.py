"""Friction fits of long runs, in chunks."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.identification import (
    Columns,
    FrictionModel,
    MaxwellSlip,
    Offset,
    Samples,
    Viscous,
    friction_fit as friction_rows,
    prediction as regressor_rows,
)
from regression import dense

RATE = 200.0
ROTOR = Columns(("armature",))
SLIP = FrictionModel((Viscous(), Offset(), MaxwellSlip(width=np.array([4e-3, 8e-3]))))
TORQUES = np.array([1.0, 0.1, 1.5, 0.6, -0.1, 0.8])  # fv1, off1, fz1, fv2, off2, fz2


def elbow():
    return dataclasses.replace(jaxdyn.textbook.planar_elbow(), armature=jnp.array([0.1, 0.05]))


def samples_of(x, tau=None):
    """Samples of a motion that no filter has seen."""
    tau = np.zeros_like(x[0]) if tau is None else tau
    return Samples(np.arange(len(tau)) / RATE, *x, tau, RATE, ((0, len(tau)),), RATE / 2, RATE / 2)


def motion(t):
    """Two joints that turn now and then; q, qd, qdd."""
    a, w, p = np.array([[0.9, 0.5], [0.6, 0.7]]), np.array([[1.1, 2.9], [1.7, 3.7]]), np.array([[0, 1.0], [2.0, 0.3]])
    angle = w * np.asarray(t)[:, None, None] + p
    return (a * np.sin(angle)).sum(2), (a * w * np.cos(angle)).sum(2), -(a * w**2 * np.sin(angle)).sum(2)


@pytest.fixture(scope="module")
def run():
    """A run of 4 s with friction that remembers, its dense columns, and the true values."""
    arm = elbow()
    base = jaxdyn.identification.base_parameters(arm, ROTOR)
    t = np.arange(800) / RATE
    x = motion(t)
    rigid = dense_rows(arm, base, x)
    blocks = SLIP.blocks(samples_of(x))
    signals = np.zeros((800, 2, 6))
    signals[:, 0, :3], signals[:, 1, 3:] = blocks[:, 0], blocks[:, 1]
    everything = np.concatenate([rigid, signals], axis=2)
    truth = np.concatenate([base.matrix @ jaxdyn.identification.columns.prior_parameters(arm, ROTOR), TORQUES])
    return arm, base, t, x, everything, truth


def dense_torque(run, t):
    """Torques of the rigid body alone, at any times."""
    arm, base, *_, truth = run
    return dense_rows(arm, base, motion(t)) @ truth[: base.size]


def dense_rows(arm, base, x):
    """The base regressor of bodies and rotors."""
    w = dense(arm, *x)
    return np.concatenate([w[:, :, :20], w[:, :, 20:28:4]], axis=2)[:, :, base.kept]


@pytest.mark.ci
def test_friction_fits_hold_no_regressor_of_long_runs(run, monkeypatch):
    arm, base, t, x, rows, truth = run
    tau = rows @ truth + 0.01 * np.random.default_rng(0).normal(size=(800, 2))
    s = samples_of(x, tau)
    for module in (friction_rows, regressor_rows):
        monkeypatch.setattr(module, "SHORT", 128)
    held = friction_rows.prepare(arm, ROTOR, base, s, stride=2)
    monkeypatch.setattr(friction_rows, "HELD", 0)
    streamed = friction_rows.prepare(arm, ROTOR, base, s, stride=2)
    assert len(held.held) == 4 and not streamed.held and len(streamed.kept) == 400
    mask, blocks = np.ones((400, 2)), SLIP.blocks(s)[::2]
    mask[:20, 1] = 0
    found = [friction_rows.factors_with([r], [mask], [blocks]) for r in (held, streamed)]
    np.testing.assert_array_equal(found[0].r, found[1].r)
    np.testing.assert_array_equal(found[0].counts.sum(0), [400, 380])
    r = found[0].total.r
    whole = np.concatenate([rows[::2, :, : base.size], blocks, s.tau[::2, :, None]], axis=2) * mask[:, :, None]
    for j in range(2):
        np.testing.assert_allclose(r[j].T @ r[j], whole[:, j].T @ whole[:, j], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(streamed.load(truth[: base.size]), dense_torque(run, t), atol=1e-9)
