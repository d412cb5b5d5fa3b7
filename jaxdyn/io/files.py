"""What all kinds of files share: they are read whole, and written whole or not at all.

Files with a header are one line of JSON with a checksum, followed by bytes, usually arrays. XML is parsed with line numbers.
"""

import dataclasses
import glob
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from ..errors import JaxdynError, ModelError, OutputError

RUN_XACRO = "run xacro on the file first: xacro FILE > robot.urdf"
_DEEPEST = 100  # levels of elements; ElementTree's writer recurses, and Python's stack ends at about 1000


def read_bytes(
    path: str | os.PathLike[str], kind: str = "robot description file", error: type[JaxdynError] = ModelError
) -> bytes:
    """Read a file as bytes. `kind` describes the file in error messages."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise error("there is no such file", "check the path", place=path) from None
    except IsADirectoryError:
        raise error("this is a folder", f"specify the {kind} inside it", place=path) from None
    except (OSError, ValueError) as found:  # ValueError: a path with a null character
        reason = getattr(found, "strerror", None) or found
        raise error(f"{os.fspath(path)!r} cannot be read: {reason}") from None


def write_whole(path: str | os.PathLike[str], content: str | bytes, error: type[JaxdynError] = ModelError) -> None:
    """Write a file atomically, via a temporary file in the same folder. Text is encoded as UTF-8."""
    try:
        target = Path(os.path.realpath(path))
        draft = target.with_name(f"{draft_prefix(target.name)}part")
        try:
            with open(draft, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
            remove_stale_drafts(target.parent, target.name)
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, ValueError) as found:  # ValueError: a path with a null character
        reason = getattr(found, "strerror", None) or found
        raise error(f"cannot be written: {reason}", "check the folder and its permissions", place=path) from None


def write_headed(
    path: str | os.PathLike[str], header: Mapping[str, Any], content: bytes, error: type[JaxdynError] = ModelError
) -> None:
    """Write a file of one line of JSON, to which the checksum of the whole file is added, followed by bytes."""
    line = json.dumps({**header, "sha256": checksum(header, content)}).encode()
    write_whole(path, line + b"\n" + content, error)


def read_headed(
    path: str | os.PathLike[str], kind: str, error: type[JaxdynError] = ModelError
) -> tuple[dict[str, Any], bytes]:
    """Read a file written by `write_headed`, without checking it; the header of a file of another kind is empty."""
    line, _, content = read_bytes(path, kind, error).partition(b"\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = {}
    return header if isinstance(header, dict) else {}, content


def checksum(header: Mapping[str, Any], content: bytes) -> str:
    """Checksum of the contents of the first line and the bytes after it; in version 1 of a format, only of these bytes."""
    said = {key: value for key, value in header.items() if key != "sha256"}
    text = json.dumps(said, sort_keys=True).encode() if header["version"] > 1 else b""
    return hashlib.sha256(text + content).hexdigest()


def packed(arrays: Iterable[Any]) -> bytes:
    """Arrays one after the other, each in NumPy's `.npy` format."""
    body = io.BytesIO()
    for array in arrays:
        np.save(body, np.asarray(array), allow_pickle=False)
    return body.getvalue()


def unpacked(content: bytes, count: int) -> list[np.ndarray]:
    """The first `count` arrays in bytes from `packed`."""
    body = io.BytesIO(content)
    return [np.load(body, allow_pickle=False) for _ in range(count)]


