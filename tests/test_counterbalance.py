"""Counterbalances and cables: against the gas's energy, from tables of a settings file, and identified from runs of an arm."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import IdentificationError, Log, identify, inverse_dynamics, resistive_force
from jaxdyn.identification import (
    Cable,
    Counterbalance,
    Filters,
    FrictionModel,
    Stribeck,
    Terms,
    load_torque_model,
    random_excitation,
    save_torque_model,
)
from jaxdyn.identification.terms import term_of

GEOMETRY = {"pivot": 0.8, "crank": 0.2, "angle": 1.658, "reserve": 0.1}


def energy(q, pivot, crank, angle, reserve):
    """Minus the work of the gas at constant temperature, for a force of 1 N at the shortest length."""
    length = jnp.sqrt(pivot**2 + crank**2 - 2 * pivot * crank * jnp.cos(q + angle))
    whole = 2 * crank + reserve
    return -whole * jnp.log(1 - (length - (pivot - crank)) / whole)


def test_a_counterbalance_is_the_derivative_of_its_gas_energy():
    q = jnp.linspace(-3.0, 3.0, 13)
    term = Counterbalance(**GEOMETRY)
    found = term.columns(q[:, None], 0 * q[:, None], 0 * q[:, None])[:, 0, 0]
    np.testing.assert_allclose(found, jax.vmap(jax.grad(lambda q: energy(q, **GEOMETRY)))(q), rtol=1e-12, atol=1e-14)
    lever = Counterbalance(**(GEOMETRY | {"reserve": 1e9})).columns(q[:, None], 0 * q[:, None], 0 * q[:, None])[:, 0, 0]
    length = lambda q: jnp.sqrt(0.8**2 + 0.2**2 - 2 * 0.8 * 0.2 * jnp.cos(q + 1.658))
    np.testing.assert_allclose(lever, jax.vmap(jax.grad(length))(q), rtol=1e-8)
    assert term.labels == ("cb",) and term.units(True) == ("N",)
    cable = Cable(powers=(1, 3)).columns(q[:, None], 0 * q[:, None], 0 * q[:, None])
    np.testing.assert_allclose(cable[:, 0], np.stack([q, q**3], axis=1), rtol=1e-15)
    assert Cable().units(True) == ("N m/rad", "N m/rad^2", "N m/rad^3")
    with pytest.raises(IdentificationError, match="a counterbalance has no parameter 'gas' to fit"):
        Counterbalance(**GEOMETRY, fitted=("gas",))


def term_from(text):
    return term_of("my.toml: term 1", tomllib.loads(text), ("turn", "lift"))


def test_terms_are_made_from_toml_tables():
    geometry = "pivot = 0.8\ncrank = 0.2\nangle = 1.658\n"
    first = term_from(f'kind = "Counterbalance"\njoints = ["lift"]\n{geometry}fitted = ["angle"]\n')
    cable = term_from('kind = "Cable"\npowers = [1, 2]')
    stribeck = term_from('kind = "Stribeck"\njoints = [1]\nvelocity = 0.1')
    assert isinstance(first, Counterbalance) and first.joints == (2,) and first.fitted == ("angle",)
    assert float(first.angle) == pytest.approx(1.658) and isinstance(cable, Cable) and cable.powers == (1, 2)
    assert cable.joints is None and isinstance(stribeck, Stribeck) and stribeck.joints == (1,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind='Balance'\n", r"my\.toml: term 1: the kind is 'Balance'; it must be one of Viscous, Coulomb"),
        ("kind='Cable'\njoints=['wrist']\n", "there is no joint 'wrist'; the joints are turn, lift"),
        ("kind='Cable'\njoints=[3]\n", "there is no joint 3"),
        ("kind='Cable'\npower=[1]\n", "Cable has no field 'power'; its fields are powers"),
        ("kind='Counterbalance'\npivot=0.8\n", "Counterbalance needs crank, angle"),
        ("kind='Stribeck'\nvelocity=-1.0\n", r"velocity is -1\.0; it must be a positive number"),
        ("kind='Dahl'\nwidth='x'\n", "width is 'x'"),
    ],
)
def test_toml_tables_of_terms_that_are_wrong_are_refused(text, message):
    with pytest.raises(IdentificationError, match=message):
        term_from(text)


@pytest.fixture(scope="module")
def balanced():
    """An arm, and a log of it with a counterbalance at its second joint."""
    arm = jaxdyn.textbook.planar_elbow()
    leaves = {"friction.viscous": jnp.array([0.7, 0.3]), "friction.coulomb": jnp.array([0.5, 0.3])}
    arm = jaxdyn.model.with_leaves(arm, leaves | {"friction.coulomb_velocity": jnp.full(2, 0.1)})
    t = np.arange(4000) / 200.0
    q, qd, qdd = random_excitation(arm, 20.0, 5, 3)(jnp.asarray(t))
    tau = np.array(jax.vmap(lambda *x: inverse_dynamics(arm, *x) + resistive_force(arm, *x[:2]))(q, qd, qdd))
    tau[:, 1] += 40 * np.asarray(jax.vmap(jax.grad(lambda q: energy(q, **GEOMETRY)))(q[:, 1]))
    return arm, Log(t, np.asarray(q), None, tau + 0.05 * np.random.default_rng(0).normal(size=tau.shape))


@pytest.mark.ci
def test_a_counterbalance_is_identified_saved_and_simulated(balanced, tmp_path):
    arm, log = balanced
    start = Counterbalance(**(GEOMETRY | {"reserve": 0.3}), joints=(2,))
    terms = Terms(further=(start,), choose=())
    result = identify(arm, log, terms=terms, filters=Filters(10.0))
    plain = identify(arm, log, terms=Terms(choose=()), filters=Filters(10.0))
    assert result.validation[0].fit.rms[1] < 0.5 * plain.validation[0].fit.rms[1]
    k = result.friction.model.nonlinear_names().index("reserve(cb)")
    assert result.friction.nonlinear[1, k] == pytest.approx(0.1, rel=0.3)
    assert result.friction.nonlinear[1, k - 1] == pytest.approx(1.658, rel=1e-12)  # the geometry stays
    value = result.parameters[result.names.index("cb2")]
    assert value == pytest.approx(40, rel=0.2)
    save_torque_model(result.model, tmp_path / "model.eqx")
    loaded = load_torque_model(tmp_path / "model.eqx")
    states = [jnp.asarray(x[::500]) for x in (log.q, 0 * log.q, 0 * log.q)]
    np.testing.assert_allclose(loaded.torques(*states), result.model.torques(*states), rtol=1e-12)
    # what is chosen besides leaves it where it is
    found = identify(arm, log, terms=dataclasses.replace(terms, choose=("friction",)), filters=Filters(10.0))
    assert any(isinstance(term, Counterbalance) for term in found.friction.model.terms)
    assert found.validation[0].fit.rms[1] < 1.05 * result.validation[0].fit.rms[1]


def test_terms_of_single_joints_stand_only_where_they_are_named():
    model = FrictionModel((Counterbalance(**GEOMETRY, joints=(2,)), Cable(powers=(2,))))
    assert model.names(2) == ("ca2_1", "cb2", "ca2_2")
