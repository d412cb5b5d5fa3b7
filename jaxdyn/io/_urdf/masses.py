"""Search for motions without kinetic energy, for which the mass matrix is singular."""

import numpy as np
from jaxtyping import Float

from ...spatial._host import adjoint, inertia_tensor, pose_inverse, skew
from .joints import Arrangement
from .tree import Layout

_SINGULAR = 1e-13  # eigenvalues of M, scaled to a unit diagonal, that are smaller than this (times n) count as zero


def massless_motion(parts: Arrangement) -> list[str]:
    """Find the joints that take part in a motion without kinetic energy, at one generic configuration.

    For a robot in which no link has mass (a kinematic model), the result is empty, unless the robot has a free joint.
    """
    layout = parts.layout
    if not np.any(layout.inertia[:, 0]) and not parts.quaternion_joints:
        return []
    matrix = _mass_matrix(layout) + np.diag([float(joint.leaves.get("armature", 0.0)) for joint in layout.joints])
    names = [joint.name for joint in layout.joints]
    whole = {names[k]: names[i].removesuffix("_wx") for i, size in parts.quaternion_joints for k in range(i, i + size)}
    if parts.coupling is not None:
        s = np.asarray(parts.coupling.matrix, float)
        matrix = s.T @ matrix @ s
        names = list(parts.coordinate_names or names)
    size = np.sqrt(np.diag(matrix).clip(0.0))
    scale = np.where(size <= 1e-150, 1.0, size)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    moves = np.abs(vectors[:, values < _SINGULAR * len(values)]).max(1, initial=0.0) > 1e-6
    return list(dict.fromkeys(whole.get(name, name) for name, part in zip(names, moves, strict=True) if part))


def _mass_matrix(layout: Layout) -> Float[np.ndarray, "n n"]:
    """Mass matrix M = sum_i J_i^T G_i J_i, with the Jacobian J_i and spatial inertia G_i of each link in the link's frame."""
    n = len(layout.joints)
    positions = np.random.default_rng(0).uniform(0.3, 1.2, n)
    jacobians, matrix = np.zeros((n, 6, n)), np.zeros((n, n))
    for i, (joint, parent) in enumerate(zip(layout.joints, layout.parents, strict=True)):
        moved = np.linalg.solve(joint.origin, joint.pose_at(positions[i]))
        if parent >= 0:
            jacobians[i] = adjoint(pose_inverse(layout.placements[i] @ moved)) @ jacobians[parent]
        jacobians[i, :, i] += joint.screw
        pi = layout.inertia[i]
        first = skew(pi[1:4])
        spatial = np.block([[inertia_tensor(pi), first], [first.T, pi[0] * np.eye(3)]])
        matrix += jacobians[i].T @ spatial @ jacobians[i]
    return matrix
