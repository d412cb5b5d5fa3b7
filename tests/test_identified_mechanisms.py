"""Rows and columns of robots that are no arms: transmissions, springs, couplings, quaternions; what is identified of them."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, relative
from jaxdyn import IdentificationError, ModelError, textbook
from jaxdyn.identification import Columns, Samples, base_parameters, diagnose, estimate_delay, motor_terms
from jaxdyn.identification.accumulate import accumulate
from jaxdyn.identification.base import with_parameters
from jaxdyn.identification.columns import all_columns, prior_parameters
from jaxdyn.model.chain import coordinate_names


def state(chain, seed):
    return (np.asarray(x) for x in mechanism_state(chain, seed))


@once
def products(chain, q, qd, qdd):
    """Regressors times the chain's parameters, and what they are to give."""
    dynamics, motors = jaxdyn.dynamics, chain.transmission
    links = jaxdyn.regressor(chain, q, qd, qdd) @ chain.inertia.reshape(-1)
    armature = dynamics.drive_regressor(chain, qd, qdd, ("armature",)) @ chain.armature
    rotors = dynamics.motor_regressor(chain, qd, qdd, ("inertia",)) @ motors.rotor_inertia
    friction = motors.friction
    at_motors = dynamics.motor_regressor(chain, qd, qdd, ("viscous", "coulomb"))
    losses = at_motors @ jax.numpy.stack([friction.viscous, friction.coulomb], axis=1).reshape(-1)
    joints = chain.friction
    at_joints = dynamics.drive_regressor(chain, qd, qdd, ("viscous", "coulomb", "offset"))
    return {
        "torque": (links + armature + rotors, jaxdyn.inverse_dynamics(chain, q, qd, qdd)),
        "friction": (
            losses + at_joints @ jax.numpy.stack([joints.viscous, joints.coulomb, joints.offset], axis=1).reshape(-1),
            jaxdyn.friction_force(chain, qd),
        ),
        "springs": (dynamics.spring_regressor(chain, q) @ chain.springs.stiffness, jaxdyn.spring_force(chain, q)),
    }


def assert_products(chain):
    for name, (found, expected) in products(chain, *state(chain, 3)).items():
        assert relative(found, expected) < 1e-12, name


def test_columns_of_a_geared_link_give_its_torque(annotations_unchecked):
    chain = textbook.geared_link(motor_inertia=2e-4)
    assert_products(chain)
    base = base_parameters(chain)
    assert base.names == ("Ixx1 + Ia1 + 10000 J1", "my1", "mz1", "fv1 + 10000 B1", "fc1 + 100 Fc1", "off1")
    with pytest.raises(ModelError, match="unknown motor term 'offset'"):
        jaxdyn.dynamics.motor_regressor(chain, np.zeros(1), np.zeros(1), ("offset",))
    with pytest.raises(ModelError, match="no transmission"):
        jaxdyn.dynamics.motor_regressor(random_chain(1), np.zeros(1), np.zeros(1))


@pytest.mark.ci
def test_columns_of_a_mechanism_give_its_torque():
    assert_products(random_mechanism(4))


@pytest.mark.nightly
def test_factors_of_a_mechanism_keep_every_inner_product():
    """Few and many samples use different programs; both are compared with single rows."""
    chain = random_mechanism(4)
    columns, generator = all_columns(chain), np.random.default_rng(0)
    count = 700
    q = np.array(jax.vmap(lambda k: jaxdyn.random_configuration(chain, k))(jax.random.split(jax.random.key(0), count)))
    qd, qdd, tau = generator.normal(size=(3, count, chain.nv))
    rows = np.asarray(jax.jit(jax.vmap(columns.matrix, (None, 0, 0, 0)))(chain, q, qd, qdd))
    whole = np.concatenate([rows, tau[:, :, None]], axis=2)
    r = accumulate(columns, chain, q, qd, qdd, tau).r
    expected, found = np.einsum("tjp,tjq->jpq", whole, whole), r.transpose(0, 2, 1) @ r
    size = np.sqrt(np.maximum(np.einsum("jpp->jp", expected), 1e-300))
    assert (np.abs(found - expected) / size[:, :, None] / size[:, None, :])[expected != 0].max() < 1e-9
    held = with_parameters(chain, columns, prior_parameters(chain, columns))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.allclose(a, b)), held, chain))


