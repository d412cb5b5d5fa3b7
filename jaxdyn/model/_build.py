"""`make_chain`: the one place where numbers become a `Chain`, and where impossible models are refused."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array

from .._jax_compat import Tracer
from ..errors import ModelError, warn
from ._chain import Chain, Coupling, Topology, Transmission
from ._configuration import check_coordinates

COULOMB_VELOCITY, STRIBECK_VELOCITY = 0.02, 0.1  # widths of the smooth sign and of the Stribeck term [rad/s]
LARGEST = 1e12  # no robot has so many kilograms, metres or newton metres, and products of larger numbers overflow
SLIGHTLY = 0.05  # of the triangle inequality: published inertias are rounded, and violate it by as much
Values = npt.ArrayLike | Array | float | Sequence


def make_chain(
    *,
    rotation: Values,
    translation: Values,
    screw: Values,
    inertia: Values,
    joint_names: Sequence[str] | None = None,
    link_names: Sequence[str] | None = None,
    parents: Sequence[int] | None = None,
    frames: Mapping[str, tuple[int, Values]] | None = None,
    base_name: str = "base",
    tip_name: str | None = None,
    gravity: Values = (0.0, 0.0, -9.81),
    armature: Values = 0.0,
    viscous_friction: Values = 0.0,
    coulomb_friction: Values = 0.0,
    coulomb_velocity: Values = COULOMB_VELOCITY,
    stribeck_friction: Values = 0.0,
    stribeck_velocity: Values = STRIBECK_VELOCITY,
    torque_offset: Values = 0.0,
    stiffness: Values = 0.0,
    rest_position: Values = 0.0,
    position_limits: Values = (-np.inf, np.inf),
    velocity_limit: Values = np.inf,
    effort_limit: Values = np.inf,
    quaternion_joints: Sequence[tuple[int, int]] = (),
    base_pose: Values | None = None,
    transmission: Transmission | None = None,
    coupling: Coupling | None = None,
    coordinate_names: Sequence[str] | None = None,
    allow_nonphysical: bool = False,
) -> Chain:
    """Build a `Chain` from stacked arrays, checking everything that can be checked.

    Arguments are the chain's leaves (see `Chain`); scalars are repeated for every joint, names default to joint1.., link1..,
    `frames` maps a name to (link index or -1 for the base, 4x4 pose in that link). Leaves take JAX's default float type.

    Args:
        allow_nonphysical: accept inertias that no body can have (an identified set that has not been made consistent).

    Raises:
        ModelError: wrong shapes, NaN, numbers beyond 1e12 (but for limits), a zero axis, a rotation that is none, repeated
            names, or an inertia that no body can have (`check_inertia`).
    """
    rotation, translation, screw, inertia = (np.asarray(x, float) for x in (rotation, translation, screw, inertia))
    n = screw.shape[0] if screw.ndim == 2 else 0
    if n == 0:
        raise ModelError(
            "the chain has no joint that moves; a robot needs at least one revolute, prismatic or helical joint"
        )
    for name, x, shape in (
        ("rotation", rotation, (n, 3, 3)),
        ("translation", translation, (n, 3)),
        ("screw", screw, (n, 6)),
        ("inertia", inertia, (n, 10)),
    ):
        if x.shape != shape:
            raise ModelError(f"{name} has shape {x.shape}, but {n} joints need {shape}")
        if not np.all(np.isfinite(x)):
            raise ModelError(
                f"{name} holds NaN or infinity at index {tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])}"
            )
    joints = _names(joint_names, n, "joint")
    links = _names(link_names, n, "link")
    topo_parents = tuple(range(-1, n - 1)) if parents is None else tuple(int(p) for p in parents)
    if len(topo_parents) != n or any(not -1 <= p < i for i, p in enumerate(topo_parents)):
        raise ModelError(f"parents {topo_parents} are not a tree in which every link comes after its parent")
    rotation, screw = _orthonormal(rotation), screw.copy()
    for i in range(n):
        if np.abs(rotation[i].T @ rotation[i] - np.eye(3)).max() > 1e-6 or np.linalg.det(rotation[i]) < 0:
            raise ModelError(f"the placement of joint {joints[i]!r} is not a rotation (R^T R != 1 or det R = -1)")
        screw[i] = _unit_screw(joints[i], screw[i])
    slight = {} if allow_nonphysical else inertia_faults(dict(zip(links, inertia, strict=True)))
    for link in slight:
        check_inertia(link, inertia[links.index(link)], SLIGHTLY)
    frames = dict(frames or {})
    for name, (link, pose) in frames.items():
        if not -1 <= link < n:
            raise ModelError(
                f"frame {name!r} is fixed to link {link}, but there are links 0 to {n - 1} (and -1, the base)"
            )
        check_pose(f"frame {name!r}", np.asarray(pose, float))
    clash = set(frames) & set(links) or ({base_name} & (set(frames) | set(links)))
    if clash:
        raise ModelError(
            f"the name {sorted(clash)[0]!r} is used twice; links, frames and the base need names of their own"
        )
    poses = np.array([np.asarray(t, float) for _, t in frames.values()]).reshape(len(frames), 4, 4)
    topology = Topology(
        joint_names=joints,
        link_names=links,
        parents=topo_parents,
        frame_names=tuple(frames),
        frame_links=tuple(int(i) for i, _ in frames.values()),
        base_name=base_name,
        tip_name=_only_end(topo_parents, links) if tip_name is None else tip_name,
        quaternion_joints=tuple((int(a), int(b)) for a, b in quaternion_joints),
        coordinate_names=None if coordinate_names is None else tuple(coordinate_names),
    )
    if topology.tip_name not in (*links, *frames, None):
        raise ModelError(f"the tip {tip_name!r} is neither a link nor a frame of the chain")

    def per_joint(name: str, x: Values, *tail: int) -> Array:
        try:
            y = np.broadcast_to(np.asarray(x, float), (n, *tail))
        except ValueError:
            raise ModelError(
                f"{name} has shape {np.shape(x)}, but {n} joints need {(n, *tail)} or one value for all"
            ) from None
        if np.any(np.isnan(y)):
            raise ModelError(f"{name} holds NaN")
        return jnp.asarray(np.array(y))

    limits = per_joint("position_limits", position_limits, 2)
    lower, upper = np.asarray(limits).T
    if np.any(lower > upper):
        j = int(np.argmax(lower > upper))
        raise ModelError(f"joint {joints[j]!r}: its lower limit {lower[j]:g} is above its upper limit {upper[j]:g}")
    if slight:
        texts = "; ".join(error.fault for error in slight.values())
        warn(f"inertias that no body has are taken as they are: {texts}")
    drive = {"armature": armature, "viscous_friction": viscous_friction, "coulomb_friction": coulomb_friction}
    drive |= {"stiffness": stiffness, "stribeck_friction": stribeck_friction}
    for name, given in drive.items():
        if not allow_nonphysical and np.any(np.asarray(given, float) < 0):
            raise ModelError(f"{name} is negative ({np.asarray(given, float).min():g}); no drive has that")
    gravity = np.asarray(gravity, float)
    if gravity.shape != (3,) or not np.all(np.isfinite(gravity)):
        raise ModelError(f"gravity is {gravity}, not an acceleration (x, y, z) in the base frame, like (0, 0, -9.81)")
    if np.any(np.asarray(coulomb_velocity) <= 0):
        raise ModelError("coulomb_velocity must be positive: it is the width of the smooth sign of Coulomb friction")
    if np.any(np.asarray(stribeck_velocity) <= 0):
        raise ModelError("stribeck_velocity must be positive: it is the speed over which the break-away friction fades")
    chain = Chain(
        rotation=jnp.asarray(rotation),
        translation=jnp.asarray(translation),
        screw=jnp.asarray(screw),
        inertia=jnp.asarray(inertia),
        armature=per_joint("armature", armature),
        viscous_friction=per_joint("viscous_friction", viscous_friction),
        coulomb_friction=per_joint("coulomb_friction", coulomb_friction),
        coulomb_velocity=per_joint("coulomb_velocity", coulomb_velocity),
        stribeck_friction=per_joint("stribeck_friction", stribeck_friction),
        stribeck_velocity=per_joint("stribeck_velocity", stribeck_velocity),
        torque_offset=per_joint("torque_offset", torque_offset),
        stiffness=per_joint("stiffness", stiffness),
        rest_position=per_joint("rest_position", rest_position),
        position_limits=limits,
        velocity_limit=per_joint("velocity_limit", velocity_limit),
        effort_limit=per_joint("effort_limit", effort_limit),
        gravity=jnp.asarray(gravity),
        frame_poses=jnp.asarray(poses),
        topology=topology,
        base_pose=None if base_pose is None else jnp.asarray(base_pose, float),
        transmission=transmission,
        coupling=coupling,
    )
    _check_sizes(chain)
    check_coordinates(chain)
    return chain


def _check_sizes(chain: Chain) -> None:
    """Refuse numbers that no robot has; limits may be infinite."""
    for field in dataclasses.fields(chain):
        if field.name.endswith(("_limit", "_limits", "topology")):
            continue
        for x in jax.tree.leaves(getattr(chain, field.name)):
            if isinstance(x, Tracer):
                continue
            beyond = np.argwhere(~(np.abs(np.asarray(x)) <= LARGEST))
            if len(beyond):
                where = tuple(int(i) for i in beyond[0])
                value = float(np.asarray(x)[where])
                raise ModelError(f"{field.name} holds {value:g} at index {where}, which no robot has; check the units")


def check_inertia(link: str, pi: Values, tolerance: float = 0.0) -> None:
    """Refuse ten parameters that no body can have.

    Mass must not be negative; the inertia about the centre of mass must be positive semidefinite and its principal moments
    must satisfy the triangle inequality. A link of no mass and no inertia at all is allowed (a virtual link).

    Args:
        tolerance: by which part of the largest moment the triangle inequality may be violated.

    Raises:
        ModelError: naming the link, the number that is impossible and what to do.
    """
    pi = np.asarray(pi, float)
    mass, h = pi[0], pi[1:4]
    beyond = ~(np.abs(pi) <= LARGEST)
    if beyond.any():
        raise ModelError(f"link {link!r}: {pi[beyond][0]:g} is no number that a body has", "check the units")
    if mass < 0 or (mass == 0 and np.any(h != 0)):
        raise ModelError(f"link {link!r}: mass {mass:g} kg is not positive", "give the link a positive mass")
    io = np.array([[pi[4], pi[5], pi[7]], [pi[5], pi[6], pi[8]], [pi[7], pi[8], pi[9]]])
    ic = io - (h @ h * np.eye(3) - np.outer(h, h)) / mass if mass > 0 else io
    moments = np.linalg.eigvalsh(ic)
    # parameters come about the origin: what rounding leaves of the parallel-axis terms must not count against a point mass
    slack = 1e-6 * max(np.abs(moments).max(), 1e-9) + 1e-9 * np.abs(io).max()
    if moments[0] < -slack:
        raise ModelError(
            f"link {link!r}: its inertia about the centre of mass has the negative principal moment {moments[0]:.3g} kg m^2",
            "no body has that. Check the units and whether the inertia is about the centre of mass",
        )
    if moments[0] + moments[1] < moments[2] * (1 - tolerance) - slack:
        a, b, c = moments
        raise ModelError(
            f"link {link!r}: its principal moments {a:.4g}, {b:.4g}, {c:.4g} kg m^2 violate the triangle inequality "
            f"({a:.4g} + {b:.4g} < {c:.4g})",
            "no body has that. Check the units and the inertia's frame",
        )


def inertia_faults(inertia: Mapping[str, np.ndarray], tolerance: float = 0.0) -> dict[str, ModelError]:
    """What `check_inertia` says of links' parameters, by link, of those that it refuses."""
    found = {}
    for link, pi in inertia.items():
        try:
            check_inertia(link, pi, tolerance)
        except ModelError as error:
            found[link] = error
    return found


