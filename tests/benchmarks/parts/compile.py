"""Compilation time, from Python to an executable, for one state and for a batch, and number of equations in the jaxpr."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from .. import operations
from ..session import Session, why
from . import QUANTITIES

PART = "compile"


def run(session: Session) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    batch = session.options.batch
    for name in session.options.robots or ["panda"]:
        case = session.case(name, 64)
        chain = case.robot.chain
        others = session.libraries(PART, case, session.options.peers)
        for quantity in session.wanted(case, QUANTITIES):
            row = {"part": PART, "robot": name, "quantity": quantity.name, "label": quantity.label}
            state = case.rows(1)
            arrays = [jnp.asarray(state[k], chain.dtype) for k in quantity.arguments]
            measured = _compile(functools.partial(quantity.function, chain), arrays, batch)
            session.add(**row, library="jaxdyn", **measured)
            for library, entries in others.items():
                if quantity.name in entries:
                    entry = entries[quantity.name]
                    arrays = [jnp.asarray(x[:1], session.precision) for x in entry.arguments]
                    try:
                        session.add(
                            **row, library=library, remark=entry.remark, **_compile(entry.function, arrays, batch)
                        )
                    except Exception as error:
                        session.add(**row, library=library, reason=why(error))


def _compile(function, arrays: list, batch: int) -> dict:
    one = [x[0] for x in arrays]
    many = [jnp.asarray(np.repeat(np.asarray(x), batch, 0)) for x in arrays]
    found = {"equations": operations.count(lambda *x: function(*x), *one).equations}
    for key, f, given in (("compile_seconds", function, one), ("compile_seconds_batch", jax.vmap(function), many)):
        start = time.perf_counter()
        jax.jit(lambda *x, f=f: f(*x)).lower(*given).compile()
        found[key] = time.perf_counter() - start
    return found
