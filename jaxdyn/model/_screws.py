"""Chains from screw axes, by the product-of-exponentials formula of Lynch & Park 2017."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ModelError
from ..spatial._host import Values, adjoint, pose_inverse
from ._build import check_pose, make_chain
from ._chain import Chain, Topology


def from_screws(
    screws: Values,
    home_poses: Values,
    spatial_inertias: Values,
    *,
    tip_pose: Values | None = None,
    **leaves: Any,
) -> Chain:
    """Build a chain from the screw axes and the link poses in its home position q = 0.

    In a serial chain, the pose of link i is T_0i(q) = exp([S_1] q_1) ... exp([S_i] q_i) M_i (Lynch & Park 2017, sec. 4.1 and
    8.3). The link frames of the chain are the frames {i} with the home poses M_i; a joint axis need not pass through the
    origin of its link frame. The joint screw in {i} is A_i = Ad(M_i^-1) S_i, and the placement of {i} in its parent frame p
    is M_p^-1 M_i.

    Args:
        screws: space screws S_i = (w, v) in base coordinates at q = 0, one per row, (n, 6) [1, m/rad]. A revolute axis
            through the point p has v = -w x p, and a helical joint with pitch h [m/rad] has v = -w x p + h w. A prismatic
            joint has w = 0 and |v| = 1. The code that accompanies the book stores screws as columns; transpose such arrays.
        home_poses: poses M_i of the link frames {i} in the base (not in the previous link) at q = 0, (n, 4, 4) [m].
        spatial_inertias: spatial inertias G_i of the links in {i}, (n, 6, 6), angular part first [kg m^2, kg m, kg]; the
            origin of {i} need not be at the centre of mass. Alternatively, ten inertial parameters per link about the origin
            of {i}, (n, 10) [kg, kg m, kg m^2].
        tip_pose: pose of the tip in the base at q = 0 [m]. The frame "tip" is added to the last link and becomes the
            chain's tip.
        leaves: further arguments of `make_chain` (topology, frames, friction, armature, limits, gravity).

    Raises:
        ModelError: a shape is wrong; a pose is not a rigid motion; a matrix is not a spatial inertia; also the errors of
            `make_chain`.
    """
    s = np.asarray(screws, float)
    if s.ndim != 2 or s.shape[1] != 6 or s.shape[0] == 0:
        hint = "; if the screws are columns, as in the book's code, transpose the array" if s.shape[:1] == (6,) else ""
        raise ModelError(f"screws has shape {s.shape}, but must have shape (n, 6), with one screw (w, v) per row{hint}")
    n = s.shape[0]
    poses = np.asarray(home_poses, float)
    if poses.shape != (n, 4, 4):
        raise ModelError(f"home_poses has shape {poses.shape}, but {n} screws require ({n}, 4, 4)")
    for i in range(n):
        check_pose(f"home pose {i + 1}", poses[i])
    inverse = np.array([pose_inverse(t) for t in poses])
    topology = leaves.get("topology")
    parents = range(-1, n - 1) if topology is None else topology.parents
    placement = np.array([inverse[p] @ t if 0 <= p < n else t for p, t in zip(parents, poses, strict=False)])
    if len(placement) != n:
        raise ModelError(
            f"the topology has {len(placement)} parents, but there are {n} screws; pass one parent per screw"
        )
    if tip_pose is not None:
        tip = np.asarray(tip_pose, float)
        check_pose("tip_pose", tip)
        leaves |= with_tip(n, leaves, "tip", inverse[-1] @ tip)
    return make_chain(
        rotation=placement[:, :3, :3],
        translation=placement[:, :3, 3],
        screw=np.array([adjoint(t) @ x for t, x in zip(inverse, s, strict=True)]),
        inertia=_from_spatial(np.asarray(spatial_inertias, float), n),
        **leaves,
    )


def with_tip(n: int, leaves: Mapping[str, Any], name: str, pose: np.ndarray) -> dict[str, Any]:
    """The frames and topology in `leaves`, with a tip frame added to the last link."""
    topology = dataclasses.replace(leaves.get("topology") or Topology.serial(n), tip_name=name)
    return {"topology": topology, "frames": {**(leaves.get("frames") or {}), name: (n - 1, pose)}}


def _from_spatial(g: np.ndarray, n: int) -> np.ndarray:
    if g.shape == (n, 10):
        return g
    if g.shape != (n, 6, 6):
        raise ModelError(f"spatial_inertias has shape {g.shape}, but {n} links require ({n}, 6, 6) or ({n}, 10)")
    for i, x in enumerate(g):
        slack = 1e-9 * max(np.abs(x).max(), 1e-300)
        if np.abs(x - x.T).max() > slack:
            raise ModelError(f"spatial inertia of link {i + 1} is not symmetric")
        if np.abs(x[3:, 3:] - x[5, 5] * np.eye(3)).max() > slack:
            raise ModelError(
                f"the lower right block of the spatial inertia of link {i + 1} is not its mass times the identity matrix; "
                "twists are (w, v), so the rotational inertia must be in the upper left block"
            )
        if np.abs(x[:3, 3:] + x[:3, 3:].T).max() > slack:
            raise ModelError(
                f"the upper right block of the spatial inertia of link {i + 1} is not skew-symmetric; "
                "it must be m [c], with centre of mass c"
            )
    pick = [(5, 5), (2, 4), (0, 5), (1, 3), (0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    return np.stack([g[:, i, j] for i, j in pick], axis=1)
