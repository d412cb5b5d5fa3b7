"""Least squares among bodies that can exist."""
