"""What the textbooks' systems are made of: slender bodies, and chains whose frames are parallel at q = 0."""

from typing import Any

import numpy as np

from ..errors import ModelError
from ._build import make_chain
from ._chain import Chain, Topology
from ._screws import ten_parameters

X, Y, Z = np.eye(3)


def slender_body(mass: float, com: np.ndarray, moment: float, along: np.ndarray | None = None) -> np.ndarray:
    """Ten parameters of a slender body along `along` (default: the way to its centre of mass), `moment` across it."""
    along = com if along is None else along
    square = along @ along
    across = np.eye(3) - np.outer(along, along) / square if square > 0 else np.eye(3)
    return ten_parameters(mass, com, moment * across)


def parallel_chain(
    *,
    axes: list[np.ndarray],
    offsets: list[np.ndarray],
    bodies: list[np.ndarray],
    tip: np.ndarray,
    gravity: np.ndarray,
    prismatic: tuple[int, ...] = (),
    **leaves: Any,
) -> Chain:
    """Chain whose frames are all parallel to the base at q = 0, with the frame "tip" on the last link."""
    n = len(axes)
    tip_pose = np.eye(4)
    tip_pose[:3, 3] = tip
    return make_chain(
        rotation=np.tile(np.eye(3), (n, 1, 1)),
        translation=offsets,
        screw=[[*(0 * axis), *axis] if i in prismatic else [*axis, *(0 * axis)] for i, axis in enumerate(axes)],
        inertia=bodies,
        frames={"tip": (n - 1, tip_pose)},
        gravity=gravity,
        **{"topology": Topology.serial(n, tip_name="tip"), **leaves},
    )


def hanging_link(mass: float, com_distance: float, link_inertia: float, gravity: float, **leaves: Any) -> Chain:
    """One link that turns about x and hangs down along -z at q = 0; its inertia is about the joint.

    Raises:
        ModelError: link_inertia is less than mass com_distance^2, what a point mass has.
    """
    central = link_inertia - mass * com_distance**2
    if central < -1e-9 * abs(link_inertia):
        raise ModelError(
            f"link_inertia {link_inertia:g} kg m^2 about the joint is less than mass com_distance^2 = "
            f"{mass * com_distance**2:g}; add the parallel-axis term if it is about the centre of mass"
        )
    return parallel_chain(
        axes=[X],
        offsets=[0 * X],
        bodies=[slender_body(mass, -com_distance * Z, max(central, 0.0))],
        tip=-com_distance * Z,
        gravity=-gravity * Z,
        **leaves,
    )
