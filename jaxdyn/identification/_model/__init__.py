"""The whole model of the torques that was fitted, and its file."""
