"""Excitation trajectories: families of motions, limits, quality, and design."""
