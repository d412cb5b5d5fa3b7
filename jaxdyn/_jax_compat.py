"""Imports of all names outside JAX's stable interface, for jax 0.10.2 and 0.11.2."""

from typing import Any

from jax._src.core import trace_state_clean as trace_state_clean
from jax.core import ShapedArray as ShapedArray, Tracer as Tracer, eval_jaxpr as eval_jaxpr
from jax.custom_batching import custom_vmap as custom_vmap
from jax.custom_derivatives import SymbolicZero as SymbolicZero
from jax.experimental.compilation_cache.compilation_cache import reset_cache as reset_cache
from jax.experimental.multihost_utils import process_allgather as process_allgather
from jax.experimental.xla_metadata import set_xla_metadata as set_xla_metadata
from jax.extend.core import Literal as Literal, Primitive as Primitive
from jax.interpreters.ad import (
    Zero as Zero,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
    primitive_jvps as primitive_jvps,
    primitive_transposes as primitive_transposes,
)
from jax.interpreters.batching import primitive_batchers as primitive_batchers
from jax.interpreters.mlir import lower_fun as lower_fun, register_lowering as register_lowering
from jax.interpreters.partial_eval import dce_jaxpr as dce_jaxpr


def scan_counts(parameters: dict[str, Any]) -> tuple[int, int]:
    """Numbers of constant and carried operands of a scan."""
    if "num_consts" in parameters:  # before jax 0.11
        return parameters["num_consts"], parameters["num_carry"]
    constants, carried, _ = (len(list(x)) for x in parameters["ft_in"].unpack())
    return constants, carried


def pallas() -> Any:
    """Pallas, imported on first use because the import takes half a second."""
    from jax.experimental import pallas

    return pallas


def pallas_triton() -> Any:
    """Pallas' Triton backend, imported on first use."""
    from jax.experimental.pallas import triton

    return triton
