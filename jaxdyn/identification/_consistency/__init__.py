"""Physically consistent least squares."""
