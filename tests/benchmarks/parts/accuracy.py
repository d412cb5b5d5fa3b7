"""Relative errors of float32 over many states: the median, the 99.9 % quantile, and the largest.

Results in float32 are compared with those in float64 for the same arguments, rounded to float32. The error in a state is the
largest absolute difference, divided by the largest entry of the result. The results in float64 are first compared with the
reference.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..session import ROWS, Session, Wrong
from ..subjects import STEPS, states
from . import QUANTITIES

PART = "accuracy"


def run(session: Session) -> None:
    for name in session.options.robots or ["panda"]:
        case = session.case(name, ROWS)
        double = case.robot.chain
        single = jax.tree.map(lambda x: x.astype(jnp.float32), double)
        double = jax.tree.map(lambda x: x.astype(jnp.float64), single)
        for quantity in session.wanted(case, QUANTITIES):
            row = {"part": PART, "robot": name, "quantity": quantity.name, "label": quantity.label, "library": "jaxdyn"}
            try:
                session.ours(case, quantity, 64)
            except Wrong as wrong:
                session.add(**row, reason=str(wrong), failed=True)
                continue
            program = jax.jit(jax.vmap(quantity.function, (None, *[0] * len(quantity.arguments))))
            errors = []
            for seed in range(max(session.options.states // ROWS, 1)):
                given = _state(case, min(session.options.states, ROWS), seed)
                pair = []
                for chain in (single, double):
                    arrays = [jnp.asarray(given[k], jnp.float32).astype(chain.dtype) for k in quantity.arguments]
                    pair.append(jax.tree.leaves(jax.device_get(program(chain, *arrays))))
                errors.append(_errors(*pair))
            errors = np.concatenate(errors)
            worst, most, half = np.max(errors), np.quantile(errors, 0.999), np.median(errors)
            session.add(**row, precision="float32", states=len(errors), worst=worst, most=most, half=half)


def _state(case, count: int, seed: int) -> dict:
    """The case's own states for seed 0, other states for other seeds, with the torques of their accelerations."""
    if seed == 0:
        return case.rows(count)
    given = states(case.robot, count, seed)
    given["tau"] = case.reference.torques(given)
    given["controls"] = np.broadcast_to(given["tau"][:, None], (count, STEPS, case.robot.nv))
    return given


def _errors(single: list, double: list) -> np.ndarray:
    worst = np.zeros(len(double[0]))
    for x, y in zip(single, double, strict=True):
        x, y = (np.asarray(z, float).reshape(len(z), -1) for z in (x, y))
        worst = np.maximum(worst, np.abs(x - y).max(1) / np.maximum(np.abs(y).max(1), 1e-300))
    return worst
