"""Paths, their time-optimal timing, and point-to-point motions."""
