"""Public functions called without `jit`: one compilation, the numbers of the jitted function, errors that need the numbers."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, random_mechanism
from users_programs.case import states

COMPILED = []  # a tracing or compilation each


def _count(event, *_, **__):
    if event.endswith(("jaxpr_trace_duration", "backend_compile_duration")):
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_count)
GROUPS = "dynamics", "quantities", "frames", "motion", "control"
DEFAULT = "inverse_dynamics", "step", "jacobian", "rollout"


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
            if name.split(",")[0] in vars(jaxdyn) and not case.dear:
                marks = () if name in DEFAULT else (pytest.mark.ci,)
                yield pytest.param(case, id=f"{group}-{name}", marks=marks)


@pytest.mark.parametrize("case", list(named_cases()))
def test_a_second_call_compiles_nothing(case):
    arguments = states(case, 1)[0]
    found = check_second_call(case.function, arguments)
    jitted = jax.jit(case.function)(*arguments)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(jitted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max(initial=1e-6))