@pytest.mark.ci
def test_base_parameters_of_a_floating_biped_are_those_of_its_kinetic_energy():
    """A free base feels every parameter that the mass matrix depends on, and no torque depends on more."""
    chain = textbook.biped(floating=True)
    base = base_parameters(chain, Columns(()))
    energy = jax.jit(jax.vmap(jaxdyn.dynamics.kinetic_energy_regressor, (None, 0, 0)))
    q = jax.vmap(lambda k: jaxdyn.random_configuration(chain, k))(jax.random.split(jax.random.key(0), 400))
    rows = np.array(energy(chain, q, jax.random.normal(jax.random.key(1), (400, chain.nv))))[:, 50:]
    size = np.linalg.svd(rows, compute_uv=False)
    assert base.size == (size > 1e-10 * size[0]).sum()
    assert np.abs(rows @ (np.eye(110) - np.linalg.pinv(base.matrix[:, 50:]) @ base.matrix[:, 50:])).max() < 1e-9
    leading = [name.split(" ")[0] for name in base.names]
    assert leading[:10] == ["Ixx6", "Ixy6", "Ixz6", "Iyy6", "Iyz6", "Izz6", "mx6", "my6", "mz6", "m6"]
    assert base.names[9] == " + ".join(f"m{k}" for k in range(6, 17))
    assert not {f"{kind}{k}" for kind in ("m", "mx", "Ixx") for k in range(1, 6)} & {
        *base.unidentifiable,
        *base.dropped,
    }


def test_a_log_of_joints_is_not_enough_for_a_free_base():
    from jaxdyn.identification.factors import check_identifiable

    with pytest.raises(IdentificationError, match=r"floating base.*contact wrenches"):
        check_identifiable(textbook.biped(floating=True))
    chain = random_mechanism(free=False)
    ball = chain.joint_names[chain.topology.compound_joints[0][0]]
    with pytest.raises(IdentificationError, match=f"'{ball}' is a spherical joint"):
        check_identifiable(chain)


def test_motor_terms_are_none_without_a_transmission():
    assert motor_terms(random_chain(2)) == ()


@pytest.mark.ci
def test_a_run_of_coupled_joints_is_diagnosed_by_its_coordinates():
    """Five coordinates of six joints, the wrist's last two coupled; the third's torque has the wrong sign."""
    matrix = np.eye(6)[:, :5]
    matrix[5, 4] = -0.7
    chain, rng = jaxdyn.with_coupling(jaxdyn.robots.ur5e(), matrix), np.random.default_rng(0)
    t = np.arange(1500)[:, None] / 100
    w, phase, size = rng.uniform(0.5, 3, (4, 5)), rng.uniform(0, 6, (4, 5)), rng.uniform(0.1, 0.4, (4, 5))
    q, qd, qdd = (
        sum(s * f**k * np.sin(f * t + p + k * np.pi / 2) for f, p, s in zip(w, phase, size, strict=True))
        for k in range(3)
    )
    rigid = jax.jit(jax.vmap(lambda *x: jaxdyn.inverse_dynamics(chain, *x)))
    tau = np.asarray(rigid(q, qd, qdd)) + 0.5 * qd + 2 * np.tanh(qd / 0.01) + 0.05 * rng.normal(size=q.shape)
    run = Samples(t[:, 0], q, qd, qdd, tau, 100.0, ((0, 1500),), 20.0, 20.0)
    assert diagnose(chain, run) == ()
    assert np.abs(estimate_delay(chain, run).seconds).max() < 1e-3
    found = diagnose(chain, dataclasses.replace(run, tau=tau * [1, 1, -1, 1, 1]))
    assert [f.kind for f in found] == ["sign"] and found[0].about == (coordinate_names(chain)[2],)
