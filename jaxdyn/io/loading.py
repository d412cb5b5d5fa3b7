"""`load` and `loads`: read a robot description, whose format (URDF or MJCF) is detected from its root element."""

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from ..errors import ModelError
from ..model.chain import Chain
from . import mjcf as mjcf, urdf as urdf
from .files import read_bytes
from .shapes import Geometry, geometry_from_mujoco, read_urdf_geometry


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
    """Load a robot from a URDF or MJCF file; the root element, `<robot>` or `<mujoco>`, determines the format.

    MJCF files are read by MuJoCo (pip install "jaxdyn[mjcf]"); see `from_mujoco`. From a URDF file, `load` reads the entire
    tree of links, whose root link is the base, or only the serial chain from the base to `tip`. Joints are in depth-first
    order, with branches in file order. The elements are converted as follows:

    - Revolute, continuous and prismatic joints become moving joints. A planar joint J becomes two prismatic joints, J_x and
      J_y, and a revolute joint J about its axis. A floating joint J at the root becomes a free joint with the coordinates
      J_wx, J_wy, J_wz, J_vx, J_vy and J_vz. Mimic joints become a `Coupling`.
    - A link on a fixed or locked joint is fused with the moving link that carries it. Its inertia is added to that of the
      moving link, and its frame remains available by name. The inertia of a link that is fused with the base is discarded.
    - `<inertial>` becomes the mass m, first moment h and inertia I_o about the origin of the link frame. Without
      `<inertial>`, a link has zero inertia; an all-zero one, which is common at the root and on fixed joints, is ignored there.
    - `<dynamics>` provides the coefficients of viscous friction (damping) and Coulomb friction (friction).
    - `<jaxdyn armature offset coulomb_velocity stribeck_friction stribeck_velocity stiffness rest_position/>`, inside
      `<joint>`, provides properties that URDF lacks: rotor inertia, torque offset, the width of the smooth sign function in
      Coulomb friction, the Stribeck term, and a spring.
    - `<origin>` contains rpy or, from URDF 1.1 on, quat_xyzw.
    - `<limit>` is required for revolute and prismatic joints. As in the URDF specification, lower and upper default to 0,
      and velocity and effort are required; from URDF 1.2 on, it is the reverse, and the latter default to infinity.
      Limits beyond 1e12 are read as infinite, since URDF cannot express infinity. So are limits that allow no motion, which CAD
      programs export for limits that are not set: positions from 0 to 0, a velocity of 0, and, if both are zero, a torque of 0.
      Lock a joint to fix it.

    If the file rounds angles or axes (1.5708 for pi/2), the chain has the numbers in the file. The values for which they stand
    are noted in `Topology.unrounded`, and determine only the number of base parameters.

    Args:
        lock: URDF only: positions [rad or m] at which to lock joints, by joint name. Joints that mimic a locked joint are
            also locked. Locks of joints that are fixed in the file are ignored, with a warning.
        tip: URDF only: the last link of a serial chain. Joints that do not move the tip are removed, together with the mass
            of the bodies they carry; to keep the bodies, lock the joints. By default, if the tree has a single end, its tip
            is the last moving link, or the last link fixed to it.
        floating_base: URDF only: name of a free joint that connects the root link to the world. True stands for
            "floating_base" or, if the file has such a joint, "root_joint". The new root is "world" or, if taken, "universe".
        ignore_mimic: URDF only: treat mimic joints as independent joints.
        gravity: gravitational acceleration in world axes [m/s^2]. By default, the gravity in the file or, for a URDF
            without it, (0, 0, -9.81); `save_urdf` writes another one to `<jaxdyn gravity="x y z"/>`, inside `<robot>`.
        ignore: MJCF only: features to omit although they change the motion (see `from_mujoco`).
        allow_nonphysical: accept physically inconsistent masses and inertias.
        ignore_inertials: URDF only: load only the kinematics, as if no link had an `<inertial>`.

    Warns:
        ModelWarning: the file has faults that are tolerated, all listed in a single warning: inertias that violate the
            triangle inequality by up to 15 %, or that become consistent by fusing or have no effect; a lower position limit
            above the upper one (both are ignored), or a second `<axis>` (the first is used); limits of zero; bodies with mass
            that `tip` removes; joints that move no mass, which make the mass matrix singular.

    Raises:
        ModelError: the robot cannot be loaded. The message names the file, line and element, and suggests a remedy. Besides
            malformed files, causes are links that form a loop, have two parents or are not connected; joints of unsupported
            types; missing limits; a mass or inertia that has an effect and is not physical; an unknown lock or tip; and
            arguments that apply only to the other format. For MJCF, see `from_mujoco`; MuJoCo may also be missing.

    Source: the URDF XML specification (wiki.ros.org/urdf/XML) and MuJoCo's XML reference (mujoco.readthedocs.io).
    """
    options = {"lock": lock, "tip": tip, "floating_base": floating_base, "ignore_mimic": ignore_mimic}
    options |= {"ignore_inertials": ignore_inertials, "gravity": gravity, "allow_nonphysical": allow_nonphysical}
    return _read(read_bytes(path), path, options | {"ignore": ignore})


