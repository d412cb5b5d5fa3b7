"""Memory of a batch: temporary memory requested by the compiled program, and measured peak of the process."""

import jax
import jax.numpy as jnp

from ..session import Session
from . import QUANTITIES

PART = "memory"


def run(session: Session) -> None:
    batch = session.options.batch
    for name in session.options.robots or ["panda"]:
        case = session.case(name, 64)
        for quantity in session.wanted(case, QUANTITIES):
            work = session.work(case, quantity)
            if not session.fits(work, batch):
                session.add(
                    part=PART, robot=name, quantity=quantity.name, library="jaxdyn", reason="skipped: out of memory"
                )
                continue
            state = case.rows(batch, quantity.arguments)
            arrays = [jnp.asarray(state[k], case.robot.chain.dtype) for k in quantity.arguments]
            mapped = jax.jit(jax.vmap(quantity.function, (None, *[0] * len(arrays))))
            program = mapped.lower(case.robot.chain, *arrays).compile()
            analysis = program.memory_analysis()
            row = {"part": PART, "robot": name, "quantity": quantity.name, "label": quantity.label, "batch": batch}
            facts = {"bytes": work["bytes"], "temporary_bytes": analysis.temp_size_in_bytes / batch}
            jax.block_until_ready(program(case.robot.chain, *arrays))
            if (before := high_water(reset=True)) is not None:
                result = jax.block_until_ready(program(case.robot.chain, *arrays))
                facts["peak_bytes"] = max(high_water() - before, 0) / batch
                del result
            session.add(**row, library="jaxdyn", **facts)


def high_water(reset: bool = False) -> int | None:
    """Peak memory of the process in bytes, since its start or the last reset; None if not on Linux."""
    try:
        if reset:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
        with open("/proc/self/status", encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        return int(rows["VmHWM"].split()[0]) * 1024
    except OSError:
        return None
