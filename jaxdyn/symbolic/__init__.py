"""Equations of motion in closed form, derived from a `Chain` by SymPy (`pip install "jaxdyn[symbolic]"`)."""

try:
    import sympy as _sympy  # noqa: F401
except ModuleNotFoundError as _missing:
    raise ImportError(
        'jaxdyn.symbolic requires SymPy, which is not installed: pip install "jaxdyn[symbolic]"'
    ) from _missing

from .._exports import publish as _publish
from .equations import (
    Equations as Equations,
    SymbolicRegressor as SymbolicRegressor,
    derive as derive,
    textbook_leaves as textbook_leaves,
)
from .expressions import ten_parameters as ten_parameters
from .generated import GeneratedEquations as GeneratedEquations, generate as generate

_publish(__name__)
