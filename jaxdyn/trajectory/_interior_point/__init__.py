"""Nonlinear programs by an interior-point method."""
