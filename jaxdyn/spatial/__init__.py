"""Rotations, rigid motions and inertias; no robots."""
