"""Convert MJCF files, which MuJoCo reads and compiles, and compiled MuJoCo models to chains."""

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ModelError, warn
from ...model._build import build_chain
from ...model._chain import Chain, Topology
from ...model._joint_properties import COULOMB_VELOCITY
from ...model._rounded import with_unrounded
from .._files import read_bytes
from .drives import drives
from .features import FEATURES, OUTSIDE, disabled, left_out, unsupported
from .tree import tree_of

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
    - Sites become named frames. If a site has the same name as a body, the suffix _site is added.
    - Unnamed elements are numbered, for example body1, joint0 or site0.

    The following properties are converted, unless `<flag>` disables them:

    - armature, damping, and frictionloss (as Coulomb friction);
    - stiffness and springref;
    - ranges of limited joints, and effort limits from the ranges of actuators on single joints.

    The following features are omitted, and listed in a warning:

    - external forces: contacts, equality constraints, tendons and a fluid;
    - armature and frictionloss of a free joint's linear motion;
    - actuators other than plain motors;
    - limits of ball joints;
    - sensors and mocap bodies.

    Visual elements (geoms, cameras, lights), keyframes and solver settings are omitted without a warning. Any other feature
    that changes the motion raises an error, unless it is named in `ignore`.

    Args:
        ignore: features to omit although they change the motion: "actuators",
            "flex", "gravcomp", "plugin", "polynomial", "quaternion_spring".
        gravity: gravitational acceleration in world axes [m/s^2]; by default that of the model.
        coulomb_velocity: width v_c of the smooth sign function in Coulomb friction, fc tanh(qd / v_c), which replaces MuJoCo's
            friction constraint [rad/s or m/s].
        allow_nonphysical: accept physically inconsistent masses and inertias.

    Warns:
        ModelWarning: features are omitted. A single warning lists all of them.

    Raises:
        ModelError: no body has a joint, the model has an unsupported feature that is not ignored, a feature in `ignore` is
            unknown, or an inertia is inconsistent and `allow_nonphysical` is False.
    """
    if not hasattr(model, "opt"):
        raise ModelError(
            f"from_mujoco converts a compiled mujoco.MjModel, not a {type(model).__name__}",
            "compile an MjSpec with spec.compile(), or pass the file to jaxdyn.load",
        )
    return chain_of(model, "the MuJoCo model", ignore, gravity, coulomb_velocity, allow_nonphysical)


def compile_mjcf(text: str | bytes) -> Any:
    """Compile MJCF text to a model (`mujoco.MjModel`). An error in MuJoCo raises a `ModelError`."""
    text = text if isinstance(text, str) else text.decode("utf-8", errors="replace")
    return _compile(lambda mujoco: mujoco.MjModel.from_xml_string(text), "<text>")


def compile_mjcf_file(path: str | os.PathLike[str]) -> Any:
    """Compile an MJCF file, which may include other files. An error in MuJoCo raises a `ModelError`."""
    read_bytes(path)  # if the file cannot be read, raises the same errors as all other readers
    source = os.fspath(path)
    return _compile(lambda mujoco: mujoco.MjModel.from_xml_path(source), source)


def _compile(read: Callable[[Any], Any], source: str) -> Any:
    """Return `read(mujoco)`. An error in MuJoCo raises a `ModelError` that names the source."""
    try:
        import mujoco
    except ImportError as error:  # the cause tells callers that the file itself may be intact
        raise ModelError(
            f'{source}: MJCF is read by MuJoCo, which is not installed; install it with pip install "jaxdyn[mjcf]"'
        ) from error
    try:
        return read(mujoco)
    except ValueError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise ModelError(f"{source}: MuJoCo cannot compile this model: {reason}") from None


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
        raise ModelError(
            f"{source}: not supported: {'; '.join(acting[key] for key in refused)}. Remove these features from the model, "
            f"or omit them with ignore={refused!r}"
        )
    if not model.njnt:
        raise ModelError(f"{source}: no body has a joint; a robot needs at least one")
    try:
        tree = tree_of(model)
        chain = build_chain(
            {
                "rotation": [link.placement[:3, :3] for link in tree.links],
                "translation": [link.placement[:3, 3] for link in tree.links],
                "screw": [link.screw for link in tree.links],
                "inertia": tree.inertia,
                "gravity": _gravity(model) if gravity is None else np.asarray(gravity, float),
                "friction.coulomb_velocity": coulomb_velocity,
                **drives(model, tree.links),
            },
            Topology(
                tuple(link.parent for link in tree.links),
                tuple(link.joint_name for link in tree.links),
                tuple(link.name for link in tree.links),
                base_name=tree.base,
                quaternion_joints=tuple(tree.quaternion_joints),
            ),
            tree.frames,
            allow_nonphysical=allow_nonphysical,
        )
        exact = tree_of(model, meant=True).links
        places = np.array([link.placement for link in exact])
        chain = with_unrounded(chain, places[:, :3, :3], places[:, :3, 3], np.array([link.screw for link in exact]))
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from None
    if without := [acting[key] for key in sorted(acting)] + left_out(model):
        warn(f"{source}: omitted: {'; '.join(without)}")
    return chain


def _gravity(model: Any) -> np.ndarray:
    return np.zeros(3) if disabled(model, "GRAVITY") else np.array(model.opt.gravity)
