"""Robots, states and what the functions of dynamics give there, for programs that call them where they are easily misused."""

import functools
from collections.abc import Callable

import jax
import numpy as np

import jaxdyn
from helpers import random_chain, relative

Programs = dict[str, Callable[[], tuple]]  # what they found, what they should have found, and the tolerance where given

ID, FD = jaxdyn.inverse_dynamics, jaxdyn.forward_dynamics
ARM = random_chain(2, joints="revolute")
OTHER = random_chain(2, seed=5, joints="prismatic")
# an arm whose last joint mimics the one before
MIMIC = jaxdyn.with_coupling(random_chain(3, joints="revolute"), np.array([[1, 0], [0, 1], [0, -0.7]]))
STATE = tuple(np.random.default_rng(0).normal(size=(3, 2)))
ROWS = tuple(np.random.default_rng(1).normal(size=(3, 5, 2)))
STILL = np.zeros(2)


@functools.cache
def compiled(function: Callable, batch: bool = False) -> Callable:
    """As most users call it: what the programs are compared with."""
    return jax.jit(jax.vmap(function, (None, 0, 0, 0)) if batch else function)


def wanted(function: Callable = ID, robot=ARM, state=STATE):
    return compiled(function)(robot, *state)


def wanted_rows(function: Callable = ID, robot=ARM):
    return compiled(function, batch=True)(robot, *ROWS)


def checked(*groups: Programs) -> dict[str, Callable[[], str | None]]:
    """By name: what runs a program and says what is wrong with its numbers, or None."""
    return {name: functools.partial(_check, program) for group in groups for name, program in group.items()}


def _check(program: Callable) -> str | None:
    found, right, *tolerance = program()
    found, right = (jax.tree.map(np.asarray, jax.tree.leaves(x)) for x in (found, right))
    if len(found) != len(right):
        return f"{len(found)} arrays instead of {len(right)}"
    for k, (x, y) in enumerate(zip(found, right, strict=True)):
        if x.shape != y.shape:
            return f"result {k} has shape {x.shape} instead of {y.shape}"
        x, y = x.astype(float), y.astype(float)
        error = relative(x, y) if np.abs(y).max(initial=0) > 0 else np.abs(x).max(initial=0)
        if not error <= (tolerance[0] if tolerance else 1e-11):
            return f"result {k} is off by {error:.2g}: {x.tolist()} instead of {y.tolist()}"[:500]
    return None
