"""Duration of one call for one robot in one state, compared with a jitted function of the same arguments that does nothing."""

import jax
import jax.numpy as jnp

from ..session import Session, Wrong, why
from ..timing import waited
from . import QUANTITIES

PART = "latency"


def run(session: Session) -> None:
    dispatch = "calling thread" if session.options.inline else "JAX's default"
    for name in session.options.robots or ["panda"]:
        case = session.case(name, 64)
        others = session.libraries(PART, case, session.options.peers)
        for quantity in session.wanted(case, QUANTITIES):
            _measure(session, case, quantity, others, dispatch)


def _measure(session: Session, case, quantity, others: dict, dispatch: str) -> None:
    chain, function = case.robot.chain, quantity.function
    state = case.rows(1)
    one = [jnp.asarray(state[k][0], chain.dtype) for k in quantity.arguments]
    calls = {
        ("jaxdyn", "robot closed over"): waited(jax.jit(lambda *x: function(chain, *x)), *one),
        ("jaxdyn", "robot an argument"): waited(jax.jit(function), chain, *one),
        ("empty", "robot closed over"): waited(jax.jit(lambda *x: x[0]), *one),
        ("empty", "robot an argument"): waited(jax.jit(lambda c, *x: x[0]), chain, *one),
    }
    row = {
        "part": PART,
        "robot": case.robot.name,
        "quantity": quantity.name,
        "label": quantity.label,
        "dispatch": dispatch,
    }
    errors, remarks = {}, {}
    for key in list(calls)[:2]:
        result = jax.tree.map(lambda x: jax.device_get(x)[None], calls[key]())
        try:
            found = case.reference.layout.convert(quantity.form, result, state)
            errors[key] = case.error(quantity.name, found, session.precision)
        except Wrong as wrong:
            session.add(**row, library="jaxdyn", variant=key[1], reason=str(wrong), failed=True)
            del calls[key]
    for library, entries in others.items():
        if quantity.name in entries:
            entry, key = entries[quantity.name], (library, "robot closed over")
            try:
                calls[key], errors[key] = session.theirs(case, quantity.name, entry, None)
                remarks[key] = entry.remark
            except Exception as error:
                session.add(**row, library=library, reason=why(error))
    single = getattr(case.reference, "single", {}).get(quantity.name)
    if single:
        given = case.reference.rows(state)[0]
        calls["Pinocchio", "robot closed over"] = lambda: single(*given)
    for key, seconds in session.time(calls).items():
        library, variant = key
        session.add(
            **row,
            library=library,
            variant=variant,
            batch=1,
            seconds=seconds,
            error=errors.get(key),
            remark=remarks.get(key, ""),
        )
