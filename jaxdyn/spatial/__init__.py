"""Rotations, rigid motions, and inertias of rigid bodies, independent of any robot model."""

from . import (
    inertia as inertia,
    se3 as se3,
    so3 as so3,
    solids as solids,
)
