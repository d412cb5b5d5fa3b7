"""Compiled MuJoCo models, and MJCF files that MuJoCo compiles, as chains.

MuJoCo applies the joints of a body one after the other, in the frame of the body. The screw A_j of joint j is therefore the
joint's axis through its anchor, and the frame of its link coincides with the frame of the body. Since the body has the pose
in the file at q = qpos0, the placement M_j of the link at q = 0 contains the factor exp(-[A_j] qpos0). A ball joint rotates
about its anchor, which is the origin of the frames of its links; a body with another origin becomes a named frame.
"""

import os
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import ModelError, warn
from ..model.build import build_chain, meant_rotation, meant_unit, pose_of, with_unrounded, written_unit
from ..model.chain import COULOMB_VELOCITY, Chain, Topology
from ..model.joints import Free, Joint as OneDof, Spherical
from ..spatial.components import rotation_about
from ..spatial.inertia import transform_inertial_parameters
from ..spatial.so3 import quaternion_to_rotation
from .urdf import fresh

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint
_JOINT, _JOINT_IN_PARENT = 0, 1  # mjtTrn

# features that the user may ignore by name
FEATURES = tuple("actuators equality flex fluid free_joint gravcomp plugin polynomial quaternion_spring tendon".split())
# features omitted with a warning: external forces, and properties of free bodies in world axes
OUTSIDE = frozenset({"equality", "fluid", "free_joint", "tendon"})


def disabled(model: Any, *names: str) -> bool:
    """True if the model's `<flag>` disables one of the named features. Names unknown to this MuJoCo version are ignored."""
    import mujoco

    flags: Any = mujoco
    bits = [getattr(flags.mjtDisableBit, f"mjDSBL_{name}", 0) for name in names]
    return any(model.opt.disableflags & int(bit) for bit in bits)


def unsupported(model: Any) -> dict[str, str]:
    """Find features that affect the motion and cannot be converted: names from `FEATURES`, with descriptions of their use."""
    of_quaternions = (model.jnt_stiffness != 0) & (model.jnt_type <= BALL) & (not disabled(model, "SPRING", "PASSIVE"))
    odd_free = [_odd_free(model, j) for j in range(model.njnt)]
    rotors = _any(model, len(model.actuator_trntype), "actuator_armature", "actuator_damping")
    odd_free_use = "armature, frictionloss or unequal damping of the linear motion of free joints in world axes"
    parts = {
        "equality": ("equality constraints", _active_equalities(model)),
        "tendon": (
            "tendons with stiffness, damping, frictionloss or armature",
            named(model.tendon, _tendons_with_forces(model)),
        ),
        "quaternion_spring": ("springs on ball and free joints", named(model.joint, of_quaternions)),
        "polynomial": ("springs and dampers that are not linear", _polynomial(model)),
        "gravcomp": ("gravity compensation", named(model.body, (model.body_gravcomp != 0) & (model.body_weldid != 0))),
        "free_joint": (odd_free_use, named(model.joint, odd_free)),
        "actuators": (
            "armature or damping of actuators on more than one hinge or slide",
            named(model.actuator, rotors & ~on_plain_joint(model)),
        ),
    }
    found = {key: f"{what} ({listed(names)})" for key, (what, names) in parts.items() if names}
    if model.opt.density != 0 or model.opt.viscosity != 0:
        found["fluid"] = f"a fluid (density {model.opt.density:g}, viscosity {model.opt.viscosity:g})"
    if model.nflex:
        found["flex"] = f"deformable bodies ({model.nflex} flex)"
    if np.any(getattr(model, "body_plugin", np.array([-1])) >= 0):
        found["plugin"] = "plugins that act on bodies"
    return found


def left_out(model: Any) -> list[str]:
    """Describe the parts that a chain omits because they do not affect the motion without constraints and controls."""
    balls = (model.jnt_limited != 0) & (model.jnt_type == BALL)
    motors, mocap = "actuators that are not plain motors", "the motion of mocap bodies"
    parts = {
        "limits of ball joints": named(model.joint, balls),
        "tendons": named(model.tendon, ~_tendons_with_forces(model)),
        motors: named(model.actuator, ~plain_motors(model)),
        mocap: named(model.body, model.body_mocapid >= 0),
    }
    said = {what: f"{what} ({listed(names)})" for what, names in parts.items() if names}
    if motors in said:
        said[motors] += "; tau is the torque at the joints"
    found = ["contacts"] if not disabled(model, "CONTACT", "CONSTRAINT") and _may_touch(model) else []
    found += ["inactive equality constraints"] if len(_active_equalities(model)) < model.neq else []
    return found + list(said.values()) + ([f"sensors ({model.nsensor})"] if model.nsensor else [])


