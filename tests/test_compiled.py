"""Public functions called without `jit`: one compilation, the numbers of the jitted function, errors that need the numbers."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, random_mechanism
from jaxdyn.model import compiled as _compiled
from users_programs.case import states

COMPILED = []  # a tracing or compilation each


def _count(event, *_, **__):
    if event.endswith(("jaxpr_trace_duration", "backend_compile_duration")):
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_count)
GROUPS = "dynamics", "quantities", "frames", "motion", "control"
DEFAULT = "inverse_dynamics", "step"
OFTEN = (
    "regressor",
    "aba",
    "operational_space",
    "distances",
    "constraint_jacobian",
    "gravity_compensation",
)  # of each group


def check_second_call(function, arguments):
    first = jax.tree.map(np.asarray, function(*arguments))
    function(*arguments)  # what stands around the public function has compiled too
    before = len(COMPILED)
    again = jax.tree.map(np.asarray, function(*arguments))
    assert COMPILED[before:] == []
    for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(x, y)
    return first


def named_cases():
    for group in GROUPS:
        cases = importlib.import_module(f"users_programs.{group}").cases()
        for name, case in cases.items():
            function = name.split(",")[0]
            if function.isidentifier() and function.islower() and not case.dear:
                marks = () if name in DEFAULT else (pytest.mark.ci if name in OFTEN else pytest.mark.nightly,)
                yield pytest.param(case, id=f"{group}-{name}", marks=marks)


@pytest.mark.parametrize("case", list(named_cases()))
def test_a_second_call_compiles_nothing(case):
    arguments = states(case, 1)[0]
    found = check_second_call(case.function, arguments)
    jitted = jax.jit(case.function)(*arguments)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(jitted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max(initial=1e-6))


def test_what_varies_compiles_once():
    """Other numbers, other step sizes, other robots of the same shape; another count of steps is another program."""
    arm, q = random_chain(2), jnp.asarray([0.3, -0.4])
    other = jaxdyn.with_inertial_parameters(arm, 2 * jaxdyn.inertial_parameters(arm))
    scaled = jaxdyn.step(other, q, q, 2 * q, 1e-3)
    jaxdyn.rollout(arm, q, q, np.zeros((4, 2)), 1e-3)
    before = len(COMPILED)
    assert not np.array_equal(jaxdyn.step(arm, q, q, 2 * q, 1e-3)[1], scaled[1])
    jaxdyn.step(arm, np.asarray(q), q, np.asarray(q), 2e-3)
    jaxdyn.rollout(arm, q, q, np.ones((4, 2)), 2e-3)
    assert COMPILED[before:] == []
    jaxdyn.rollout(arm, q, q, np.zeros((5, 2)), 1e-3)
    assert COMPILED[before:] != []


def test_a_policy_that_is_one_function_compiles_once():
    arm, q = random_chain(2), jnp.asarray([0.3, -0.4])
    policy = lambda t, q, qd: -q - qd
    check_second_call(lambda q: jaxdyn.rollout(arm, q, q, policy, 1e-3, steps=3), (q,))


@pytest.mark.ci
def test_a_policy_without_a_hash_is_traced_as_it_stands():
    @dataclasses.dataclass
    class Policy:
        gain: float

        def __call__(self, t, q, qd):
            return -self.gain * q

    arm, q, policy = random_chain(2), jnp.asarray([0.3, -0.4]), Policy(1.0)
    first, _ = jaxdyn.rollout(arm, q, q, policy, 1e-2, steps=2)
    policy.gain = 5.0
    second, _ = jaxdyn.rollout(arm, q, q, policy, 1e-2, steps=2)
    wanted, _ = jaxdyn.rollout(arm, q, q, lambda t, q, qd: -5.0 * q, 1e-2, steps=2)
    np.testing.assert_allclose(second, wanted, rtol=1e-14)
    assert not np.allclose(first, second, rtol=1e-6)


def test_errors_that_need_the_numbers(annotations_unchecked):
    chain = random_mechanism(3)
    v, message = jnp.zeros(chain.nv), "quaternion of .* in q is zero"
    for q in (jnp.zeros(chain.nq), np.zeros(chain.nq)):
        for _ in range(2):
            with pytest.raises(jaxdyn.ModelError, match=message):
                jaxdyn.inverse_dynamics(chain, q, v, v)
        with pytest.raises(jaxdyn.ModelError, match=message):
            jaxdyn.crba(chain, q=q)
    q = jaxdyn.neutral_configuration(chain)
    for _ in range(2):
        with pytest.raises(jaxdyn.ModelError, match="unknown link or frame 'no'"):
            jaxdyn.frame_pose(chain, q, "no")
        with pytest.raises(jaxdyn.ModelError, match="integration method"):
            jaxdyn.step(chain, q, v, v, 1e-3, method="no")
        with pytest.raises(jaxdyn.ModelError, match="pass the scheme as method="):
            jaxdyn.step(chain, q, v, v, 1e-3, "rk4")


def test_lists_of_numbers_are_states():
    arm, q = random_chain(2), [1, 0.5]
    np.testing.assert_array_equal(jaxdyn.mass_matrix(arm, q), jaxdyn.mass_matrix(arm, jnp.asarray(q)))
    np.testing.assert_array_equal(
        jaxdyn.inverse_dynamics(arm, q, qd=[0, 0], qdd=[1, 2]),
        jaxdyn.inverse_dynamics(arm, *jnp.array([q, [0, 0], [1, 2]])),
    )
    with pytest.raises(jaxdyn.ModelError, match="has 2 joints"):
        jaxdyn.mass_matrix(arm, [0, 0, 0])


@pytest.mark.ci
def test_new_targets_and_guesses_of_inverse_kinematics_compile_nothing():
    arm, q = random_chain(2), jnp.asarray([0.3, -0.4])
    targets = [jaxdyn.frame_pose(arm, x) for x in (q, 0.9 * q)]
    found = jaxdyn.inverse_kinematics(arm, targets[0], guess=q, starts=2)
    before = len(COMPILED)
    again = jaxdyn.inverse_kinematics(arm, targets[1], guess=found.q, starts=2, tolerance=1e-8)
    assert COMPILED[before:] == []
    np.testing.assert_allclose(jaxdyn.frame_pose(arm, again.q), targets[1], atol=1e-7)


@pytest.mark.parametrize("flags, quickly", [("", True), ("--xla_backend_optimization_level=3", False)])
def test_the_level_of_optimisation_is_lowered_unless_it_is_set(monkeypatch, flags, quickly):
    arm = random_chain(2)
    q = np.array([0.3, -0.4])
    expected = jax.jit(jaxdyn.inverse_dynamics)(arm, q, q, q)
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert _compiled._compiles_quickly.__wrapped__() is quickly
    monkeypatch.setattr(_compiled, "_compiles_quickly", lambda: quickly)
    np.testing.assert_allclose(jaxdyn.inverse_dynamics(arm, q, q, q), expected, rtol=1e-12)
