"""Builders of chains: from arrays (`make_chain`, which all others use, and which rejects inconsistent models), from screw axes
(the product of exponentials of Lynch & Park 2017), and from Denavit-Hartenberg tables, standard or modified.

Numbers in a robot's description are often rounded. An arm whose axes are parallel has fewer base parameters than one whose
axes differ by 4e-6 rad, as in a file with 1.5708 for pi/2. The geometry for which such angles and axes stand decides only
the number of base parameters; torques are computed with the numbers in the file.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError, warn
from ..spatial.components import Values
from ..spatial.inertia import (
    inertial_parameters_from_com,
    inertial_parameters_from_spatial,
    inertial_parameters_to_com,
    rotational_inertia,
    spatial_inertia,
    transform_inertial_parameters,
)
from ..spatial.se3 import adjoint, pose_inverse
from ..spatial.so3 import quaternion_to_rotation, rpy_to_rotation
from .chain import (
    Chain,
    Friction,
    JointLimits,
    Springs,
    Topology,
    frame_index,
    named_leaves,
)
from .compiled import checked

EARTH = (0.0, 0.0, -9.81)
LARGEST = 1e12  # larger values are implausible in any SI unit, and products of them overflow
# tolerated violation of the triangle inequality; the published inertias of xArm6 and Romeo violate it by 13 % and 12 %
SLIGHTLY = 0.15


_PARTS = {"friction": Friction, "springs": Springs, "limits": JointLimits}
# default leaves of a joint
JOINT_LEAVES: dict[str, Any] = {"armature": 0.0} | {
    f"{part}.{field.name}": field.default for part, cls in _PARTS.items() for field in dataclasses.fields(cls)
}
_LINK_LEAVES = {"rotation": (3, 3), "translation": (3,), "screw": (6,), "inertia": (10,)}
_POSITIVE = "armature", "friction.viscous", "friction.coulomb", "springs.stiffness", "friction.stribeck"
_WIDTHS = {
    "friction.coulomb_velocity": "the velocity v_c in the smoothed sign tanh(qd / v_c) of Coulomb friction",
    "friction.stribeck_velocity": "the velocity over which the break-away friction decays",
}

# Angles with two or three decimals are compared with multiples of 15 degrees, as every second number with two decimals is
# within its rounding of a whole degree; with four decimals, one number in a hundred is, of half a degree.
_COARSE, _FINE, _FINE_PLACES, _LEAST_PLACES = np.pi / 12, np.pi / 360, 4, 2
_NEGLIGIBLE = 1e-10  # rounding that changes no rank (relative to the tolerance of ranks, 1e-9)
_DECIMALS = 13  # of the exact geometry, so that it is the same in every file of a robot
_FLOAT32 = 1e-6  # rounding of geometry in single precision
_STEP = np.cos(np.arange(13) * np.pi / 24)
# magnitudes of the components of axes and quaternions: cosines of multiples of 7.5 degrees, and their products, and
# those of diagonals of cubes and tetrahedra
_COMPONENTS = np.unique(np.concatenate([np.outer(_STEP, _STEP).ravel(), np.sqrt([1 / 3, 2 / 3])]).round(15))


def make_chain(
    rotation: Values,
    translation: Values,
    screw: Values,
    inertia: Values,
    *,
    topology: Topology | None = None,
    frames: Mapping[str, tuple[int, Values]] | None = None,
    armature: Values = 0.0,
    friction: Friction | None = None,
    limits: JointLimits | None = None,
    gravity: Values = EARTH,
) -> Chain:
    """Build a `Chain` from arrays with one entry per joint, and check it.

    The arguments are the leaves of `Chain`, in the same units; a scalar applies to every joint. Other parts are added
    afterwards: `with_transmission`, `with_coupling`, and `dataclasses.replace` for springs and `base_pose`.

    Args:
        topology: names and parents; None for a serial chain with joints joint1, joint2, ... and links link1, link2, ...
        frames: for each named frame, the index of its link (-1 for the base) and its 4x4 pose in that link [m].

    Raises:
        ModelError: a shape is wrong; a number is NaN or beyond 1e12 (except limits); an axis, a rotation or a name is
            invalid; an inertia is physically inconsistent (negative mass or moment, violated triangle inequality).
    """
    modules = named_leaves({"friction": friction or Friction(), "limits": limits or JointLimits()})
    leaves = {"rotation": rotation, "translation": translation, "screw": screw, "inertia": inertia}
    return build_chain({**leaves, "armature": armature, "gravity": gravity, **modules}, topology, frames)


def build_chain(
    leaves: Mapping[str, Values],
    topology: Topology | None = None,
    frames: Mapping[str, tuple[int, Values]] | None = None,
    *,
    allow_nonphysical: bool = False,
) -> Chain:
    """Build a chain as `make_chain` does, from a mapping of dotted names to leaves that may set every joint property."""
    given = {**JOINT_LEAVES, "gravity": EARTH, **leaves}
    links = _link_arrays(given)
    n = len(links["screw"])
    topology = Topology.serial(n) if topology is None else topology
    if (count := len(topology.parents)) != n:
        raise ModelError(f"the topology has {count} joints, but there are {n} screws; pass one screw per joint")
    _normalise(links, topology)
    of_links = {} if allow_nonphysical else dict(zip(topology.link_names, links["inertia"], strict=True))
    slight = inertia_faults(of_links)
    for link in slight:
        check_inertia(link, of_links[link], SLIGHTLY)
    topology, poses = _with_frames(topology, frames or {})
    joints = {name: _per_joint(name, given[name], n) for name in JOINT_LEAVES}
    _check_joints(topology, joints, allow_nonphysical)
    gravity = np.asarray(given["gravity"], float)
    if gravity.shape != (3,) or not np.all(np.isfinite(gravity)):
        raise ModelError(f"gravity is {gravity}; pass an acceleration (x, y, z) in world axes, such as (0, 0, -9.81)")
    if slight:
        texts = "; ".join(error.fault for error in slight.values())
        warn(f"physically inconsistent inertias are used unchanged: {texts}")
    arrays: dict[str, Any] = jax.device_put(
        {**links, **joints, "gravity": gravity, "frame_poses": poses}
    )  # compiles nothing
    for part, module in _PARTS.items():
        arrays[part] = module(*(arrays.pop(f"{part}.{field.name}") for field in dataclasses.fields(module)))
    chain = Chain(**arrays, topology=topology)
    check_sizes(chain)
    check_coordinates(chain)
    return chain


def check_sizes(chain: Chain) -> None:
    """Reject implausibly large numbers; joint limits are exempt, since they may be infinite."""
    for name, x in named_leaves(chain).items():
        beyond = np.argwhere(~(np.abs(np.asarray(x)) <= LARGEST))
        if len(beyond) and not name.startswith("limits."):
            where = tuple(int(i) for i in beyond[0])
            value = float(np.asarray(x)[where])
            raise ModelError(f"{name} is {value:g} at index {where}, which is implausible for a robot; check the units")


def check_coordinates(chain: Chain) -> None:
    """Raise an error if a joint with several degrees of freedom, or the coupling, is invalid."""
    topology, n = chain.topology, chain.n
    screw, rotation, translation = (np.asarray(x) for x in (chain.screw, chain.rotation, chain.translation))
    turned, moved = np.abs(rotation - np.eye(3)).max((1, 2)), np.abs(translation).max(1)
    for links, joint in topology.compound_links():
        first, rest = links.start, slice(links.start + 1, links.stop)
        name = topology.joint_names[first]
        wrong = "screws" * (not joint.has_screws(screw[links])) or "placements" * bool((turned[rest] > 1e-12).any())
        if wrong := wrong or "offsets" * bool((moved[rest] > 1e-12).any()):
            which = f"the {len(joint.parts)} joints starting with {name!r}"
            raise ModelError(f"{which} do not form a {joint.kind} joint: wrong {wrong}")
        if joint.at_base and (topology.parents[first] >= 0 or turned[first] or moved[first]):
            what = "must be attached to the base, at its origin; its position defines the placement"
            raise ModelError(f"the {joint.kind} joint {name!r} {what}")
    names = topology.coordinate_names
    if chain.coupling is None:
        if names is not None:
            raise ModelError("coordinate names require a coupling; otherwise, coordinates have the joint names")
        return
    matrix = np.asarray(chain.coupling.matrix)
    if matrix.ndim != 2 or matrix.shape[0] != n or chain.coupling.offset.shape != (n,):
        raise ModelError(f"a coupling requires a matrix ({n}, coordinates) and an offset ({n},), not {matrix.shape}")
    if names is not None and len(names) != matrix.shape[1]:
        raise ModelError(f"{len(names)} coordinate names are given for {matrix.shape[1]} coordinates")
    for links, joint in topology.compound_links():
        if joint.curved:
            own = np.eye(n)[:, links]
            changed = matrix.shape[1] < links.stop or (matrix[:, links] != own).any()
            if changed or (matrix[links].sum(1) != 1).any():
                what = f"the {joint.kind} joint {topology.joint_names[links.start]!r}"
                raise ModelError(f"the coupling must not {'change' if changed else 'move'} {what}")


def _link_arrays(given: Mapping[str, Values]) -> dict[str, np.ndarray]:
    """Return placements, screws and inertias after checking their shapes and that they are finite."""
    arrays = {name: np.asarray(given[name], float) for name in _LINK_LEAVES}
    n = len(arrays["screw"]) if arrays["screw"].ndim == 2 else 0
    if n == 0:
        raise ModelError("the chain has no movable joint; a robot needs a revolute, prismatic or helical joint")
    for name, x in arrays.items():
        shape = (n, *_LINK_LEAVES[name])
        if x.shape != shape:
            raise ModelError(f"{name} has shape {x.shape}, but {n} joints require {shape}; pass one entry per joint")
        if not np.all(np.isfinite(x)):
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise ModelError(f"{name} is NaN or infinite at index {where}; pass finite numbers")
    return arrays


def _normalise(links: dict[str, np.ndarray], topology: Topology) -> None:
    """Orthonormalise rotations and normalise screws that are given to few digits, to within rounding errors."""
    rotation, screw = links["rotation"], links["screw"]
    for _ in range(2):
        excess = np.swapaxes(rotation, 1, 2) @ rotation - np.eye(3)
        size = np.abs(excess).max((1, 2), keepdims=True)
        rotation = np.where((size > 1e-14) & (size < 1e-6), rotation - 0.5 * rotation @ excess, rotation)
    for joint, r in zip(topology.joint_names, rotation, strict=True):
        _check_rotation(f"the placement of joint {joint!r}", r)
    turns = np.any(screw[:, :3] != 0, axis=1)
    length = np.where(turns, np.linalg.norm(screw[:, :3], axis=1), np.linalg.norm(screw[:, 3:], axis=1))
    if (wrong := np.flatnonzero(np.abs(length - 1) > 1e-6)).size:
        i = wrong[0]
        part = "rotation part has length" if turns[i] else "prismatic axis has length"
        raise ModelError(f"joint {topology.joint_names[i]!r}: the screw's {part} {length[i]:g}; normalise it to 1")
    links["rotation"] = rotation
    links["screw"] = screw / np.where(np.abs(length - 1) > 1e-15, length, 1.0)[:, None]


def _check_rotation(name: str, r: np.ndarray) -> None:
    if np.abs(r.T @ r - np.eye(3)).max() > 1e-6 or np.linalg.det(r) < 0:
        fault = f"{name} is not a rotation (R^T R != 1 or det R = -1)"
        raise ModelError(fault, "pass an orthonormal R with determinant 1")


def _with_frames(topology: Topology, frames: Mapping[str, tuple[int, Values]]) -> tuple[Topology, np.ndarray]:
    """The topology with the named frames added, and the poses of these frames."""
    poses = np.array([check_pose(f"frame {name!r}", pose) for name, (_, pose) in frames.items()]).reshape(-1, 4, 4)
    links = tuple(link for link, _ in frames.values())
    topology = dataclasses.replace(topology, frame_names=tuple(frames), frame_links=links)
    known = *topology.link_names, *frames
    if topology.tip_name not in (*known, None):
        raise ModelError(f"unknown tip {topology.tip_name!r}; the links and frames are {', '.join(known)}")
    return topology, poses


def _per_joint(name: str, x: Values, n: int) -> np.ndarray:
    shape = (n, *np.shape(JOINT_LEAVES[name]))
    try:
        y = np.broadcast_to(np.asarray(x, float), shape).copy()
    except ValueError:
        need = f"{n} joints require {shape} or one value for all"
        raise ModelError(f"{name} has shape {np.shape(x)}, but {need}") from None
    if np.any(np.isnan(y)):
        raise ModelError(f"{name} contains NaN; pass a number for every joint")
    return y


def _check_joints(topology: Topology, joints: Mapping[str, np.ndarray], allow_nonphysical: bool) -> None:
    lower, upper = joints["limits.position"].T
    if np.any(lower > upper):
        j = int(np.argmax(lower > upper))
        name = topology.joint_names[j]
        raise ModelError(f"joint {name!r}: lower limit {lower[j]:g} exceeds upper limit {upper[j]:g}; swap them")
    for name in () if allow_nonphysical else _POSITIVE:
        if np.any(joints[name] < 0):
            raise ModelError(f"{name} is {joints[name].min():g}; it must not be negative")
    for name, meaning in _WIDTHS.items():
        if np.any(joints[name] <= 0):
            raise ModelError(f"{name} must be positive, because it is {meaning}")


def check_inertia(link: str, pi: Values, tolerance: float = 0.0) -> None:
    """Check mass, principal moments and their triangle inequality, up to `tolerance` times the largest moment."""
    pi = np.asarray(pi, float)
    mass, h = pi[0], pi[1:4]
    beyond = ~(np.abs(pi) <= LARGEST)
    if beyond.any():
        raise ModelError(f"link {link!r}: {pi[beyond][0]:g} is implausible for a rigid body", "check the units")
    if mass < 0 or (mass == 0 and np.any(h != 0)):
        raise ModelError(f"link {link!r}: mass {mass:g} kg is not positive", "specify a positive mass")
    io = rotational_inertia(pi)
    moments = np.linalg.eigvalsh(inertial_parameters_to_com(pi)[2])
    # tolerate rounding in the parallel-axis terms, so that a point mass far from the origin remains consistent
    slack = 1e-6 * max(np.abs(moments).max(), 1e-9) + 1e-9 * np.abs(io).max()
    remedy = "this is impossible for a rigid body. Check the units and "
    a, b, c = moments
    if a < -slack:
        fault = f"its inertia about the centre of mass has the negative principal moment {a:.3g} kg m^2"
        raise ModelError(f"link {link!r}: {fault}", remedy + "whether the inertia is about the centre of mass")
    if a + b < c * (1 - tolerance) - slack:
        fault = f"its principal moments {a:.4g}, {b:.4g}, {c:.4g} kg m^2 violate the triangle inequality"
        raise ModelError(f"link {link!r}: {fault} ({a:.4g} + {b:.4g} < {c:.4g})", remedy + "the frame of the inertia")


def inertia_faults(inertia: Mapping[str, np.ndarray], tolerance: float = 0.0) -> dict[str, ModelError]:
    """Errors raised by `check_inertia`, by link; consistent links are omitted."""
    found = {}
    for link, pi in inertia.items():
        try:
            check_inertia(link, pi, tolerance)
        except ModelError as error:
            found[link] = error
    return found


def pose_of(rotation: Values = ((1, 0, 0), (0, 1, 0), (0, 0, 1)), translation: Values = (0, 0, 0)) -> np.ndarray:
    """The pose of a rotation and a translation as a NumPy array in float64."""
    t = np.eye(4)
    t[:3, :3], t[:3, 3] = rotation, translation
    return t


def check_pose(name: str, pose: Values) -> Float[np.ndarray, "4 4"]:
    """A pose as a NumPy array; ModelError if it is not a rigid motion."""
    t = np.asarray(pose, float)
    if t.shape != (4, 4):
        raise ModelError(f"{name} has shape {t.shape}; pass a pose as a homogeneous 4x4 matrix")
    if not np.all(np.isfinite(t)) or np.abs(t[3] - [0, 0, 0, 1]).max() > 1e-9:
        fault = f"{name} is not a homogeneous matrix [[R, p], [0, 1]]"
        raise ModelError(f"{fault}: it contains NaN, or its last row is wrong")
    _check_rotation(name, t[:3, :3])
    return t


@checked
def with_masses(chain: Chain, masses: Float[Array, " n"]) -> Chain:
    """Replace the masses of all links [kg]; centres of mass and inertias about them are unchanged.

    The parameters of a link change by (1, c, -[c]^2) per kilogram, like those of a point mass at its centre of mass c,
    which is the origin for a massless link. In contrast, derivatives with respect to `chain.inertia[:, 0]` are those at
    fixed first moments m c and fixed inertias about the link's origin.

    Raises:
        ModelError: `masses` does not have one entry per link.
    """

    def changed(pi, mass):
        _, com, inertia = inertial_parameters_to_com(pi)
        return inertial_parameters_from_com(mass, com, inertia)

    pi = jax.vmap(changed)(chain.inertia, jnp.asarray(masses, chain.dtype))
    return dataclasses.replace(chain, inertia=pi)


@checked
def attach(
    chain: Chain,
    frame: str | None,
    mass: float | Float[Array, ""],
    com: Float[Array | np.ndarray, "3"] | Sequence[float] = (0.0, 0.0, 0.0),
    inertia: Float[Array | np.ndarray, "3 3"] | Sequence[Sequence[float]] | None = None,
) -> Chain:
    """Attach a body, for example a tool or a payload, rigidly to a link or frame, and return the new chain.

    The ten inertial parameters of the body are added to those of the link that carries the frame. The derivative with
    respect to `mass` is that at a fixed centre of mass and a fixed inertia about it.

    Args:
        frame: name of the link or frame; None: the chain's tip.
        mass: mass of the body [kg]; a negative mass removes a body.
        com: centre of mass c of the body, in the frame [m].
        inertia: inertia of the body about c, in the axes of the frame [kg m^2]; None: a point mass.

    Raises:
        ModelError: the frame is unknown, or fixed to the base; or a shape is wrong.
    """
    link, k = frame_index(chain, frame)
    if link < 0:
        links = ", ".join(chain.link_names)
        raise ModelError(f"{frame!r} is fixed to the base, which does not move", f"attach the body to a link: {links}")
    mass, com = jnp.asarray(mass, chain.dtype), jnp.asarray(com, chain.dtype)
    inertia = jnp.zeros((3, 3), chain.dtype) if inertia is None else jnp.asarray(inertia, chain.dtype)
    if com.shape != (3,) or inertia.shape != (3, 3):
        raise ModelError(f"com and inertia have shapes {com.shape} and {inertia.shape}; expected (3,) and (3, 3)")
    pi = inertial_parameters_from_com(mass, com, inertia)
    pi = pi if k is None else transform_inertial_parameters(chain.frame_poses[k], pi)
    return dataclasses.replace(chain, inertia=chain.inertia.at[link].add(pi))


def from_screws(
    screws: Values,
    home_poses: Values,
    spatial_inertias: Values,
    *,
    tip_pose: Values | None = None,
    **leaves: Any,
) -> Chain:
    """Build a chain from the screw axes and the link poses in its home position q = 0.

    In a serial chain, the pose of link i is T_0i(q) = exp([S_1] q_1) ... exp([S_i] q_i) M_i (Lynch & Park 2017, sec.
    4.1 and 8.3). The link frames of the chain are the frames {i} with the home poses M_i, whose origins need not be on
    the joint axes. The joint screw in {i} is A_i = Ad(M_i^-1) S_i, and the placement of {i} in its parent frame p is
    M_p^-1 M_i.

    Args:
        screws: space screws S_i = (w, v) in base coordinates at q = 0, one per row, (n, 6) [1, m/rad]. A revolute axis
            through the point p has v = -w x p, and a helical joint with pitch h [m/rad] has v = -w x p + h w. A
            prismatic joint has w = 0 and |v| = 1. The code that accompanies the book stores screws as columns;
            transpose such arrays.
        home_poses: poses M_i in the base (not in the previous link), (n, 4, 4) [m].
        spatial_inertias: spatial inertias G_i in {i}, (n, 6, 6), angular part first [kg m^2, kg m, kg], or ten inertial
            parameters about the origin of {i}, (n, 10) [kg, kg m, kg m^2].
        tip_pose: pose of the tip in the base at q = 0 [m], as the frame "tip" of the last link.
        leaves: further arguments of `make_chain`.

    Raises:
        ModelError: a pose is not a rigid motion; a matrix is not a spatial inertia; also the errors of `make_chain`.
    """
    s = np.asarray(screws, float)
    if s.ndim != 2 or s.shape[1] != 6 or s.shape[0] == 0:
        hint = "; if the screws are columns, as in the book's code, transpose the array" if s.shape[:1] == (6,) else ""
        raise ModelError(f"screws has shape {s.shape}, but must have shape (n, 6), with one screw (w, v) per row{hint}")
    n = s.shape[0]
    poses = np.asarray(home_poses, float)
    if poses.shape != (n, 4, 4):
        raise ModelError(f"home_poses has shape {poses.shape}, but {n} screws require ({n}, 4, 4)")
    inverse = np.array([pose_inverse(check_pose(f"home pose {i + 1}", t)) for i, t in enumerate(poses)])
    topology = leaves.get("topology") or Topology.serial(n)
    if (count := len(topology.parents)) != n:
        raise ModelError(f"the topology has {count} parents, but there are {n} screws; pass one parent per screw")
    placement = np.array([inverse[p] @ t if p >= 0 else t for p, t in zip(topology.parents, poses, strict=True)])
    if tip_pose is not None:
        leaves |= _with_tip(n, leaves, "tip", inverse[-1] @ check_pose("tip_pose", tip_pose))
    return make_chain(
        rotation=placement[:, :3, :3],
        translation=placement[:, :3, 3],
        screw=np.array([adjoint(t) @ x for t, x in zip(inverse, s, strict=True)]),
        inertia=_from_spatial(np.asarray(spatial_inertias, float), n),
        **leaves,
    )


def _with_tip(n: int, leaves: Mapping[str, Any], name: str, pose: np.ndarray) -> dict[str, Any]:
    """The frames and topology in `leaves`, with a tip frame added to the last link."""
    topology = dataclasses.replace(leaves.get("topology") or Topology.serial(n), tip_name=name)
    return {"topology": topology, "frames": {**(leaves.get("frames") or {}), name: (n - 1, pose)}}


def _from_spatial(g: np.ndarray, n: int) -> np.ndarray:
    if g.shape == (n, 10):
        return g
    if g.shape != (n, 6, 6):
        raise ModelError(f"spatial_inertias has shape {g.shape}, but {n} links require ({n}, 6, 6) or ({n}, 10)")
    found = np.array([inertial_parameters_from_spatial(x) for x in g])
    for i, (x, pi) in enumerate(zip(g, found, strict=True)):
        apart = np.abs(x - spatial_inertia(pi)).reshape(2, 3, 2, 3).max((1, 3)) > 1e-9 * np.abs(x).max()
        if apart.any():
            row, column = np.argwhere(apart)[0]
            block = f"the {('upper', 'lower')[row]} {('left', 'right')[column]} block of the spatial inertia of link {i + 1}"
            remedy = "I is symmetric, and twists are (w, v), angular part first"
            raise ModelError(f"{block} is not that of [[I, m [c]], [m [c]^T, m eye(3)]]", remedy)
    return found


def from_dh(
    a: Values,
    alpha: Values,
    d: Values,
    theta: Values,
    *,
    inertia: Values | None = None,
    convention: Literal["standard", "modified"] = "standard",
    joint_types: str | Sequence[str] | None = None,
    base_pose: Values | None = None,
    tool_pose: Values | None = None,
    **leaves: Any,
) -> Chain:
    """Build a chain from a Denavit-Hartenberg table, one row per joint.

    The joint position q_i is added to theta_i (revolute joints) or to d_i (prismatic joints).

    Standard convention (Spong, Hutchinson & Vidyasagar 2020, sec. 3.2): T_{i-1,i} = Rz(theta_i) Tz(d_i) Tx(a_i)
    Rx(alpha_i); the axis of joint i is z_{i-1}, and frame i is at the distal end of the link.

    Modified convention (Craig 2005, sec. 3.4): T_{i-1,i} = Rx(alpha_{i-1}) Tx(a_{i-1}) Rz(theta_i) Tz(d_i); the
    axis of joint i is z_i, and row i of the table contains a_{i-1} and alpha_{i-1}.

    Link poses, inertial parameters and the regressor refer to the DH frames 1..n. In the standard convention, the joint
    axis does not in general pass through the origin of the link frame: at q = 0, A_i = Ad(T_{i-1,i}^-1) (z, 0).

    Args:
        a: link lengths [m], (n,).
        alpha: link twists [rad], (n,).
        d: link offsets at q = 0 [m], (n,).
        theta: joint angles at q = 0 [rad], (n,).
        inertia: ten inertial parameters per link about the origin of its DH frame, (n, 10) [kg, kg m, kg m^2] (see
            `jaxdyn.spatial.solids`); None for zeros, for example before identification.
        joint_types: "R" (revolute) or "P" (prismatic) for each joint, as in "RRP"; None if all are revolute.
        base_pose: pose of DH frame 0 in the base [m].
        tool_pose: pose of a tool in DH frame n [m]; it becomes the frame "tool", which is the chain's tip.
        leaves: further arguments of `make_chain`.

    Raises:
        ModelError: columns have different lengths; the convention or a joint type is unknown; a pose is not a rigid
            motion; also the errors of `make_chain`.
    """
    columns = {"a": a, "alpha": alpha, "d": d, "theta": theta}
    table = {name: np.atleast_1d(np.asarray(x, float)) for name, x in columns.items()}
    n = table["a"].size
    for name, x in table.items():
        if x.shape != (n,):
            raise ModelError(f"the DH column {name} has shape {x.shape}, but a has {n} entries; pass one per joint")
    types = "R" * n if joint_types is None else "".join(joint_types)
    if len(types) != n:
        raise ModelError(f"{len(types)} joint types ({types}) are given for the {n} rows of the DH table")
    if unknown := set(types) - set("RP"):
        raise ModelError(f"unknown joint type {sorted(unknown)[0]!r}; use R (revolute) or P (prismatic)")
    if convention not in ("standard", "modified"):
        raise ModelError(f"unknown DH convention {convention!r}; it must be 'standard' or 'modified' (Craig's)")
    base = np.eye(4) if base_pose is None else check_pose("base_pose", base_pose)
    pose, screw = _placed(table, types, convention, base)
    if tool_pose is not None:
        leaves |= _with_tip(n, leaves, "tool", check_pose("tool_pose", tool_pose))
    inertia = np.zeros((n, 10)) if inertia is None else inertia
    chain = make_chain(pose[:, :3, :3], pose[:, :3, 3], screw, inertia, **leaves)
    meant = {name: np.array([meant_angle(x) for x in table[name].tolist()]) for name in ("alpha", "theta")}
    pose, screw = _placed(table | meant, types, convention, base)
    return with_unrounded(chain, pose, screw)


def _placed(
    table: Mapping[str, np.ndarray], types: str, convention: str, base: np.ndarray
) -> tuple[Float[np.ndarray, "n 4 4"], Float[np.ndarray, "n 6"]]:
    """Placements and screws of the rows of a DH table."""
    n = len(types)
    pose, screw = np.empty((n, 4, 4)), np.empty((n, 6))
    for i in range(n):
        length_twist = _screw_motion(0, table["alpha"][i], table["a"][i])
        angle_offset = _screw_motion(2, table["theta"][i], table["d"][i])
        axis = np.eye(6)[2 if types[i] == "R" else 5]
        if convention == "standard":
            pose[i] = angle_offset @ length_twist
            screw[i] = adjoint(pose_inverse(pose[i])) @ axis
        else:
            pose[i] = length_twist @ angle_offset
            screw[i] = axis
    pose[0] = base @ pose[0]
    return pose, screw


def _screw_motion(axis: int, angle: float, distance: float) -> np.ndarray:
    """Rotation about a coordinate axis and translation along it; the two commute."""
    along = np.eye(3)[axis]
    return pose_of(rpy_to_rotation(along * angle), along * distance)


# -- rounded numbers


def _places_of(number: float) -> int:
    """Number of decimals of the shortest decimal that equals a number."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _stands_for(number: float, exact: float) -> bool:
    """True if a number with at least two decimals is an exact number, rounded or truncated, or equals it."""
    if abs(exact - number) < 1e-15:
        return True
    places = _places_of(number)
    if places < _LEAST_PLACES or exact * number <= 0:
        return False
    unit, short = 10.0**-places, abs(exact) - abs(number)
    return bool(abs(short) <= 0.5 * unit * (1 + 1e-9) or 0 <= short < unit)