def loads(text: str | bytes, **options: Any) -> Chain:
    """Load a robot from URDF or MJCF text in memory. The options, warnings and errors are those of `load`."""
    return _read(text, None, options)


def _read(data: str | bytes, path: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> Chain:
    source = "<text>" if path is None else os.fspath(path)
    kind = format_of(data)
    return kind.chain(data, path, source, **_own(kind, options, source))


def read_geometry(
    path: str | os.PathLike[str],
    *,
    collision: bool = False,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    """Read the shapes of all links in a URDF or MJCF file, with notes on shapes that cannot be drawn.

    For MJCF files, see `geometry_from_mujoco`. For URDF files, the shapes are the `<visual>` elements. The path of a mesh may
    be absolute, relative to the folder of the URDF file, a file:// URL, or a URL of the form package://NAME/REST. The package
    NAME is searched for in `packages`; in the folders above the URDF file (a folder that is called NAME or contains a folder
    NAME); by the same rule in those of the environment variable ROS_PACKAGE_PATH; and as share/NAME in those of
    AMENT_PREFIX_PATH. A mesh that is not found, or whose URL has another scheme, is omitted with a note.

    Args:
        packages: URDF only: folders of packages by name.

    Raises:
        ModelError: the file cannot be read, or is neither URDF nor MJCF; a number in a shape is malformed; or, for an MJCF
            file, MuJoCo is not installed or `packages` is passed.
    """
    kind = format_of(read_bytes(path))
    return kind.geometry(path, collision, **_own(kind, {"packages": packages}, os.fspath(path)))


class Format(NamedTuple):
    """A format of robot descriptions: the options of `load` and `read_geometry` that it has, and its readers."""

    name: str
    options: frozenset[str]
    chain: Callable[..., Chain]  # from the data, the path (None for text), the source for messages, and the options
    geometry: Callable[..., tuple[tuple[Geometry, ...], tuple[str, ...]]]  # from the path, `collision` and the options


def _urdf(data: str | bytes, path: Any, source: str, **options: Any) -> Chain:
    given = urdf.Options(**options)
    return urdf.chain_of(urdf.parse_robot(data, source, inertials=not given.ignore_inertials), given)


def _mjcf(
    data: Any, path: Any, source: str, ignore: Any = (), gravity: Any = None, allow_nonphysical: Any = False
) -> Chain:
    return mjcf.chain_of(mjcf.compile_mjcf(data, path), source, ignore, gravity, allow_nonphysical=allow_nonphysical)


def _mjcf_geometry(path: Any, collision: bool) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    return geometry_from_mujoco(mjcf.compile_mjcf(path=path), collision=collision)


_OF_URDF = frozenset({"packages", *(field.name for field in dataclasses.fields(urdf.Options))})
URDF = Format("URDF", _OF_URDF, _urdf, read_urdf_geometry)
MJCF = Format("MJCF", frozenset({"ignore", "gravity", "allow_nonphysical"}), _mjcf, _mjcf_geometry)
FORMATS = {"robot": URDF, "mujoco": MJCF}  # by root element


def _own(kind: Format, options: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The options that this format has; ModelError if an option of another one is given."""
    foreign = {name: other.name for other in FORMATS.values() for name in other.options - kind.options}
    if meant := [name for name, value in options.items() if name in foreign and value]:
        remedy = f"{{{meant[0]}}} is for {foreign[meant[0]]} files, which this is not; omit it"
        raise ModelError(remedy=remedy, place=source, **{meant[0]: ""})
    return {name: value for name, value in options.items() if name not in foreign}


# what may stand before the root element: a declaration, comments, processing instructions, a document type; the group is
# atomic (?>..) and possessive *+, as otherwise a file with many comments would take exponential time
_BEFORE_ROOT = r"(?s)\ufeff?(?>\s|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)*+"


def format_of(data: bytes | str) -> Format:
    """The format of a robot description, from its root element; URDF, whose reader says what is wrong, for unknown ones."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    root = re.match(_BEFORE_ROOT + r"<([^\s/>]+)[\s/>]", text)
    return FORMATS.get(root[1], URDF) if root else URDF
