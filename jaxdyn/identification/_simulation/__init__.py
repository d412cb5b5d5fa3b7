"""Simulated motion and logs of a robot under its controller."""
