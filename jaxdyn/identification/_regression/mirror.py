"""Pairs of links of mirrored limbs, and the inertial parameters of a mirrored body."""

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import with_bodies
from ...spatial._host import packed, pseudo_inertia_of

MIRROR = np.diag([1.0, -1.0, 1.0])  # reflection in the x-z plane of the base
NEAR = 2e-3  # tolerance for the mirrored origins of two links, relative to the robot's extent
FAR = 5e-2  # pairs specified by the user are rejected beyond this relative distance


def mirrored_links(chain: Chain) -> tuple[tuple[str, str], ...]:
    """Find pairs (left, right) of links of left and right limbs from the kinematics.

    Two links form a pair if, with all joints at zero, their origins and joint axes are mirror images in the x-z plane
    of the base frame (x forward, y to the left, z up), and if their parents also mirror each other. Links in this plane
    and links without a unique counterpart are omitted.

    Args:
        chain: the robot.
    """
    turns, points = link_placements(chain)
    axes = np.einsum("nij,nj->ni", turns, _directions(chain))
    near, parents = NEAR * _extent(points), chain.topology.parents
    partner: dict[int, int | None] = {-1: -1}
    inner = ~with_bodies(chain.topology)
    for i in range(chain.n):
        image = MIRROR @ points[i]
        same = [
            j
            for j in range(chain.n)
            if partner.get(parents[i]) == parents[j]
            and np.linalg.norm(points[j] - image) <= near
            and abs(abs(axes[j] @ MIRROR @ axes[i]) - 1) < 1e-3
        ]
        partner[i] = i if inner[i] or i in same else same[0] if len(same) == 1 else None
    sided = [(i, j) for i, j in partner.items() if j is not None and i != j and partner.get(j) == i]
    return tuple((chain.link_names[i], chain.link_names[j]) for i, j in sided if points[i][1] > points[j][1])


def mirrored_parameters(chain: Chain, left: str, right: str) -> Float[np.ndarray, "10 10"]:
    """Matrix T that maps the parameters of a body on the left link to those of its mirror image on the right link.

    Parameters are expressed in the frames of their links. With all joints at zero, these frames have the orientations
    R_l and R_r and the origins p_l and p_r. The reflection F in the x-z plane of the base maps a point x_l of the left
    link to x_r = Q x_l + d, with Q = R_r^T F R_l and d = R_r^T (F p_l - p_r). The pseudo-inertia of the mirror image is
    J_r = A J_l A^T with A = [Q, d; 0, 1].

    Raises:
        IdentificationError: the chain does not have one of the links, or the two links are not mirror images of each
            other.
    """
    for name in (left, right):
        if name not in chain.link_names:
            raise IdentificationError(f"there is no link {name!r}; the links are {', '.join(chain.link_names)}")
    turns, points = link_placements(chain)
    i, j = chain.link_names.index(left), chain.link_names.index(right)
    apart = float(np.linalg.norm(MIRROR @ points[i] - points[j]))
    if apart > FAR * _extent(points):
        raise IdentificationError(
            f"links {left!r} and {right!r} do not mirror each other in the x-z plane of the base: with all joints at zero, the "
            f"mirrored origins are {apart:.3g} m apart; mirrored_links finds the pairs of a symmetric robot"
        )
    change = np.eye(4)
    change[:3, :3] = turns[j].T @ MIRROR @ turns[i]
    change[:3, 3] = turns[j].T @ (MIRROR @ points[i] - points[j])
    return np.stack([_ten(change @ pseudo_inertia_of(unit) @ change.T) for unit in np.eye(10)], axis=1)


def _ten(pseudo: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "10"]:
    second = pseudo[:3, :3]
    return packed(pseudo[3, 3], pseudo[:3, 3], np.trace(second) * np.eye(3) - second)


def link_placements(chain: Chain) -> tuple[Float[np.ndarray, "n 3 3"], Float[np.ndarray, "n 3"]]:
    """Orientations and origins of all links in the base frame, with all joints at zero."""
    turns, points = np.array(chain.rotation, float), np.array(chain.translation, float)
    for i, parent in enumerate(chain.topology.parents):
        if parent >= 0:
            points[i] = points[parent] + turns[parent] @ points[i]
            turns[i] = turns[parent] @ turns[i]
    for link, size in chain.topology.quaternion_joints:
        if size == 6 and chain.topology.parents[link] < 0:  # for a floating base, use its own frame
            root, origin = turns[link + 5], points[link + 5]
            turns, points = root.T @ turns, (points - origin) @ root
    return turns, points


def _directions(chain: Chain) -> Float[np.ndarray, "n 3"]:
    """Unit axes of the joints in their links' frames."""
    turning, sliding = np.split(np.asarray(chain.screw, float), 2, axis=1)
    axes = np.where(np.any(turning != 0, axis=1, keepdims=True), turning, sliding)
    return axes / np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-12)


def _extent(points: Float[np.ndarray, "n 3"]) -> float:
    return max(float(np.linalg.norm(points - points[0], axis=1).max()), 1e-6)
