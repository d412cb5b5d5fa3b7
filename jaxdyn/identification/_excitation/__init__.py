"""Excitation trajectories: families, limits, quality, design."""
