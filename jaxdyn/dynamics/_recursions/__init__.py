"""Recursions over the links: the two sweeps, and the step functions passed to them."""
