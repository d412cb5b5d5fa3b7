"""Fallback for functions that cannot be one kernel: on a GPU, each batched library function that they call becomes a kernel."""

from collections.abc import Callable
from typing import Any

import jax

from .._jax_compat import eval_jaxpr
from ..errors import DeploymentError
from ._kernel_call import call_kernel


def with_kernels(batched: Callable, interpret: bool) -> Callable:
    """Rewrite a batched function so that library functions such as forward dynamics run as kernels, except on CPUs.

    Args:
        interpret: True to run these kernels in Pallas' interpreter, on any device.
    """

    def rewritten(*variables):
        traced = jax.make_jaxpr(batched)(*variables)
        return eval_jaxpr(_rewritten(traced.jaxpr, interpret), traced.consts, *variables)

    return rewritten


def _rewritten(jaxpr: Any, interpret: bool) -> Any:
    return jaxpr.replace(eqns=[_equation(x, interpret) for x in jaxpr.eqns])


def _equation(equation: Any, interpret: bool) -> Any:
    parameters = equation.params
    if equation.primitive.name == "by_platform":
        default = with_kernels(parameters["default"], interpret)  # a solver, for example, calls other library functions
        if parameters["each"] is not None:
            function, mapped = parameters["each"]
            default = _kernel(function, mapped, default, interpret)
        avals = [x.aval for x in equation.invars]
        cpu = jax.make_jaxpr(default)(*avals) if interpret else parameters["cpu"]
        return equation.replace(params={**parameters, "default": default, "cpu": cpu})
    return equation.replace(params={name: _parameter(x, interpret) for name, x in parameters.items()})


def _parameter(x: Any, interpret: bool) -> Any:
    """Rewrite all programs within a parameter of an equation."""
    if type(x) is tuple:
        return tuple(_parameter(y, interpret) for y in x)
    if hasattr(x, "consts") and hasattr(x, "jaxpr"):
        return x.replace(jaxpr=_rewritten(x.jaxpr, interpret))
    return _rewritten(x, interpret) if hasattr(x, "eqns") else x


def _kernel(function: Callable, mapped: tuple[bool, ...], default: Callable, interpret: bool) -> Callable:
    """Batched form of a function of one state, evaluated by one kernel if possible, and by `default` otherwise."""

    def evaluated(*variables):
        try:
            return call_kernel(lambda *x: jax.tree.leaves(function(*x)), mapped, variables, interpret)
        except DeploymentError:
            return default(*variables)

    return evaluated