def on_plain_joint(model: Any) -> np.ndarray:
    """Mask of the actuators that drive a single hinge or slide joint."""
    kind, target = np.asarray(model.actuator_trntype), np.asarray(model.actuator_trnid).reshape(-1, 2)[:, 0]
    on_joint = (kind == _JOINT) | (kind == _JOINT_IN_PARENT)
    types = np.array([model.jnt_type[j] if on else FREE for j, on in zip(target, on_joint, strict=True)], int)
    return on_joint & (types >= SLIDE)


def plain_motors(model: Any) -> np.ndarray:
    """Mask of the actuators whose torque or force on a single hinge or slide joint is proportional to their control."""
    plain = (model.actuator_gaintype == 0) & (model.actuator_biastype == 0) & (model.actuator_dyntype == 0)
    return np.asarray(plain, bool) & on_plain_joint(model)


def _name(item: Any) -> str:
    return item.name or f"number {item.id}"


def named(accessor: Any, mask: Any) -> list[str]:
    """Names of the marked elements of a model."""
    return [_name(accessor(int(i))) for i in np.flatnonzero(mask)]


def listed(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _active_equalities(model: Any) -> list[str]:
    if disabled(model, "EQUALITY", "CONSTRAINT"):
        return []
    return named(model.equality, model.eq_active0)


def _any(model: Any, count: int, *fields: str) -> np.ndarray:
    """Mask of the elements for which one of the named fields is nonzero. Fields that old MuJoCo versions lack count as zero."""
    found = np.zeros(count, bool)
    for field in fields:
        values = np.asarray(getattr(model, field, np.zeros(count)))
        found |= (values.reshape(count, values.size // max(count, 1)) != 0).any(1)
    return found


def _tendons_with_forces(model: Any) -> np.ndarray:
    kinds = ("stiffness", "damping", "frictionloss", "armature", "stiffnesspoly", "dampingpoly")
    return _any(model, model.ntendon, *(f"tendon_{kind}" for kind in kinds))


def _polynomial(model: Any) -> list[str]:
    """Names of joints and actuators with nonlinear or yielding springs or nonlinear dampers (recent MuJoCo versions)."""
    odd = _any(model, model.njnt, "jnt_stiffnesspoly", "jnt_springyield")
    odd[np.asarray(model.dof_jntid)[_any(model, model.nv, "dof_dampingpoly")]] = True
    drives = _any(model, len(model.actuator_trntype), "actuator_dampingpoly")
    return named(model.joint, odd) + named(model.actuator, drives)


def _odd_free(model: Any, joint: int) -> bool:
    """True for a free joint whose linear motion has armature, frictionloss or unequal damping, which depend on the axes."""
    if model.jnt_type[joint] != FREE:
        return False
    linear = slice(int(model.jnt_dofadr[joint]), int(model.jnt_dofadr[joint]) + 3)
    damping = model.dof_damping[linear]
    return bool(model.dof_armature[linear].any() or model.dof_frictionloss[linear].any() or np.ptp(damping) > 0)


class ContactFilters(NamedTuple):
    """Why MuJoCo does not test pairs of geoms for contact, boolean matrices (m, m).

    Source: MuJoCo's documentation (mujoco.readthedocs.io, Computation, Collision detection: Selection).

    Attributes:
        same: both are on one body, or on bodies that are welded together.
        parent: one is on the parent of the other's body, unless the parent is fixed to the world or the filter is disabled.
        excluded: <exclude> names their bodies.
        masked: contype and conaffinity rule the pair out.
    """

    same: np.ndarray
    parent: np.ndarray
    excluded: np.ndarray
    masked: np.ndarray


def contact_filters(model: Any, geoms: Sequence[int] | np.ndarray) -> ContactFilters:
    """The filters of contacts among some geoms."""
    body = np.asarray(model.geom_bodyid)[geoms]
    weld = np.asarray(model.body_weldid)[body]
    above = np.asarray(model.body_weldid)[np.asarray(model.body_parentid)[weld]]
    types, masks = np.asarray(model.geom_contype)[geoms], np.asarray(model.geom_conaffinity)[geoms]
    below = (above[:, None] == weld) & (weld != 0) & (weld[:, None] != 0) & (not disabled(model, "FILTERPARENT"))
    signatures = np.isin((body[:, None] << 16) + body, model.exclude_signature)
    passes = (types[:, None] & masks) != 0
    return ContactFilters(weld[:, None] == weld, below | below.T, signatures | signatures.T, ~(passes | passes.T))


def _may_touch(model: Any) -> bool:
    """True if any two geoms can be in contact, according to their contact bits and bodies."""
    if model.npair:
        return True
    geoms = np.stack([model.geom_contype, model.geom_conaffinity, model.geom_bodyid], axis=1)
    _, different = np.unique(geoms, axis=0, return_index=True)
    found = contact_filters(model, different)
    return bool((~(found.same | found.parent | found.masked)).any())


class Link(NamedTuple):
    """A joint with one degree of freedom, and its link; `joint` and `dof` are MuJoCo's indices."""

    joint_name: str
    name: str
    parent: int
    placement: Float[np.ndarray, "4 4"]
    screw: Float[np.ndarray, "6"]
    joint: int
    dof: int


class Tree(NamedTuple):
    """Links and their inertial parameters, named frames (link, pose), compound joints (first link, type), and base name."""

    links: list[Link]
    inertia: Float[np.ndarray, "n 10"]
    frames: dict[str, tuple[int, np.ndarray]]
    compound_joints: list[tuple[int, str]]
    base: str


_TYPES = {FREE: Free, BALL: Spherical}
_PLACES = {"body": ("pos", "quat", "ipos", "iquat"), "joint": ("pos", "axis"), "site": ("pos", "quat")}


def tree_of(model: Any, meant: bool = False) -> Tree:
    """Convert a model to a tree of links."""
    _check_places(model)
    joint_names: set[str] = set()
    bodies = body_names(model)
    taken = set(bodies)
    joints = [model.joint(j).name or f"joint{j}" for j in range(model.njnt)]
    links: list[Link] = []
    compound: list[tuple[int, str]] = []
    frames: dict[str, tuple[int, np.ndarray]] = {}
    carrier, poses, about_bodies = [-1], [np.eye(4)], []
    for b in range(1, model.nbody):
        above = int(model.body_parentid[b])
        local, quaternion = pose_matrix(model.body_pos[b], model.body_quat[b]), np.asarray(model.body_quat[b])
        if meant:
            local[:3, :3] = meant_rotation(quaternion / np.linalg.norm(quaternion))
        link, pose = carrier[above], poses[above] @ local
        first = int(model.body_jntadr[b])
        own = range(first, first + int(model.body_jntnum[b]))
        for j in own:
            parts, after = _parts(model, j, pose, meant)
            is_body = j == own[-1] and after is None
            kind = _TYPES.get(int(model.jnt_type[j]), OneDof)
            if kind is not OneDof:
                compound.append((len(links), kind.kind))
            for k, (placement, screw, dof) in enumerate(parts):
                suffix = kind.parts[k]
                last = is_body and k == len(parts) - 1
                name = bodies[b] if last else fresh(f"{bodies[b]}_{joints[j]}{suffix}", taken)
                joint = fresh(joints[j] + suffix, joint_names)
                links.append(Link(joint, name, link, placement, screw, j, dof))
                link = len(links) - 1
            pose = np.eye(4) if after is None else after
        if not own or links[link].name != bodies[b]:
            frames[bodies[b]] = (link, pose)
        carrier.append(link)
        poses.append(pose)
        about = pose @ pose_matrix(model.body_ipos[b], model.body_iquat[b])
        about_bodies.append((link, transform_inertial_parameters(about, _about_com(model, b))))
    inertia = np.zeros((len(links) + 1, 10))  # the last row is that of the base
    np.add.at(inertia, [link for link, _ in about_bodies], [pi for _, pi in about_bodies])
    for s in range(model.nsite):
        name = model.site(s).name or f"site{s}"
        name = fresh(f"{name}_site" if name in taken else name, taken)
        b = int(model.site_bodyid[s])
        frames[name] = (carrier[b], poses[b] @ pose_matrix(model.site_pos[s], model.site_quat[s]))
    return Tree(links, inertia[:-1], frames, compound, bodies[0])


def body_names(model: Any) -> list[str]:
    """Names of the bodies in the chain, in the order of MuJoCo's body indices."""
    taken: set[str] = set()
    return [fresh(model.body(b).name or f"body{b}", taken) for b in range(model.nbody)]


def _parts(
    model: Any, j: int, pose: np.ndarray, meant: bool
) -> tuple[list[tuple[np.ndarray, np.ndarray, int]], np.ndarray | None]:
    """Split joint j into links: their placements, screws and degrees of freedom, and the body's pose in the last, or None."""
    kind, anchor, axis = int(model.jnt_type[j]), np.array(model.jnt_pos[j]), np.array(model.jnt_axis[j])
    dof, unit = int(model.jnt_dofadr[j]), np.eye(6)
    if meant and axis.any():
        written = written_unit(axis)
        axis = meant_unit(axis if written is None else written)
    if kind == FREE:  # q contains the entire pose; MuJoCo orders linear before angular velocities
        return [(np.eye(4), unit[k], dof + (k + 3) % 6) for k in range(6)], None
    if kind == BALL:
        there = pose_of(translation=anchor)
        parts = [(pose @ there if k == 0 else np.eye(4), unit[k], dof + k) for k in range(3)]
        return parts, pose_of(translation=-anchor) if anchor.any() else None
    q0 = float(model.qpos0[model.jnt_qposadr[j]])
    if kind == SLIDE:
        return [(pose @ pose_of(translation=-q0 * axis), np.concatenate([np.zeros(3), axis]), dof)], None
    turn = rotation_about(axis, -q0)
    motion = pose_of(turn, anchor - turn @ anchor)
    return [(pose @ motion, np.concatenate([axis, np.cross(anchor, axis)]), dof)], None


def _about_com(model: Any, b: int) -> np.ndarray:
    """The ten inertial parameters of a body about its centre of mass, in its principal axes."""
    x, y, z = model.body_inertia[b]
    return np.array([model.body_mass[b], 0, 0, 0, x, 0, y, 0, 0, z])


def pose_matrix(position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    """Compute the pose matrix (4, 4) of a position and a quaternion (w, x, y, z) of any nonzero length."""
    return pose_of(quaternion_to_rotation(np.asarray(quaternion, float)), position)


def _check_places(model: Any) -> None:
    counts = {"body": model.nbody, "joint": model.njnt, "site": model.nsite}
    for kind, fields in _PLACES.items():
        for i in range(counts[kind]):
            item = getattr(model, kind)(i)
            for field in fields:
                if not np.all(np.isfinite(value := getattr(item, field))):
                    fault = f"{kind} {item.name!r} has {field} = {np.array2string(value)}"
                    raise ModelError(fault, "specify finite numbers")


def drives(model: Any, links: list[Link]) -> dict[str, Any]:
    """Compute the chain's leaves for drives, springs and limits, by name."""
    joints, dofs = np.array([link.joint for link in links]), np.array([link.dof for link in links])
    kinds = model.jnt_type[joints]
    single, free = kinds >= SLIDE, kinds == FREE
    linear = free & (np.array([link.screw[:3].any() for link in links]) == 0)
    springs = single & (not disabled(model, "SPRING", "PASSIVE"))
    damps = not disabled(model, "DAMPER", "PASSIVE")
    rubs = not disabled(model, "FRICTIONLOSS", "CONSTRAINT")
    rotors, losses = _of_actuators(model)
    limited = single & (model.jnt_limited[joints] != 0) & (not disabled(model, "LIMIT", "CONSTRAINT"))
    ranges = np.array(model.jnt_range[joints])
    rest = model.qpos_spring[model.jnt_qposadr[joints]]
    effort = np.where(single, _efforts(model)[joints], np.inf)
    return {
        # omitted for the linear part of a free joint, which is in world axes (see `unsupported`)
        "armature": np.where(linear, 0.0, model.dof_armature[dofs]) + rotors[dofs],
        "friction.viscous": (model.dof_damping[dofs] + losses[dofs]) * damps,
        "friction.coulomb": np.where(linear, 0.0, model.dof_frictionloss[dofs]) * rubs,
        "springs.stiffness": np.where(springs, model.jnt_stiffness[joints], 0.0),
        "springs.rest_position": np.where(springs, rest, 0.0),
        "limits.position": np.where(limited[:, None], ranges, [-np.inf, np.inf]),
        "limits.effort": effort,
    }


def _of_actuators(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute the armature and damping that actuators add to every degree of freedom (MuJoCo 3.5 and later)."""
    armature, damping = np.zeros(model.nv), np.zeros(model.nv)
    if not hasattr(model, "actuator_armature"):
        return armature, damping
    for i in np.flatnonzero(on_plain_joint(model)):
        dof, gear = model.jnt_dofadr[model.actuator_trnid.reshape(-1, 2)[i, 0]], model.actuator_gear[i, 0]
        armature[dof] += gear**2 * model.actuator_armature[i]
        damping[dof] += gear**2 * model.actuator_damping[i]
    return armature, damping


def _efforts(model: Any) -> np.ndarray:
    """Compute the effort limit of every joint."""
    total, driven = np.zeros(model.njnt), np.zeros(model.njnt, bool)
    motors = plain_motors(model)
    controls = getattr(model, "actuator_ctrladr", np.arange(len(motors)))
    for i in np.flatnonzero(on_plain_joint(model)):
        most = np.inf
        if model.actuator_forcelimited[i]:
            most = np.abs(model.actuator_forcerange[i]).max()
        if motors[i] and model.actuator_ctrllimited[controls[i]]:
            most = min(most, abs(model.actuator_gainprm[i, 0]) * np.abs(model.actuator_ctrlrange[controls[i]]).max())
        joint, gear = int(model.actuator_trnid.reshape(-1, 2)[i, 0]), abs(model.actuator_gear[i, 0])
        total[joint] += most * gear if gear else 0.0
        driven[joint] = True
    effort = np.where(driven, total, np.inf)
    own = np.where(model.jnt_actfrclimited != 0, np.abs(model.jnt_actfrcrange).max(1, initial=0), np.inf)
    return np.minimum(effort, own)


Gravity = ArrayLike | Sequence[float] | None


def from_mujoco(
    model: Any,
    *,
    ignore: Collection[str] = (),
    gravity: Gravity = None,
    coulomb_velocity: float = COULOMB_VELOCITY,
    allow_nonphysical: bool = False,
) -> Chain:
    """Convert a compiled MuJoCo model (`mujoco.MjModel`) to a chain: bodies, joints, inertias, drives and gravity.

    Joints are in MuJoCo's order, and q equals MuJoCo's qpos. Velocities, accelerations and forces differ from those of MuJoCo
    only at free joints (see `layouts`).

    - A hinge or slide becomes a single joint. A ball joint J becomes the spherical joint J_wx, J_wy, J_wz, and a free joint J
      becomes the free joint J_wx, J_wy, J_wz, J_vx, J_vy, J_vz.
    - The link of a body's last joint has the name of the body. If the body has no joint, or its ball joint is not at the
      body's origin, a named frame represents the body instead. `frame_pose` of a body equals its xpos and xquat in MuJoCo.
    - Sites become named frames, with the suffix _site if a body has the same name. Unnamed elements are numbered (body1,
      joint0).
    - Unless `<flag>` disables them, armature, damping, frictionloss (as Coulomb friction), stiffness, springref and ranges of
      limited joints are converted. Armature and damping of an actuator on a single joint, times its squared gear ratio, are
      added to those of the joint. The joint's effort limit is the sum over its actuators of the gear ratio times the smaller of
      the forces that the control range and the force range allow, but at most `actuatorfrcrange`.

    A warning lists omitted features: external forces (contacts, equality constraints, tendons and a fluid); armature and
    frictionloss of a free joint's linear motion; actuators other than plain motors; limits of ball joints; sensors and mocap
    bodies. Visual elements, keyframes and solver settings are omitted without a warning. Any other feature that changes the
    motion raises an error, unless it is named in `ignore`.

    Args:
        ignore: features to omit although they change the motion: "actuators", "flex", "gravcomp", "plugin",
            "polynomial", "quaternion_spring".
        gravity: gravitational acceleration in world axes [m/s^2]; by default that of the model.
        coulomb_velocity: width v_c of the smooth sign function in Coulomb friction, fc tanh(qd / v_c), which replaces MuJoCo's
            friction constraint [rad/s or m/s].
        allow_nonphysical: accept physically inconsistent masses and inertias.

    Raises:
        ModelError: no body has a joint, the model has an unsupported feature that is not ignored, a feature in `ignore` is
            unknown, or an inertia is inconsistent and `allow_nonphysical` is False.
    """
    if not hasattr(model, "opt"):
        fault = f"from_mujoco converts a compiled mujoco.MjModel, not a {type(model).__name__}"
        raise ModelError(fault, "compile an MjSpec with spec.compile(), or pass the file to jaxdyn.load")
    return chain_of(model, "the MuJoCo model", ignore, gravity, coulomb_velocity, allow_nonphysical)


def compile_mjcf(text: str | bytes = "", path: str | os.PathLike[str] | None = None) -> Any:
    """Compile MJCF text, or the file at `path`, which may include other files. An error in MuJoCo raises a `ModelError`."""
    source = "<text>" if path is None else os.fspath(path)
    try:
        import mujoco
    except ImportError as error:  # the cause tells callers that the file itself may be intact
        fault = "MJCF is read by MuJoCo, which is not installed"
        raise ModelError(fault, 'install it with pip install "jaxdyn[mjcf]"', place=source) from error
    model = vars(mujoco)["MjModel"]
    try:
        if path is not None:
            return model.from_xml_path(source)
        return model.from_xml_string(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    except ValueError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise ModelError(f"MuJoCo cannot compile this model: {reason}", place=source) from None


def chain_of(
    model: Any,
    source: str,
    ignore: Collection[str] = (),
    gravity: Gravity = None,
    coulomb_velocity: float = COULOMB_VELOCITY,
    allow_nonphysical: bool = False,
) -> Chain:
    """Convert a compiled model to a chain. `source` is the name of the model in error messages."""
    ignored = {ignore} if isinstance(ignore, str) else set(ignore)
    if unknown := sorted(ignored - set(FEATURES)):
        raise ModelError(f"unknown feature {unknown[0]!r} in ignore; choose among {', '.join(FEATURES)}")
    acting = unsupported(model)
    if refused := [key for key in acting if key not in ignored | OUTSIDE]:
        fault = f"not supported: {'; '.join(acting[key] for key in refused)}"
        remedy = "Remove these features from the model, or omit them with {ignore}"
        raise ModelError(fault, remedy, place=source, ignore=repr(refused))
    if not model.njnt:
        raise ModelError(f"{source}: no body has a joint; a robot needs at least one")
    own = np.zeros(3) if disabled(model, "GRAVITY") else np.array(model.opt.gravity)
    try:
        tree = tree_of(model)
        column = lambda key: [getattr(link, key) for link in tree.links]
        poses = np.array(column("placement"))
        leaves = {"rotation": poses[:, :3, :3], "translation": poses[:, :3, 3], "screw": column("screw")}
        leaves |= {"inertia": tree.inertia, "gravity": np.asarray(own if gravity is None else gravity, float)}
        leaves |= {"friction.coulomb_velocity": coulomb_velocity, **drives(model, tree.links)}
        names = (tuple(column(key)) for key in ("parent", "joint_name", "name"))
        topology = Topology(*names, base_name=tree.base, compound_joints=tuple(tree.compound_joints))
        chain = build_chain(leaves, topology, tree.frames, allow_nonphysical=allow_nonphysical)
        exact = tree_of(model, meant=True).links
        chain = with_unrounded(chain, *(np.array([getattr(x, k) for x in exact]) for k in ("placement", "screw")))
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from None
    if without := [acting[key] for key in sorted(acting)] + left_out(model):
        warn(f"{source}: omitted: {'; '.join(without)}")
    return chain
