"""What is taken from outside of JAX's stable interface, in one place. Seen to work with jax 0.10.2 and 0.11.2."""

from jax._src.core import trace_state_clean as trace_state_clean
from jax.core import Tracer as Tracer, eval_jaxpr as eval_jaxpr
from jax.custom_batching import custom_vmap as custom_vmap
from jax.custom_derivatives import SymbolicZero as SymbolicZero
from jax.experimental.multihost_utils import process_allgather as process_allgather
from jax.experimental.xla_metadata import set_xla_metadata as set_xla_metadata
from jax.interpreters.partial_eval import dce_jaxpr as dce_jaxpr
