"""Simulated motion and logs of a controlled robot."""
