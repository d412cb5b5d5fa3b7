"""Armature, friction, springs and limits of the joints of a compiled MuJoCo model, one row per link."""

from typing import Any

import numpy as np

from .features import FREE, SLIDE, disabled, on_plain_joint, plain_motors
from .tree import Link


def drives(model: Any, links: list[Link]) -> dict[str, Any]:
    """Compute the chain's leaves for drives, springs and limits, by name.

    The armature and damping of an actuator, multiplied by the square of its gear ratio, are added to those of its joint. The
    effort limit of an actuator is its gear ratio times the smaller of the forces that its control range and its force range
    allow; without these ranges, it is infinite. The effort limit of a joint is the sum over its actuators, but at most the
    joint's `actuatorfrcrange`.
    """
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
        # omitted for the linear part of a free joint, which is in world axes (see `features.unsupported`)
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
