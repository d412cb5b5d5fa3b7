"""Identification from a long log: time for its triangular factors, compared with a Python loop over Pinocchio's regressor.

jaxdyn computes the factors from a memory map of the log. Pinocchio is called once per sample and computes only the rows of the
regressor, so the time for these rows is also measured for jaxdyn. Neither library stores all rows: each chunk or sample
replaces the previous one.
"""

import os
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import jaxdyn
from jaxdyn.identification.accumulate import accumulate
from jaxdyn.identification.prediction import by_chunks, chunk_rows

from ..session import Session, Wrong
from .memory import high_water

PART = "identification"
TERMS = ("viscous", "coulomb", "offset")
LOOP = 20_000  # number of samples per turn of the loop over Pinocchio
RATE = 1000.0


def run(session: Session) -> None:
    columns = jaxdyn.identification.Columns(TERMS)
    for name in session.options.robots or ["panda"]:
        case = session.case(name, 64)
        row = {"part": PART, "robot": name, "quantity": "factors", "samples": session.options.samples}
        row |= {"columns": len(columns.names(case.robot.chain.n)), "devices": jax.local_device_count()}
        try:
            row["error"] = _check(case, columns)
        except Wrong as wrong:
            session.add(**row, library="jaxdyn", reason=str(wrong), failed=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.npy"
            _write(file, case.robot.chain.n, session.options.samples)
            _measure(session, case, columns, file, row)


def _measure(session: Session, case, columns, file: Path, row: dict) -> None:
    """Measure all calls in turns, and record the shortest time of each."""
    chain, n = case.robot.chain, case.robot.chain.n
    count = session.options.samples
    held = np.load(file, mmap_mode="r")
    parts = [held[:, k * n : (k + 1) * n] for k in range(4)]
    loop = min(LOOP, count)
    assemble = _assembly(columns, chain, parts)
    factorise = lambda: jaxdyn.identification.accumulate_stream(columns, chain, [parts])
    calls = {"whole": factorise, "rows": assemble}
    if case.reference.name == "Pinocchio":
        rows = case.reference.rows(
            {"q": parts[0][:loop], "v": parts[1][:loop], "a": parts[2][:loop]} | _unused(n, loop)
        )
        regressor = case.reference.single["regressor"]

        def peer():
            for state in rows:
                regressor(*state)

        calls["loop"] = peer
    seconds: dict[str, float] = {}
    core: dict[str, float] = {}  # processor time of all threads, which remains comparable on a busy machine
    for turn in range(session.options.turns + 1):
        for key, call in calls.items():
            before, spent = time.perf_counter(), time.process_time()
            call()
            taken, spent = time.perf_counter() - before, time.process_time() - spent
            if turn:
                seconds[key], core[key] = min(seconds.get(key, taken), taken), min(core.get(key, spent), spent)
            else:
                row.setdefault("first_" + key, taken)
    peak = high_water()
    row["first"] = row.pop("first_whole")
    row = {k: v for k, v in row.items() if not k.startswith("first_")}
    variants = {
        "whole": ("jaxdyn", "factors, from a memory map", count),
        "rows": ("jaxdyn", "rows only", count),
        "loop": ("Pinocchio", "Python loop, one thread", loop),
    }
    for key, (library, variant, done) in variants.items():
        if key in seconds:
            times = {"seconds": seconds[key] / done, "core_seconds": core[key] / done}
            session.add(**row, library=library, variant=variant, **times)
    session.records[-len(seconds)]["peak_bytes"] = peak


def _assembly(columns, chain, parts):
    """A call that computes all rows of the regressor, without storing them."""

    def summed(q, qd, qdd):
        return chunk_rows(columns, chain, q, qd, qdd)[:, 0, 0]

    return lambda: by_chunks(summed, *parts[:3]).sum()


def _check(case, columns) -> float:
    """The largest difference between R^T R and the product of the reference's regressor, relative to the norms of columns.

    Raises:
        Wrong: the difference exceeds rounding errors.
    """
    chain, state = case.robot.chain, case.state
    n = chain.n
    factors = accumulate(columns, chain, state["q"], state["v"], state["a"], np.zeros_like(state["q"]))
    rows = case.reference.rows(state)
    peer = case.reference.single["regressor"] if case.reference.name == "Pinocchio" else None
    own = jax.jit(jax.vmap(jaxdyn.regressor, (None, 0, 0, 0)))(chain, state["q"], state["v"], state["a"])
    w = np.array([peer(*r) for r in rows]) if peer else np.asarray(own)
    worst = 0.0
    for j in range(n):
        expected = w[:, j].T @ w[:, j]
        found = factors.r[j][:, : 10 * n].T @ factors.r[j][:, : 10 * n]
        size = np.sqrt(np.maximum(np.diag(expected), np.diag(found)))
        size[size < 1e-12 * size.max()] = size.max()
        worst = max(worst, float((np.abs(found - expected) / size / size[:, None]).max()))
    if not worst < 1e-10:
        raise Wrong(f"the factors differ from {case.reference.name}'s rows by {worst:.1e}")
    return worst


def _write(file: Path, n: int, count: int) -> None:
    """Write q, qd, qdd and tau of a smooth motion to a .npy file, in chunks."""
    rng = np.random.default_rng(0)
    amplitude, phase = 0.6 * rng.normal(size=(3, n)), rng.uniform(0, 6, (3, n))
    omega = 2 * np.pi * np.array([0.3, 0.71, 1.13])[:, None]
    out = np.lib.format.open_memmap(file, "w+", np.float64, (count, 4 * n))
    for at in range(0, count, 20_000):
        angle = omega * np.arange(at, min(at + 20_000, count))[:, None, None] / RATE + phase
        s, c = amplitude * np.sin(angle), amplitude * np.cos(angle)
        q, qd, qdd = s.sum(1), (omega * c).sum(1), -(omega**2 * s).sum(1)
        out[at : at + len(q)] = np.hstack([q, qd, qdd, rng.normal(size=q.shape)])
    out.flush()
    os.sync() if hasattr(os, "sync") else None


def _unused(n: int, count: int) -> dict:
    return {"tau": np.zeros((count, n)), "controls": np.zeros((count, 1, n))}
