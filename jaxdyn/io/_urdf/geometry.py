"""Geometry in a URDF: `<visual>` and `<collision>` shapes with their poses, colours and mesh files."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from .._files import read_bytes
from .._geometry import Geometry
from .document import Node, attribute, number, numbers, only_child
from .read import origin_pose, parse_robot

_GREY = (0.7, 0.7, 0.7, 1.0)


def read_urdf_geometry(
    path: str | os.PathLike[str],
    *,
    collision: bool = False,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    """Read the `<visual>` or `<collision>` shapes of all links in a URDF file, with notes on shapes that cannot be drawn.

    The search paths of meshes and the errors are those of `read_geometry`.
    """
    robot = parse_robot(read_bytes(path), os.fspath(path))
    palette = dict(_named_colours(robot.document.root))
    shapes: list[Geometry] = []
    notes: list[str] = []
    for name, link in robot.links.items():
        for node in link.node.findall("collision" if collision else "visual"):
            shape, note = _shape(node, name, Path(path), packages or {})  # type: ignore[arg-type]
            if note:
                notes.append(note)
            if shape is not None:
                shapes.append(dataclasses.replace(shape, colour=_colour(node, palette)))  # type: ignore[arg-type]
    return tuple(shapes), tuple(notes)


def _shape(
    node: Node, link: str, urdf: Path, packages: Mapping[str, str | os.PathLike[str]]
) -> tuple[Geometry | None, str | None]:
    label = f"the {node.tag} of link {link!r}"
    geometry = only_child(node, "geometry", label)
    tags = () if geometry is None else geometry
    inside = [child for child in tags if isinstance(child.tag, str) and not child.tag.startswith("xacro:")]
    if len(inside) != 1:
        return None, f"{node.where}: {label} has {len(inside)} shapes instead of one; omitted"
    shape: Node = inside[0]  # type: ignore[assignment]
    pose = origin_pose(node, label)
    if shape.tag == "box":
        x, y, z = numbers(shape, "size", 3, label)
        return Geometry(link, "box", pose, (x, y, z)), None
    if shape.tag in ("cylinder", "capsule"):
        radius, length = number(shape, "radius", label), number(shape, "length", label)
        return Geometry(link, shape.tag, pose, (radius, radius, length)), None  # type: ignore[arg-type]
    if shape.tag == "sphere":
        radius = number(shape, "radius", label)
        return Geometry(link, "sphere", pose, (radius, radius, radius)), None
    if shape.tag == "mesh":
        name = attribute(shape, "filename", label)
        file = find_mesh(name, urdf, packages)
        if file is None:
            return None, f"{shape.where}: the mesh file {name} was not found; {label} is omitted"
        x, y, z = numbers(shape, "scale", 3, label, (1.0, 1.0, 1.0))
        return Geometry(link, "mesh", pose, (x, y, z), None, file), None
    return None, f"{shape.where}: {label} is a <{shape.tag}>, which is not a URDF shape; omitted"


def find_mesh(name: str, urdf: Path, packages: Mapping[str, str | os.PathLike[str]]) -> Path | None:
    """Find a mesh file by its name in a URDF; None if it is missing. The search paths are those of `read_geometry`."""
    scheme, mark, rest = name.partition("://")
    folder = urdf.absolute().parent
    if not mark or len(scheme) == 1:
        candidates = [folder / name]
    elif scheme == "file":
        candidates = [folder / rest]
    elif scheme in ("package", "model"):
        package, _, inside = rest.partition("/")
        candidates = [place / inside for place in _places(package, folder, packages)]
    else:
        candidates = []
    return next((path for path in candidates if path.is_file()), None)


def _places(package: str, folder: Path, packages: Mapping[str, str | os.PathLike[str]]) -> Iterator[Path]:
    """Iterate over the candidate folders of a package, in the order of the search."""
    if package in packages:
        yield Path(packages[package])
    for above in (folder, *folder.parents):
        if above.name == package:
            yield above
        yield above / package
    for root in filter(None, os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)):
        yield Path(root) if Path(root).name == package else Path(root) / package
    for root in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        yield Path(root) / "share" / package


def _named_colours(root: Node) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Iterate over the names and colours of all named materials in the file that have a colour."""
    for node in root.iter("material"):
        colour = node.find("color")
        if colour is not None and node.get("name"):
            yield str(node.get("name")), _rgba(colour)  # type: ignore[arg-type]


def _colour(
    node: Node, palette: Mapping[str, tuple[float, float, float, float]]
) -> tuple[float, float, float, float] | None:
    material = node.find("material")
    if material is None:
        return None
    colour = material.find("color")
    return palette.get(material.get("name", "")) if colour is None else _rgba(colour)  # type: ignore[arg-type]


def _rgba(node: Node) -> tuple[float, float, float, float]:
    values = np.clip(numbers(node, "rgba", 4, "a material", _GREY), 0.0, 1.0)
    return float(values[0]), float(values[1]), float(values[2]), float(values[3])
