"""The equations of motion and their derivatives, in joint space and in operational space."""
