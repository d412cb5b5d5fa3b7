"""The complete fitted torque model, and its file."""
