"""Friction models: terms, fits, and selection."""
