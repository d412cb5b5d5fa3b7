"""Coordinates, poses, Jacobians, accelerations of frames, the centre of mass."""
