"""Coordinates, poses, Jacobians, accelerations of frames, and the centre of mass."""
