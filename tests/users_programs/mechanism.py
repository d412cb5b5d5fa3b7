"""The core of the dynamics on a mechanism with everything; `dynamics` has the table."""

from .dynamics import mechanism_cases as cases

__all__ = ["cases"]
