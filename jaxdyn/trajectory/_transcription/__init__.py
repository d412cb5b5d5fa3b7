"""Optimal control as a nonlinear program: collocation, and splines with inverse dynamics."""