def check_pose(name: str, t: np.ndarray) -> None:
    """Refuse a matrix that is no rigid motion.

    Raises:
        ModelError: the shape is not (4, 4), the last row not 0 0 0 1, or the rotation no rotation.
    """
    if t.shape != (4, 4):
        raise ModelError(f"{name} has shape {t.shape}; a pose is a homogeneous 4x4 matrix")
    r = t[:3, :3]
    if not np.all(np.isfinite(t)) or np.abs(t[3] - [0, 0, 0, 1]).max() > 1e-9:
        raise ModelError(f"{name} is no homogeneous matrix: it holds NaN or its last row is not 0 0 0 1")
    if np.abs(r.T @ r - np.eye(3)).max() > 1e-6 or np.linalg.det(r) < 0:
        raise ModelError(f"{name} holds no rotation (R^T R != 1 or det R = -1)")


def _only_end(parents: tuple[int, ...], links: tuple[str, ...]) -> str | None:
    """The one link that carries no other, if there is one only."""
    ends = set(range(len(parents))) - set(parents)
    return links[ends.pop()] if len(ends) == 1 else None


def _orthonormal(rotation: np.ndarray) -> np.ndarray:
    """Rotations given with few digits, made orthonormal to rounding; those that are so already stay as they are."""
    for _ in range(2):
        excess = np.swapaxes(rotation, 1, 2) @ rotation - np.eye(3)
        size = np.abs(excess).max((1, 2), keepdims=True)
        rotation = np.where((size > 1e-14) & (size < 1e-6), rotation - 0.5 * rotation @ excess, rotation)
    return rotation


def _unit_screw(joint: str, screw: np.ndarray) -> np.ndarray:
    """The screw with |w| = 1, or |v| = 1 where w = 0, to rounding."""
    turns = bool(np.any(screw[:3] != 0))
    size = float(np.linalg.norm(screw[:3] if turns else screw[3:]))
    if abs(size - 1) > 1e-6:
        part = "rotation part has length" if turns else "prismatic axis has length"
        raise ModelError(f"joint {joint!r}: the screw's {part} {size:g}; normalise it to 1")
    return screw / size if abs(size - 1) > 1e-15 else screw


def _names(given: Sequence[str] | None, n: int, kind: str) -> tuple[str, ...]:
    names = tuple(f"{kind}{i + 1}" for i in range(n)) if given is None else tuple(given)
    if len(names) != n:
        raise ModelError(f"{len(names)} {kind} names are given for {n} joints")
    if len(set(names)) != n:
        twice = next(x for x in names if names.count(x) > 1)
        raise ModelError(f"the {kind} name {twice!r} is used twice")
    return names
