"""Throughput of all quantities for one batch, on one device and on all, compared with Pinocchio and other libraries."""

from ..session import Case, Session, Wrong, why
from . import QUANTITIES

PART = "throughput"
SMALL = 64  # number of states for libraries that would take too long for the whole batch


def run(session: Session) -> None:
    measure(session, PART, session.options.robots or ["panda", "ur10"], QUANTITIES, session.options.batch)


def measure(session: Session, part: str, robots: list[str], default: tuple[str, ...], batch: int) -> None:
    """Measure all quantities for the robots of a part, `throughput` or `trees`."""
    for name in robots:
        case = session.case(name)
        others = session.libraries(part, case, session.options.peers)
        for quantity in session.wanted(case, default):
            try:
                measure_one(session, part, case, quantity, others, batch)
            except Wrong as wrong:
                row = {"part": part, "robot": case.robot.name, "quantity": quantity.name, "label": quantity.label}
                session.add(**row, library="jaxdyn", reason=str(wrong), failed=True)


def measure_one(session: Session, part: str, case: Case, quantity, others: dict, batch: int) -> None:
    """Measure one quantity; raise `Wrong` if jaxdyn's result is wrong, and record the errors of other libraries."""
    devices = len(session.devices)
    batch -= batch % devices
    work = session.work(case, quantity)
    if not session.fits(work, batch):
        batch = max(batch // 16, devices)
    row = {
        "part": part,
        "robot": case.robot.name,
        "nv": case.robot.nv,
        "quantity": quantity.name,
        "label": quantity.label,
    }
    calls, about = {}, {}

    def offer(key, call, **facts):
        calls[key] = call
        about[key] = {"batch": batch, "devices": 1, **facts}

    call, error = session.ours(case, quantity, batch)
    offer(("jaxdyn", "1 device"), call, error=error, **work, floor=session.floor(work))
    if devices > 1:
        call, error = session.ours(case, quantity, batch, devices)
        facts = {"error": error, "devices": devices, **work, "floor": session.floor(work, devices)}
        offer(("jaxdyn", f"{devices} devices"), call, **facts)
    for variant, call in pinocchio_calls(case, quantity.name, batch, devices).items():
        offer(("Pinocchio", variant), call, batch=min(batch, SMALL * 8) if variant == "Python loop" else batch)
    for library, entries in others.items():
        if quantity.name in entries:
            try:
                call, error, used = _peer(session, case, quantity.name, entries[quantity.name], batch)
            except Exception as error:  # any exception is a reason not to measure a library
                session.add(**row, library=library, reason=why(error))
                continue
            offer((library, "1 device"), call, error=error, batch=used, remark=entries[quantity.name].remark)
    for key, seconds in session.time(calls).items():
        session.add(**row, library=key[0], variant=key[1], seconds=seconds / about[key]["batch"], **about[key])


def pinocchio_calls(case: Case, quantity: str, batch: int, threads: int) -> dict:
    """Calls of Pinocchio: a Python loop over single states, and batched functions on one thread and on all threads."""
    single = getattr(case.reference, "single", {}).get(quantity)
    if single is None:
        return {}
    rows = case.reference.rows(case.rows(min(batch, SMALL * 8)))

    def loop():
        for row in rows:
            single(*row)

    found = {"Python loop": loop}
    for count in sorted({1, threads}):
        call = case.reference.parallel(quantity, case.rows(batch, ("q", "v", "a", "tau")), count)
        if call is not None:
            found[f"in parallel, {count} thread{'s' * (count > 1)}"] = call
    return found


def _peer(session: Session, case: Case, quantity: str, entry, batch: int):
    """A library's call on the batch, or on a few states if that would take too long; return (call, error, states)."""
    small = min(batch, SMALL)
    call, error = session.theirs(case, quantity, entry, small)
    seconds = session.time({"": call})[""]
    if batch > small and seconds / small * batch < session.options.longest:
        call, error = session.theirs(case, quantity, entry, batch)
        small = batch
    return call, error, small
