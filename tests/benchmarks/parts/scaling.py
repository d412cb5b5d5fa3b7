"""Time per evaluation and compilation time for random chains of 2 to 1000 joints and random trees of 10 to 300 joints."""

import time

import jax
import jax.numpy as jnp

from ..reference import RoundTrip
from ..session import Session, Wrong
from .throughput import pinocchio_calls

PART = "scaling"
BATCH, LARGEST = 128, 1 << 28  # batch size, and limit of the bytes of a batch
SIZES = {"chain": (2, 5, 10, 20, 50, 100, 200, 500, 1000), "tree": (10, 30, 100, 300)}
QUANTITIES = (
    "inverse_dynamics",
    "forward_dynamics",
    "crba",
    "inverse_dynamics_derivatives",
    "forward_dynamics_derivatives",
)


def run(session: Session) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    slow: dict[tuple, float] = {}  # seconds per state at the previous size, by shape and quantity
    for shape, sizes in SIZES.items():
        for n in sizes:
            if n <= session.options.max_links:
                measure(session, shape, n, slow)


def measure(session: Session, shape: str, n: int, slow: dict[tuple, float]) -> None:
    """Measure all quantities for one size of one shape (chain or tree)."""
    case = session.case(f"{shape}-{n}", BATCH)
    for quantity in session.wanted(case, QUANTITIES):
        row = {"part": PART, "robot": shape, "n": n, "quantity": quantity.name, "label": quantity.label}
        work = session.work(case, quantity)
        batch = int(min(BATCH, session.options.batch, max(LARGEST // work["bytes"], 1)))
        if slow.get((shape, quantity.name), 0) * batch * 5 > session.options.longest:
            session.add(**row, library="jaxdyn", reason="skipped: it would take too long")
            continue
        try:
            took = _compile(case, quantity)
            call, error = session.ours(case, quantity, batch)
        except Wrong as wrong:
            session.add(**row, library="jaxdyn", reason=str(wrong), failed=True)
            continue
        calls = {"jaxdyn": call}
        compared = not isinstance(case.reference, RoundTrip)
        loop = pinocchio_calls(case, quantity.name, min(batch, 64), 1).get("Python loop") if compared else None
        if loop:
            calls["Pinocchio"] = loop
        t = session.time(calls)
        seconds = slow[shape, quantity.name] = t["jaxdyn"] / batch
        session.add(**row, library="jaxdyn", batch=batch, seconds=seconds, error=error, compile_seconds=took)
        if loop:
            count = min(batch, 64)
            seconds = t["Pinocchio"] / count
            session.add(**row, library="Pinocchio", variant="Python loop", batch=count, seconds=seconds)


def _compile(case, quantity) -> float:
    """Compilation time of a program for one state, starting from Python [s]."""
    state = case.rows(1)
    one = [jnp.asarray(state[k][0], case.robot.chain.dtype) for k in quantity.arguments]
    start = time.perf_counter()
    jax.jit(lambda chain, *x: quantity.function(chain, *x)).lower(case.robot.chain, *one).compile()
    return time.perf_counter() - start
