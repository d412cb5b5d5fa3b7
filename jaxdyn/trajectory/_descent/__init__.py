"""Optimisation of controls and policies by gradients through the simulation."""
