"""Robots of makers and of textbooks, and what they are put together from."""
