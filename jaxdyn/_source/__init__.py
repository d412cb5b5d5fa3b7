"""Conversion of functions to source code: tracing by JAX, decomposition into scalar operations, output as C or Python."""
