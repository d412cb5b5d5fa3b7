"""Throughput versus batch size on JAX's default device, in both precisions, with the share of the device's peak.

This part requires only jaxdyn and its dependencies. Without Pinocchio, results are compared with those of jaxdyn in float64 on
the CPU.
"""

import jax

from .. import machine
from ..session import Session, Wrong, why
from ..subjects import STEPS
from . import CURVES
from .batches import sizes

PART = "gpu"


def run(session: Session) -> None:
    for name in session.options.robots or ["panda"]:
        case = session.case(name)
        for precision in session.options.precisions:
            chain = jax.tree.map(lambda x, dtype=precision: x.astype(dtype), case.robot.chain)
            for quantity in session.wanted(case, CURVES):
                _measure(session, case, quantity, chain, precision)


def _measure(session: Session, case, quantity, chain, precision: str) -> None:
    work = session.work(case, quantity, precision)
    row = {"part": PART, "robot": case.robot.name, "quantity": quantity.name, "label": quantity.label}
    row |= {"library": "jaxdyn", "precision": precision, "reference": case.reference.name}
    seconds = 0.0
    for batch in sizes(session.options.max_batch)[
        ::2
    ]:  # every second size, because each is a separate program, which takes seconds to compile
        if not session.fits(work, batch) or 4 * seconds > session.options.longest:
            session.add(**row, batch=batch, reason="skipped: it would take too long or would not fit into memory")
            return
        try:
            call, error = session.ours(case, quantity, batch, chain=chain)
        except Wrong as wrong:
            session.add(**row, batch=batch, reason=str(wrong), failed=True)
            return
        except jax.errors.JaxRuntimeError as error:
            session.add(**row, batch=batch, reason=why(error))
            return
        seconds = session.time({"": call})[""]
        peak = machine.peaks(precision, session.options.budget, session.options.turns)
        by = {
            "arithmetic": work["operations"] / peak["flops"],
            "memory": work["bytes"] / peak["bytes"],
        }
        steps = {"steps_per_second": STEPS * batch / seconds} if quantity.name == "rollout" else {}
        facts = {"error": error, **work, "floor": max(by.values()), "bound": max(by, key=by.get), **steps}
        session.add(**row, variant="1 device", devices=1, batch=batch, seconds=seconds / batch, **facts)
        used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        if used:
            session.records[-1]["peak_bytes"] = used
