"""Optimal control as a nonlinear program: collocation, and splines by inverse dynamics."""
