"""Rotations, rigid motions, and inertias of rigid bodies, independent of any robot model."""

from .._exports import publish as _publish
from . import (
    inertia as inertia,
    se3 as se3,
    so3 as so3,
    solids as solids,
)

_publish(__name__, "inertia", "se3", "so3", "solids")
