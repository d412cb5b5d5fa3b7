"""Validation of models, and diagnostics of runs."""
