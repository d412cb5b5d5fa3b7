"""Paths, how fast they can be followed, and point-to-point motions."""
