"""Optimal control problems: costs, constraints, guesses, and what a solver returns."""