def check_output_folder(directory: str | os.PathLike[str], names: tuple[str, ...] = ()) -> None:
    """Check that files can be written to a folder, without creating anything. Call this before a long computation."""
    target = Path(os.path.abspath(directory))
    existing = target
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        where = "it" if existing == target else f"{existing}"
        raise OutputError(f"{target} cannot be the output folder, because {where} is a file; specify another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        fault = f"cannot be written: there is no permission to write in {existing}"
        raise OutputError(fault, "specify another folder or change its permissions", place=target)
    for name in names:
        if (target / name).is_dir():
            fault = f"{target / name} is a folder, but a file of this name has to be written"
            raise OutputError(fault, "specify another output folder")


def check_output_file(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written. Call this before a long computation."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise OutputError(f"{os.fspath(path)} is a folder; specify a file")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{os.fspath(path)}: the folder {folder} does not exist or is not writable")


def draft_prefix(name: str) -> str:
    """Prefix of the temporary files that this process creates for `name`. It lets later processes recognise leftovers."""
    return f".{name}.{platform.node()}-{os.getpid()}."


def remove_stale_drafts(folder: Path, name: str) -> None:
    """Remove temporary files left by killed processes: files from this machine at once, files from others after a day."""
    for path in folder.glob(f".{glob.escape(name)}.*part"):
        made = re.fullmatch(re.escape(f".{name}.") + r"(.*)-(\d+)\.\w*part", path.name)
        if made is None:
            continue
        here = made[1] == platform.node() and os.name == "posix"  # elsewhere, os.kill(pid, 0) can end the process
        try:
            if _runs(int(made[2])) if here else time.time() - path.stat().st_mtime < 86400:
                continue
        except OSError:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process belongs to another user
        return True
    return True


class Node(ET.Element):
    """An element with its position in the file ("file:line")."""

    where: str = ""


@dataclasses.dataclass(frozen=True)
class Document:
    """A parsed document: its root element, and the comments and processing instructions before and after the root."""

    root: Node
    before: tuple[str, ...]
    after: tuple[str, ...]


def parse_xml(data: bytes | str, source: str) -> Document:
    """Parse a document, including comments. A document type declaration is an error, so that entities are never expanded."""
    if not data.strip():
        raise ModelError(f"{source}: the document is empty")
    above = data[: len(data) - len(data.lstrip())]  # XML does not allow blank lines before the declaration
    skipped = above.count("\n" if isinstance(above, str) else b"\n")  # type: ignore[arg-type]
    data = data[len(above) :]
    # a str is already decoded, whatever encoding it declares
    parser = expat.ParserCreate("utf-8" if isinstance(data, str) else None)
    parser.buffer_text = True
    builder = ET.TreeBuilder(element_factory=Node, insert_comments=True, insert_pis=True)
    depth, closed = 0, False
    place = lambda: f"{source}:{parser.CurrentLineNumber + skipped}"
    outside: tuple[list[str], list[str]] = ([], [])

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise ModelError(f"{place()}: elements are nested more than {_DEEPEST} levels deep; flatten the document")
        builder.start(tag, attributes).where = place()  # type: ignore[attr-defined]

    def end(tag: str) -> None:
        nonlocal depth, closed
        depth -= 1
        closed = depth == 0
        builder.end(tag)

    def comment(text: str) -> None:
        builder.comment(text) if depth else outside[closed].append(f"<!--{text}-->")

    def instruction(target: str, text: str) -> None:
        builder.pi(target, text) if depth else outside[closed].append(f"<?{target} {text}?>")

    def doctype(*_: object) -> None:
        fault = "a document type declaration (<!DOCTYPE ...>) is not allowed: entities can exhaust memory or read other files"
        raise ModelError(fault, "remove it and expand the entities", place=place())

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    parser.CommentHandler, parser.ProcessingInstructionHandler = comment, instruction
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data.encode() if isinstance(data, str) else data, True)
    except ModelError:
        raise
    except expat.ExpatError as error:
        fault = f"not well-formed XML at column {error.offset + 1}: {expat.ErrorString(error.code)}"
        raise ModelError(fault, place=f"{source}:{error.lineno + skipped}") from None
    except (LookupError, ValueError) as error:
        raise ModelError(f"{source}: the text cannot be decoded: {error}; save the file as UTF-8") from None
    return Document(builder.close(), tuple(outside[0]), tuple(outside[1]))  # type: ignore[arg-type]


def fail(node: Node, fault: str, remedy: str = "", **arguments: str) -> ModelError:
    """Create a `ModelError` that names the position of an element in the file."""
    return ModelError(fault, remedy, place=node.where, **arguments)


def only_child(node: Node, tag: str, label: str) -> Node | None:
    """Return the child element with this tag, or None; several are an error."""
    found = node.findall(tag)
    if len(found) > 1:
        raise fail(found[1], f"{label}: a second <{tag}>; remove one")  # type: ignore[arg-type]
    return found[0] if found else None  # type: ignore[return-value]


def attribute(node: Node, name: str, label: str) -> str:
    """Read a required attribute."""
    if not (text := node.get(name)):
        raise fail(node, f'{label}: <{node.tag}> needs the attribute {name}=".."')
    return text


def numbers(
    node: Node | None, name: str, count: int, label: str, default: tuple[float, ...] | None = None
) -> list[float]:
    """Read finite numbers in an attribute. If the element or attribute is missing, return `default`, unless it is None."""
    if node is None or name not in node.attrib:
        if default is None:
            assert node is not None  # an element may be missing only if there is a default
            raise fail(node, f'{label}: <{node.tag}> needs the attribute {name}=".."')
        return list(default)
    text = node.attrib[name]
    here = f"{label}: <{node.tag}> {name}={text!r}"
    if "${" in text or "$(" in text:
        raise fail(node, f"{here} is a xacro expression; {RUN_XACRO}")
    parts = text.split()
    if len(parts) != count:
        raise fail(node, f"{here} has {len(parts)} numbers, but needs {count} numbers, separated by spaces")
    if bad := [part for part in parts if not _is_finite(part)]:
        raise fail(node, f"{here}: {bad[0]!r} is not a finite number")
    return [float(part) for part in parts]


def number(node: Node | None, name: str, label: str, default: float | None = None) -> float:
    """Read a single number in an attribute: `numbers` with a count of one."""
    return numbers(node, name, 1, label, None if default is None else (default,))[0]


def _is_finite(part: str) -> bool:
    try:
        return math.isfinite(float(part)) and part.isascii() and "_" not in part  # as in other readers
    except ValueError:
        return False
