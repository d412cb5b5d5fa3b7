"""Optimal control by multiple shooting."""