def meant_angle(angle: float) -> float:
    """The multiple of half a degree (15 degrees below four decimals), plus quarter turns, for which an angle stands, if any."""
    turned = _meant_turn(angle)
    return _meant_decimal(angle) if turned is None else turned


def _meant_decimal(angle: float) -> float:
    step = _FINE if _places_of(angle) >= _FINE_PLACES else _COARSE
    exact = round(angle / step) * step
    return exact if exact and _stands_for(angle, exact) else angle


def meant_unit(numbers: Sequence[float] | Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """The axis or quaternion of unit length for which its components stand, or else the normalised components."""
    values = np.asarray(numbers, float)
    nearest = _COMPONENTS[np.abs(_COMPONENTS[:, None] - np.abs(values)).argmin(axis=0)] * np.sign(values)
    found = [nearest]
    if np.count_nonzero(values) == 2:
        i, j = np.flatnonzero(values)
        angle = float(np.arctan2(values[j], values[i]))
        turned = _meant_turn(angle)
        at = round(2 * angle / _FINE) * _FINE / 2 if turned is None else turned  # quaternions contain half the angle
        in_plane = np.zeros(len(values))
        in_plane[[i, j]] = np.cos(at), np.sin(at)
        if turned is not None:
            return in_plane
        found.append(in_plane)
    for exact in found:
        if abs(np.linalg.norm(exact) - 1) < 1e-9 and all(map(_stands_for, values, exact)):
            return exact / np.linalg.norm(exact)
    return values / np.linalg.norm(values)


def meant_rotation(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    """The rotation for which a unit quaternion (w, x, y, z) stands if its components or Euler angles were short decimals."""
    whole = quaternion_to_rotation(quaternion)
    written = written_unit(quaternion)
    if written is None:
        return _with_meant_angles(whole, 1e-12)
    exact = quaternion_to_rotation(meant_unit(written))
    # components can also be those of rounded angles: 0.707105 0.707108 0 0 of 1.5708
    digits = max(map(_places_of, written))
    return exact if np.abs(exact - whole).max() > 1e-12 else _with_meant_angles(whole, 2 * 10.0**-digits)


def written_unit(unit: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"] | None:
    """The short decimals that yield an axis or quaternion when they are normalised, if any."""
    for places in range(_LEAST_PLACES, 9):
        written = unit.round(places)
        if written.any() and np.abs(written / np.linalg.norm(written) - unit).max() < 1e-15:
            return written
    return None


def _meant_turn(angle: float, tolerance: float = 1e-10) -> float | None:
    """The angle for which an angle stands that differs by quarter turns from a short decimal, as -3.673e-6 from 1.5708."""
    for quarters in (0, -1, 1, -2, 2, -3, 3):
        turned = angle + quarters * np.pi / 2
        for places in range(_LEAST_PLACES, 7):
            written = round(turned, places)
            if abs(written - turned) < tolerance:
                return _meant_decimal(written) - quarters * np.pi / 2
    return None


def _with_meant_angles(r: Float[np.ndarray, "3 3"], tolerance: float) -> Float[np.ndarray, "3 3"]:
    """The rotation for which the angles of r stand, if all of them are short decimals within the tolerance [rad]."""
    for x, back in ((r, np.asarray), (r.T, np.transpose)):  # Rx(a) Ry(b) Rz(c) is the transpose of Rz(-c) Ry(-b) Rx(-a)
        turns = [_meant_turn(angle, tolerance) for angle in rpy_of(x).tolist()]
        exact = [turn for turn in turns if turn is not None]
        if len(exact) == 3:
            found = back(rpy_to_rotation(np.array(exact)))
            if np.abs(found - r).max() > tolerance:
                return found
    return r


def rpy_of(r: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3"]:
    """Roll, pitch and yaw [rad], with the yaw in the file also near pitch = +-pi/2, where `rotation_to_rpy` sets it to 0."""
    yaw = np.arctan2(r[1, 0], r[0, 0])
    c, s = np.cos(yaw), np.sin(yaw)
    first, second = c * r[0] + s * r[1], c * r[1] - s * r[0]
    return np.array([np.arctan2(-second[2], second[1]), np.arctan2(-r[2, 0], first[0]), yaw])


def with_unrounded(chain: Chain, pose: Float[np.ndarray, "n 4 4"], screw: Float[np.ndarray, "n 6"]) -> Chain:
    """Note in a chain's topology the placements and screws for which the rounded numbers of its description stand."""
    exact = np.concatenate([pose[:, :3, :3].reshape(-1, 9), pose[:, :3, 3], screw], axis=1)
    shift = float(np.abs(exact - _geometry(chain)).max())
    if shift <= (_NEGLIGIBLE if chain.dtype == np.float64 else _FLOAT32):
        return chain
    rows = tuple(map(tuple, (exact.round(_DECIMALS) + 0.0).tolist()))  # + 0.0: no negative zeros
    shift = float(f"{1.1 * shift:.1e}")
    return dataclasses.replace(chain, topology=dataclasses.replace(chain.topology, unrounded=rows, rounding=shift))


def unrounded(chain: Chain) -> Chain:
    """The chain with its geometry before rounding, in double precision; the chain itself if nothing was rounded."""
    topology = chain.topology
    if len(topology.unrounded) != chain.n or chain.rotation.ndim != 3:
        return chain
    exact = np.array(topology.unrounded)
    if np.abs(exact - _geometry(chain)).max() > topology.rounding + _FLOAT32:
        return chain
    whole: Any = jax.tree.map(lambda x: np.asarray(x, np.float64), chain)
    parts = {"rotation": exact[:, :9].reshape(-1, 3, 3), "translation": exact[:, 9:12], "screw": exact[:, 12:]}
    return dataclasses.replace(whole, **parts, topology=dataclasses.replace(topology, unrounded=(), rounding=0.0))


def rounding_note(chain: Chain) -> str | None:
    """Sentence for the user if base parameters are decided with other angles or axes than those in the description."""
    exact = unrounded(chain)
    if exact is chain:
        return None
    changes = np.abs(_geometry(exact) - _geometry(chain)).max(axis=1)
    joints = [name for name, change in zip(chain.joint_names, changes, strict=True) if change > _NEGLIGIBLE]
    return (
        f"the model's angles or axes at {', '.join(joints)} are rounded (by up to {changes.max():.1g}, as 1.5708 for pi/2): "
        "base parameters are those of the exact ones, so that rounding adds none; torques use the model's own numbers"
    )


def _geometry(chain: Chain) -> Float[np.ndarray, "n 18"]:
    parts = (np.asarray(x, float).reshape(chain.n, -1) for x in (chain.rotation, chain.translation, chain.screw))
    return np.concatenate(list(parts), axis=1)
