"""Friction models: their terms, fits, and the choice among them."""
