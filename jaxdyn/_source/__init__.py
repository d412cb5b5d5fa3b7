"""Functions as source code: traced by JAX, taken apart into operations on scalars, written as C and as Python."""
