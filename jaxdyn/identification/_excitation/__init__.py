"""Exciting motions: families, limits, quality, design."""
