"""The definitions of the dynamics, and that the fast algorithms return the same values and derivatives."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, random_chain, random_mechanism, random_state, relative
from jaxdyn import robots, textbook
from jaxdyn.dynamics import rnea

ROBOTS = {
    "serial": lambda: random_chain(5, 1),
    "mechanism": random_mechanism,  # a tree with free, spherical and coupled joints and with rotors
    "base pose": lambda: dataclasses.replace(
        robots.panda(), base_pose=jaxdyn.spatial.se3.pose_exp(jnp.arange(1.0, 7.0))
    ),
    "biped": textbook.biped,
    "mounted": lambda: random_mechanism(2, free=False),
    "uncoupled": lambda: random_mechanism(3, coupled=False),
    "elbow": lambda: textbook.remotely_driven_elbow(motor_inertia=0.1, gear_ratio=3.0),
    "wrist": textbook.coupled_wrist,
}
NAMES = {
    "inverse_dynamics": 3,
    "gravity_force": 1,
    "bias_force": 2,
    "mass_matrix": 1,
    "christoffel_symbols": 1,
    "coriolis_matrix": 2,
    "regressor": 3,
}


def terms(module, chain, state):
    return {name: getattr(module, name)(chain, *state[:count]) for name, count in NAMES.items()}


def test_fast_algorithms_equal_the_definitions():
    chain = random_chain(3, 1)
    state = random_state(chain.n, 4)
    expected, found = jax.jit(lambda: [terms(module, chain, state) for module in (rnea, jaxdyn.dynamics)])()
    assert {name: relative(found[name], x) < 1e-12 for name, x in expected.items()} == dict.fromkeys(NAMES, True)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ROBOTS)
def test_derivatives_of_fast_algorithms_equal_those_of_the_definitions(kind):
    """Values, and derivatives along a direction of positions, velocities and accelerations."""
    chain = ROBOTS[kind]()
    q, v, a = mechanism_state(chain, 4)
    along = lambda s: (jaxdyn.integrate(chain, q, s * v), v + s * a, a - s * v)
    both = lambda s: [terms(module, chain, along(s)) for module in (rnea, jaxdyn.dynamics)]
    pairs = jax.jit(lambda: jax.jvp(both, (jnp.zeros(()),), (jnp.ones(()),)))()
    for expected, found in pairs:
        assert {name: relative(found[name], x) < 1e-12 for name, x in expected.items()} == dict.fromkeys(NAMES, True)


def test_wrenches_act_on_links_and_the_tip():
    chain = robots.panda()
    state, rng = random_state(chain.n, 1), np.random.default_rng(0)
    wrenches, tip = jnp.asarray(rng.normal(size=(chain.n, 6))), jnp.asarray(rng.normal(size=6))
    expected = rnea.inverse_dynamics(chain, *state, wrenches, tip)
    np.testing.assert_allclose(jaxdyn.inverse_dynamics(chain, *state, wrenches, tip), expected, rtol=1e-12)


def test_the_definitions_fit_on_a_few_pages():
    assert len(inspect.getsource(rnea).splitlines()) <= 300
    imports = [line for line in inspect.getsource(rnea).splitlines() if line.startswith("from .")]
    assert not [line for line in imports if "engine" in line]


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=() if x in ("inverse_dynamics", "crba") else pytest.mark.nightly) for x in (*NAMES, "crba")],
)
def test_one_switch_replaces_fast_algorithms_by_definitions(name, monkeypatch):
    """With `JAXDYN_DEFINITIONS=1`, a program is that of the definition, for one state and for a batch."""
    chain = random_chain(3, 1)
    state = random_state(chain.n, 4)[: NAMES.get(name, 1)]
    states = [jnp.stack([x, x]) for x in state]

    def traced():
        function = lambda *x: getattr(jaxdyn.dynamics, name)(chain, *x)  # JAX keeps the programs of functions it knows
        return [str(jax.make_jaxpr(f)(*x)) for f, x in ((function, state), (jax.vmap(function), states))]

    calls, step = [], rnea.link_motion
    monkeypatch.setattr(rnea, "link_motion", lambda *x: calls.append(x) or step(*x))
    fast = all("by_platform" in text for text in traced())
    assert fast == (name != "christoffel_symbols") and not calls  # these are derivatives, which are not kernels
    monkeypatch.setenv("JAXDYN_DEFINITIONS", "1")
    assert not any("by_platform" in text for text in traced()) and calls


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["serial", "mechanism"])
def test_all_that_depends_on_the_definitions_keeps_its_values(kind, monkeypatch):
    chain = random_chain(2, 1) if kind == "serial" else ROBOTS[kind]()
    q, v, a = mechanism_state(chain, 4)
    wrenches = jnp.asarray(np.random.default_rng(5).normal(size=(chain.n, 6)))

    def run():
        def everything(q, v, a):
            return (
                jaxdyn.inverse_dynamics(chain, q, v, a, wrenches),
                jaxdyn.forward_dynamics(chain, q, v, a, wrenches),
                jaxdyn.mass_matrix_inverse(chain, q),
                jaxdyn.inverse_dynamics_derivatives(chain, q, v, a),
                jaxdyn.forward_dynamics_derivatives(chain, q, v, a),
                jax.grad(lambda q: jaxdyn.forward_dynamics(chain, q, v, a).sum())(q),
            )

        lowered = jax.jit(everything).lower(q, v, a)
        return lowered.as_text(), lowered.compile()(q, v, a)

    fast, expected = run()
    monkeypatch.setenv("JAXDYN_DEFINITIONS", "1")
    plain, found = run()
    assert "xla_cpu_small_call" in fast and "xla_cpu_small_call" not in plain
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert relative(x, y) < 1e-12
