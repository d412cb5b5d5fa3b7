"""The stacked regressor: its columns, triangular factors, base parameters, predictions."""
