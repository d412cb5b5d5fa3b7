"""`load` and `loads`: read robot descriptions in all supported formats, distinguished by their root element."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelError
from ..model._chain import Chain
from ._files import read_bytes
from ._geometry import Geometry
from ._mjcf import read as mjcf
from ._mjcf.geometry import geometry_from_mujoco
from ._urdf import read as urdf
from ._urdf.geometry import read_urdf_geometry

_EARTH = (0.0, 0.0, -9.81)


def load(
    path: str | os.PathLike[str],
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
    gravity: ArrayLike | Sequence[float] | None = None,
    ignore: Collection[str] = (),
    allow_nonphysical: bool = False,
    ignore_inertials: bool = False,
) -> Chain:
    """Load a robot from a URDF or MJCF file, distinguished by the root element, `<robot>` or `<mujoco>`.

    MJCF is read by MuJoCo (pip install "jaxdyn[mjcf]"): see `from_mujoco`. For URDF, the robot is the entire tree from the
    root link (the base), or the serial chain to `tip`. Its joints are in depth-first order, with branches in file order.

    - Revolute, continuous and prismatic joints are movable.
    - A planar joint J becomes two prismatic joints J_x, J_y and a rotation J about its axis.
    - A floating joint J at the root becomes a free joint with coordinates J_wx to J_vz.
    - Mimic joints become a `Coupling`.
    - A link on a fixed or locked joint is fused to the moving link or base that carries it: its inertia is added (except to
      the base), and its frame remains available by name.

    The inertial parameters (m, h, I_o) of a link are about the origin of its frame. A link without `<inertial>` has zero
    inertia, so files without inertias can be loaded. An all-zero `<inertial>` is ignored at the root and on fixed joints,
    where it is common.

    `<dynamics>` specifies viscous (damping) and Coulomb (friction) coefficients. Properties that URDF lacks are read from
    `<jaxdyn armature offset coulomb_velocity stribeck_friction stribeck_velocity stiffness rest_position/>` in a `<joint>`:
    rotor inertia, torque offset, the width of the smooth sign in Coulomb friction, the Stribeck term, and a spring.
    Revolute and prismatic joints require `<limit>` (lower and upper default to 0, as in the URDF specification); position
    limits of continuous joints and limits beyond 1e12 are infinite, since URDF cannot express infinity.
    URDF does not specify gravity; the argument `gravity` does.

    Args:
        lock: URDF only: positions [rad or m] at which joints are locked. Joints that mimic a locked joint are locked, too.
            Joints that are fixed in the file are ignored, with a warning.
        tip: URDF only: the link at which a serial chain ends. Joints that do not move the tip are removed together with the
            bodies that they carry, including their mass: lock them to retain these bodies. By default all joints are
            included; if the tree has a single end, the tip is the last moving link, or the last link fixed to it.
        floating_base: URDF only: connect the root link to the world by a free joint of this name (for True
            "floating_base", or "root_joint" if the file has a joint of that name). The new root link is "world", or
            "universe" if the file has a link "world".
        ignore_mimic: URDF only: treat mimic joints as independent joints.
        gravity: acceleration in world axes [m/s^2]; by default (0, 0, -9.81), or that of an MJCF file.
        ignore: MJCF only: features to omit although they change the motion (see `from_mujoco`).
        allow_nonphysical: accept physically inconsistent masses and inertias.
        ignore_inertials: URDF only: load only the kinematics, as if no link had an `<inertial>`.

    Warns:
        ModelWarning: a single warning that lists all tolerated faults: inertias that violate the triangle inequality by up
            to 15 % (rounded or badly estimated); inconsistent inertias that become consistent by fusing or have no effect
            (at the base, or removed by `tip`); swapped limits and a second `<axis>`, both of which are ignored; bodies with
            mass that `tip` removes; and joints that move no mass, which make the mass matrix singular.

    Raises:
        ModelError: (with file, line, element and remedy) the file is missing, is not XML, declares entities, or is not a
            URDF; names are repeated or unknown; links form a loop, have two parents or are not connected; a joint type
            is not supported, or a floating joint is not at the root; a joint mimics an unknown joint, a joint that does
            not move the tip, or, indirectly, itself; a limit is missing; a number is malformed; a mass that has an effect
            is not positive, or an inertia that has an effect is inconsistent; a lock or the tip is unknown, or a lock is
            outside its limits; an argument is for the other format. For MJCF: MuJoCo is not installed or rejects the file
            (with its message); see also `from_mujoco`.

    Source: the URDF XML specification (wiki.ros.org/urdf/XML) and MuJoCo's XML reference (mujoco.readthedocs.io).
    """
    of_urdf = {"lock": lock, "tip": tip, "floating_base": floating_base, "ignore_mimic": ignore_mimic}
    of_urdf |= {"ignore_inertials": ignore_inertials}
    return _read(read_bytes(path), path, ignore, gravity, allow_nonphysical, of_urdf)


def loads(
    text: str | bytes,
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
    gravity: ArrayLike | Sequence[float] | None = None,
    ignore: Collection[str] = (),
    allow_nonphysical: bool = False,
    ignore_inertials: bool = False,
) -> Chain:
    """Load a robot from URDF or MJCF text in memory; arguments, warnings and errors are those of `load`."""
    of_urdf = {"lock": lock, "tip": tip, "floating_base": floating_base, "ignore_mimic": ignore_mimic}
    of_urdf |= {"ignore_inertials": ignore_inertials}
    return _read(text, None, ignore, gravity, allow_nonphysical, of_urdf)


def _read(
    data: str | bytes,
    path: str | os.PathLike[str] | None,
    ignore: Collection[str],
    gravity: ArrayLike | Sequence[float] | None,
    allow_nonphysical: bool,
    of_urdf: Mapping[str, Any],
) -> Chain:
    source = "<text>" if path is None else os.fspath(path)
    if is_mjcf(data):
        _only_for("URDF", of_urdf, source)
        model = mjcf.compile_mjcf(data) if path is None else mjcf.compile_mjcf_file(path)
        return mjcf.chain_of(model, source, ignore=ignore, gravity=gravity, allow_nonphysical=allow_nonphysical)
    _only_for("MJCF", {"ignore": ignore}, source)
    gravity = _EARTH if gravity is None else np.asarray(gravity, float)
    options = dict(of_urdf)
    robot = urdf.parse_robot(data, source, inertials=not options.pop("ignore_inertials"))
    return urdf.chain_of(robot, gravity=gravity, allow_nonphysical=allow_nonphysical, **options)


def read_geometry(
    path: str | os.PathLike[str],
    *,
    collision: bool = False,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    """Read the shapes of all links in a URDF or MJCF file, with notes on shapes that cannot be drawn.

    For URDF, these are the `<visual>` shapes. The path of a mesh file may be relative to the folder of the URDF, absolute, a
    file:// URL, or package://NAME/REST. Packages are searched in `packages`, in the folders above the URDF (a folder that is
    called NAME or contains NAME), in ROS_PACKAGE_PATH, and in share/NAME of AMENT_PREFIX_PATH. A mesh that is missing or
    has another URL scheme is noted and omitted. For MJCF, see `geometry_from_mujoco`.

    Args:
        collision: return collision shapes instead of visual ones.
        packages: URDF only: folders of packages by name.

    Raises:
        ModelError: the file cannot be read, or is neither URDF nor MJCF; a shape's numbers are malformed; the file is MJCF
            and MuJoCo is not installed, or packages are specified.

    Source: the URDF XML specification (wiki.ros.org/urdf/XML/link) and MuJoCo's XML reference (mujoco.readthedocs.io).
    """
    if is_mjcf(read_bytes(path)):
        _only_for("URDF", {"packages": packages}, os.fspath(path))
        return geometry_from_mujoco(mjcf.compile_mjcf_file(path), collision=collision)
    return read_urdf_geometry(path, collision=collision, packages=packages)


def _only_for(kind: str, given: Mapping[str, object], source: str) -> None:
    if meant := [name for name, value in given.items() if value]:
        remedy = f"{{{meant[0]}}} is for {kind} files, and this is not one; omit it"
        raise ModelError(remedy=remedy, place=source, **{meant[0]: ""})


class _Found(Exception):
    """Passes the root element's tag out of the parser."""


def is_mjcf(data: bytes | str) -> bool:
    """True if the root element is `<mujoco>`; False for other root elements and for text that is not XML."""

    def start(tag: str, _: dict[str, str]) -> None:
        raise _Found(tag)

    data = data.lstrip()
    parser = expat.ParserCreate("utf-8" if isinstance(data, str) else None)
    parser.StartElementHandler = start
    try:
        parser.Parse(data.encode() if isinstance(data, str) else data, True)
    except _Found as found:
        return found.args[0] == "mujoco"
    except (expat.ExpatError, LookupError, ValueError):
        pass
    return False
