"""Equations of motion in closed form, derived from a `Chain` by SymPy (`pip install "jaxdyn[symbolic]"`)."""

try:
    import sympy as _sympy  # noqa: F401
except ModuleNotFoundError as _missing:
    raise ImportError(
        'jaxdyn.symbolic requires SymPy, which is not installed: pip install "jaxdyn[symbolic]"'
    ) from _missing

from ._closed_form import derive as derive
from ._equations import Equations as Equations, Functions as Functions
from ._generated import GeneratedEquations as GeneratedEquations, generate as generate
from ._leaves import ten_parameters as ten_parameters
from ._regressor import RegressorFunctions as RegressorFunctions, SymbolicRegressor as SymbolicRegressor
from ._systems import textbook_leaves as textbook_leaves
