"""Functions as source code: traced by JAX, decomposed into scalar operations, written as C and Python."""
