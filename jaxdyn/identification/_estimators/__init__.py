"""Estimators of base parameters, and their comparison."""
