"""The complete fitted torque model, its file format and its generated code."""
