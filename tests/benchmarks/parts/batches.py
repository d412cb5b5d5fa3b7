"""Throughput versus batch size, which shows from which size dispatch is negligible, and at which size caches are exhausted.

The curves show jaxdyn on one device, on all devices, and on one device in chunks (`jax.lax.map(batch_size=)`), Pinocchio, and
frax. The other libraries are measured in the part `throughput`.
"""

from ..session import CHUNK, Session, Wrong, why
from . import CURVES
from .throughput import pinocchio_calls

PART = "batches"
LARGEST_LOOP = 512  # larger batches are not measured, because the time per state of a Python loop is constant


def sizes(largest: int) -> list[int]:
    """The batch sizes 1, 4, 16, ..., up to the largest."""
    return [4**k for k in range(12) if 4**k <= largest]


def run(session: Session) -> None:
    for name in session.options.robots or ["panda"]:
        case = session.case(name)
        others = session.libraries(PART, case, [peer for peer in session.options.peers if peer == "frax"])
        for quantity in session.wanted(case, CURVES):
            measure(session, PART, case, quantity, others, session.options.max_batch)


def measure(session: Session, part: str, case, quantity, others: dict, largest: int) -> None:
    """Measure one curve per library, up to the batch size at which a call would take too long or too much memory."""
    devices = len(session.devices)
    work = session.work(case, quantity)
    row = {"part": part, "robot": case.robot.name, "quantity": quantity.name, "label": quantity.label}
    last: dict = {}  # seconds of each kind of call at the previous size
    for batch in sizes(largest):
        if not session.fits(work, batch):
            session.add(**row, batch=batch, library="jaxdyn", reason="skipped: it would not fit into memory")
            break
        calls, about = {}, {}

        wanted = lambda key, last=last: last.get(key, 0) * 4 < session.options.longest
        kinds = [("1 device", 1, False)]
        kinds += [(f"{devices} devices", devices, False)] if devices > 1 and batch % devices == 0 else []
        kinds += [(f"1 device, chunks of {CHUNK}", 1, True)] if batch > CHUNK else []
        for variant, used, chunked in kinds:
            key = ("jaxdyn", variant)
            if not wanted(key):
                continue
            try:
                calls[key], error = session.ours(case, quantity, batch, used, chunked)
            except Wrong as wrong:
                session.add(**row, batch=batch, library="jaxdyn", variant=variant, reason=str(wrong), failed=True)
                continue
            about[key] = {"error": error, "devices": used, **work, "floor": session.floor(work, used)}
        for variant, call in pinocchio_calls(case, quantity.name, batch, devices).items():
            if wanted(("Pinocchio", variant)) and (variant != "Python loop" or batch <= LARGEST_LOOP):
                calls["Pinocchio", variant] = call
        for library, entries in others.items():
            key = (library, "1 device")
            if quantity.name in entries and wanted(key):
                try:
                    calls[key], error = session.theirs(case, quantity.name, entries[quantity.name], batch)
                    about[key] = {"error": error, "remark": entries[quantity.name].remark}
                except Exception as error:
                    reason = why(error)
                    session.add(**row, batch=batch, library=library, reason=reason)
        last = session.time(calls)
        for key, seconds in last.items():
            facts = {"devices": 1, **about.get(key, {})}
            session.add(**row, library=key[0], variant=key[1], batch=batch, seconds=seconds / batch, **facts)
        if not any(key[0] == "jaxdyn" for key in calls):
            break
