"""Detect MuJoCo features that a chain cannot represent, including external forces such as contacts."""

from typing import Any

import numpy as np

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint
_JOINT, _JOINT_IN_PARENT = 0, 1  # mjtTrn

# features that the user may ignore by name
FEATURES = (
    "actuators",
    "equality",
    "flex",
    "fluid",
    "free_joint",
    "gravcomp",
    "plugin",
    "polynomial",
    "quaternion_spring",
    "tendon",
)
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
    found: dict[str, str] = {}
    if names := _active_equalities(model):
        found["equality"] = f"equality constraints ({_list(names)})"
    if names := _named(model.tendon, _tendons_with_forces(model)):
        found["tendon"] = f"tendons with stiffness, damping, frictionloss or armature ({_list(names)})"
    if not disabled(model, "SPRING", "PASSIVE"):
        of_quaternions = (model.jnt_stiffness != 0) & (model.jnt_type <= BALL)
        if names := _named(model.joint, of_quaternions):
            found["quaternion_spring"] = f"springs on ball and free joints ({_list(names)})"
    if names := _polynomial(model):
        found["polynomial"] = f"springs and dampers that are not linear ({_list(names)})"
    if model.opt.density != 0 or model.opt.viscosity != 0:
        found["fluid"] = f"a fluid (density {model.opt.density:g}, viscosity {model.opt.viscosity:g})"
    if names := _named(model.body, (model.body_gravcomp != 0) & (model.body_weldid != 0)):
        found["gravcomp"] = f"gravity compensation ({_list(names)})"
    if model.nflex:
        found["flex"] = f"deformable bodies ({model.nflex} flex)"
    if np.any(getattr(model, "body_plugin", np.array([-1])) >= 0):
        found["plugin"] = "plugins that act on bodies"
    if names := [_name(model.joint(j)) for j in np.flatnonzero(model.jnt_type == FREE) if _odd_free(model, int(j))]:
        found["free_joint"] = (
            f"armature, frictionloss or unequal damping of the linear motion of free joints in world axes ({_list(names)})"
        )
    rotors = _any(model, len(model.actuator_trntype), "actuator_armature", "actuator_damping")
    if names := _named(model.actuator, rotors & ~on_plain_joint(model)):
        found["actuators"] = f"armature or damping of actuators on more than one hinge or slide ({_list(names)})"
    return found


def left_out(model: Any) -> list[str]:
    """Describe the parts that a chain omits because they do not affect the motion without constraints and controls."""
    found = []
    if not disabled(model, "CONTACT", "CONSTRAINT") and _may_touch(model):
        found.append("contacts")
    balls = (model.jnt_limited != 0) & (model.jnt_type == BALL)
    if names := _named(model.joint, balls):
        found.append(f"limits of ball joints ({_list(names)})")
    if names := _named(model.tendon, ~_tendons_with_forces(model)):
        found.append(f"tendons ({_list(names)})")
    if len(_active_equalities(model)) < model.neq:
        found.append("inactive equality constraints")
    if names := _named(model.actuator, ~plain_motors(model)):
        found.append(f"actuators that are not plain motors ({_list(names)}); tau is the torque at the joints")
    if model.nsensor:
        found.append(f"sensors ({model.nsensor})")
    if model.nmocap:
        found.append(f"the motion of mocap bodies ({_list(_named(model.body, model.body_mocapid >= 0))})")
    return found


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


def _named(accessor: Any, mask: Any) -> list[str]:
    return [_name(accessor(int(i))) for i in np.flatnonzero(mask)]


def _list(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _active_equalities(model: Any) -> list[str]:
    if disabled(model, "EQUALITY", "CONSTRAINT"):
        return []
    return _named(model.equality, model.eq_active0)


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
    return _named(model.joint, odd) + _named(model.actuator, drives)


def _odd_free(model: Any, joint: int) -> bool:
    """True if a free joint's linear motion has armature, frictionloss or unequal damping, which depend on the axes."""
    linear = slice(int(model.jnt_dofadr[joint]), int(model.jnt_dofadr[joint]) + 3)
    damping = model.dof_damping[linear]
    return bool(model.dof_armature[linear].any() or model.dof_frictionloss[linear].any() or np.ptp(damping) > 0)


def _may_touch(model: Any) -> bool:
    """True if any two geoms can be in contact, according to their contact bits and bodies."""
    if model.npair:
        return True
    weld = np.asarray(model.body_weldid)[model.geom_bodyid]
    above = np.asarray(model.body_weldid)[np.asarray(model.body_parentid)[weld]]
    kinds = {
        (int(t), int(a), int(w), int(u))
        for t, a, w, u in zip(model.geom_contype, model.geom_conaffinity, weld, above, strict=True)
        if t or a
    }
    related = not disabled(model, "FILTERPARENT")
    for t1, a1, w1, u1 in kinds:
        for t2, a2, w2, u2 in kinds:
            kin = related and ((u1 == w2 and w2) or (u2 == w1 and w1))
            if w1 < w2 and not kin and (t1 & a2 or t2 & a1):
                return True
    return False
