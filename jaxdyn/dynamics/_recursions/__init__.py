"""Recursions over the links: the two sweeps, and the steps on components that algorithms hand to them."""
