"""How well a model explains runs, and what speaks against it."""
