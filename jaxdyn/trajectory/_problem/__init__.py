"""Optimal control problems: costs, constraints, guesses and solutions."""
