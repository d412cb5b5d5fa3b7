"""Throughput for humanoids with a floating base: the table of `throughput` with fewer quantities."""

from ..session import Session
from ..subjects import HUMANOIDS, Unavailable, subject
from .throughput import measure

PART = "trees"
QUANTITIES = (
    "inverse_dynamics crba coriolis_matrix forward_dynamics inverse_dynamics_derivatives forward_dynamics_derivatives step"
).split()


def run(session: Session) -> None:
    found = []
    for name in session.options.robots or list(HUMANOIDS):
        try:
            subject(name)
            found.append(name)
        except Unavailable as why:
            session.add(part=PART, robot=name, library="jaxdyn", reason=str(why))
    measure(session, PART, found, tuple(QUANTITIES), min(session.options.batch, 1024))
