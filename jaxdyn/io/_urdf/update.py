"""`update_urdf`: write identified parameters to a copy of the URDF file from which a chain was loaded."""

import os
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import numpy as np

from ...errors import ModelError
from ...model._chain import Chain
from .._files import read_bytes, write_whole
from .elements import (
    HEAD,
    arrays_of,
    check_consistent,
    check_writable,
    insert,
    remove,
    set_drive,
    set_gravity,
    set_inertial,
    set_origin,
)
from .joints import Arrangement, arrange
from .read import chain_arrays, parse_robot


def update_urdf(
    source_path: str | os.PathLike[str],
    chain: Chain,
    path: str | os.PathLike[str],
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
    allow_nonphysical: bool = False,
) -> None:
    """Write a copy of a URDF file with the inertias and friction of a chain that was loaded from the file and identified.

    - The inertias of fused links are included in those of the moving links, and removed from the fused links.
    - A locked joint becomes a fixed joint at the locked position.
    - Relative mesh paths are adapted to the new location of the file.

    Everything else is unchanged, for example names, comments, base links, and branches outside the chain.

    Args:
        source_path: the URDF file from which the chain was loaded.
        chain: the identified chain.
        path: the file to write, which may be `source_path`.
        lock: as passed to `load`.
        tip: as passed to `load`.
        floating_base: as passed to `load`.
        ignore_mimic: as passed to `load`.
        allow_nonphysical: also write physically inconsistent inertias.

    Raises:
        ModelError: the file cannot be updated. The causes are:

            - the source cannot be read as a URDF, or the chain was not loaded from it;
            - the chain differs from the source in properties that this function does not write, for which `save_urdf` is
              required: placements, axes, limits, frames, the drive of a floating base, or different drives of the parts of a
              planar joint;
            - a part of a planar joint is locked;
            - the chain has features that URDF lacks;
            - an inertia is inconsistent, or cannot be written as mass and centre of mass;
            - the file cannot be written.
    """
    source = os.fspath(source_path)
    robot = parse_robot(read_bytes(source_path), source, inertials=False)  # inertias are replaced
    parts = arrange(robot, lock, tip, floating_base, ignore_mimic)
    layout = parts.layout
    arrays = arrays_of(chain)
    check_writable(chain)
    _check_layout(source, chain, parts)
    strange = set(chain.frame_names) - set(layout.frames)
    if strange:
        raise ModelError(
            f"{source}: the file does not contain the chain's frame {min(strange)!r}; use save_urdf to write it"
        )
    for name in layout.locked:
        if name not in robot.joints or robot.joints[name].kind == "planar":
            raise ModelError(
                f"{source}: {name!r} is a part of a planar joint, which cannot be locked in an updated file; use save_urdf"
            )
    for i, joint in enumerate(layout.joints):
        if joint.child in robot.links:  # otherwise, an internal link of a planar or floating joint
            set_inertial(robot.links[joint.child].node, joint.child, arrays["inertia"][i], chain.dtype)
            if joint.node.tag == "joint":  # a floating base that `load` added has no element
                set_drive(joint.node, joint.name, chain, arrays, i)
        elif np.any(arrays["inertia"][i]):
            raise ModelError(
                f"{source}: link {joint.child!r} is internal to a joint with several degrees of freedom but has "
                "inertia; move the inertia to the joint's last link"
            )
    for frame, (i, _) in layout.frames.items():
        if i >= 0:
            remove(robot.links[frame].node, {"inertial"})
    for name, value in layout.locked.items():
        joint = robot.joints[name]
        joint.node.set("type", "fixed")
        remove(joint.node, {"axis", "limit", "dynamics", "mimic", "jaxdyn", "calibration", "safety_controller"})
        origin = joint.node.find("origin")
        set_origin(insert(joint.node, "origin") if origin is None else origin, joint.pose_at(value), f"joint {name!r}")
    for joint in robot.joints.values():
        if joint.mimic is not None and joint.mimic[0] in layout.locked:  # with ignore_mimic, the joint is independent
            remove(joint.node, {"mimic"})
    set_gravity(robot.document.root, arrays["gravity"])
    _keep_meshes(robot.document.root, os.path.dirname(source), os.path.dirname(os.fspath(path)))
    body = ET.tostring(robot.document.root, encoding="unicode")
    text = HEAD + "\n".join((*robot.document.before, body, *robot.document.after)) + "\n"
    again = arrange(parse_robot(text, source, inertials=False), None, tip, floating_base, ignore_mimic)
    _check_same(source, chain, arrays, again)
    if not allow_nonphysical:
        check_consistent(chain)
    write_whole(path, text)


def _check_layout(source: str, chain: Chain, parts: Arrangement) -> None:
    """Raise an error if the joints, links or couplings of a chain differ from those in the file."""
    layout = parts.layout
    advice = "pass the file, lock=, tip=, floating_base= and ignore_mimic= with which the chain was loaded"
    for kind, ours, theirs in (
        ("joints", chain.joint_names, tuple(joint.name for joint in layout.joints)),
        ("links", chain.link_names, tuple(joint.child for joint in layout.joints)),
    ):
        if ours != theirs:
            raise ModelError(
                f"{source}: the file has the moving {kind} {', '.join(theirs)}, but the chain has {', '.join(ours)}; {advice}"
            )
    if (chain.topology.parents, chain.topology.quaternion_joints) != (layout.parents, parts.quaternion_joints):
        raise ModelError(f"{source}: the links of the chain are connected differently from those in the file; {advice}")
    if (chain.coupling is None) != (parts.coupling is None):
        where = "the file" if chain.coupling is None else "the chain"
        raise ModelError(f"{source}: only {where} has joints that mimic others; {advice}")


def _check_same(source: str, chain: Chain, arrays: Mapping[str, np.ndarray], parts: Arrangement) -> None:
    """Raise an error if the updated file, apart from inertias, would not describe the chain."""
    layout = parts.layout
    tolerance = max(1e-12, 1e2 * float(np.finfo(chain.dtype).eps))
    pairs = [
        (key, name, arrays[key][i], written[i])
        for key, written in chain_arrays(layout).items()
        if key != "inertia"
        for i, name in enumerate(chain.joint_names)
    ]
    if chain.coupling is not None and parts.coupling is not None:
        both = (np.column_stack([x.matrix, x.offset]) for x in (chain.coupling, parts.coupling))
        pairs += [("coupling", *rows) for rows in zip(chain.joint_names, *both, strict=True)]
    poses = np.asarray(chain.frame_poses).astype(float)
    for frame, i, pose in zip(chain.frame_names, chain.topology.frame_links, poses, strict=True):
        index, written = layout.frames[frame]
        pairs.append(("frame_poses", frame, pose, written if index == i else np.full((4, 4), np.nan)))
    for key, name, ours, theirs in pairs:
        ours, theirs = np.atleast_1d(ours), np.atleast_1d(theirs)
        if not np.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
            raise ModelError(
                f"{source}: {key} of {name!r} differs between the chain and the file, but update_urdf writes only inertias and "
                "friction. Write the entire chain with save_urdf, or pass the lock= and tip= with which it was loaded"
            )


def _keep_meshes(root: ET.Element, before: str, after: str) -> None:
    """Adapt relative paths of meshes and textures for a file that moves from the folder `before` to the folder `after`."""
    for element in root.iter():
        name = element.get("filename") if element.tag in ("mesh", "texture") else None
        if name and "://" not in name and not os.path.isabs(name):
            element.set("filename", os.path.relpath(os.path.join(before, name), after or "."))
