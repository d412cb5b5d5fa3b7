"""Simulated motion and simulated logs of a robot with its controller."""
