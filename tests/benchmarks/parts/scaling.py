"""Random chains of 2 to 1000 revolute joints: time an evaluation, and what compiling takes."""

import time

import jax
import jax.numpy as jnp

from ..session import Session, Wrong
from .throughput import pinocchio_calls

PART = "scaling"
BATCH, LARGEST = 128, 1 << 28  # states at once, as long as their results take no more bytes than that
SIZES = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
QUANTITIES = ("inverse_dynamics", "forward_dynamics", "crba", "coriolis_matrix", "inverse_dynamics_derivatives")


def run(session: Session) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    sizes = [n for n in SIZES if n <= session.options.max_links]
    slow: dict[str, float] = {}  # seconds a state at the size before
    for n in sizes:
        case = session.case(f"chain-{n}", BATCH)
        for quantity in session.wanted(case, QUANTITIES):
            row = {"part": PART, "robot": "chain", "n": n, "quantity": quantity.name, "label": quantity.label}
            bytes_each = session.work(case, quantity)["bytes"]
            batch = int(min(BATCH, session.options.batch, max(LARGEST // bytes_each, 1)))
            if slow.get(quantity.name, 0) * batch * 5 > session.options.longest:
                session.add(**row, library="jaxdyn", reason="skipped: it would take too long")
                continue
            try:
                took = _compile(case, quantity)
                call, error = session.ours(case, quantity, batch)
            except Wrong as wrong:
                session.add(**row, library="jaxdyn", reason=str(wrong), failed=True)
                continue
            calls = {"jaxdyn": call}
            loop = pinocchio_calls(case, quantity.name, min(batch, 64), 1).get("Python loop")
            if loop:
                calls["Pinocchio"] = loop
            t = session.time(calls)
            slow[quantity.name] = t["jaxdyn"] / batch
            session.add(
                **row, library="jaxdyn", batch=batch, seconds=t["jaxdyn"] / batch, error=error, compile_seconds=took
            )
            if loop:
                count = min(batch, 64)
                session.add(
                    **row, library="Pinocchio", variant="Python loop", batch=count, seconds=t["Pinocchio"] / count
                )


def _compile(case, quantity) -> float:
    """Seconds from Python to a compiled program of one state."""
    state = case.rows(1)
    one = [jnp.asarray(state[k][0], case.robot.chain.dtype) for k in quantity.arguments]
    start = time.perf_counter()
    jax.jit(lambda chain, *x: quantity.function(chain, *x)).lower(case.robot.chain, *one).compile()
    return time.perf_counter() - start
