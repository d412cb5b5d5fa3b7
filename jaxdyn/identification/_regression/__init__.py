"""Stacked regressor: columns, triangular factors, base parameters and predictions."""
