"""Parse XML robot descriptions, with line numbers for errors and checks of numbers. Entities are not allowed."""

import dataclasses
import math
import xml.etree.ElementTree as ET
from xml.parsers import expat

from ...errors import ModelError

_DEEPEST = 100


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
    """Parse a document, including comments. A document type declaration is an error, so that entities are never expanded.

    Args:
        source: name of the document in error messages, usually the file name.

    Raises:
        ModelError: the document is empty, is not well-formed, declares a document type, or has elements nested more than 100
            levels deep.
    """
    if not data.strip():
        raise ModelError(f"{source}: the document is empty")
    above = data[: len(data) - len(data.lstrip())]  # XML does not allow blank lines before the declaration
    skipped = above.count("\n" if isinstance(above, str) else b"\n")  # type: ignore[arg-type]
    data = data[len(above) :]
    # a str is already decoded, whatever encoding it declares
    parser = expat.ParserCreate("utf-8" if isinstance(data, str) else None)
    parser.buffer_text = True
    builder = ET.TreeBuilder(element_factory=Node, insert_comments=True, insert_pis=True)
    state = {"depth": 0, "closed": False}
    place = lambda: f"{source}:{parser.CurrentLineNumber + skipped}"
    outside: tuple[list[str], list[str]] = ([], [])

    def start(tag: str, attributes: dict[str, str]) -> None:
        state["depth"] += 1
        if state["depth"] > _DEEPEST:
            raise ModelError(f"{place()}: elements are nested more than {_DEEPEST} levels deep; flatten the document")
        builder.start(tag, attributes).where = place()  # type: ignore[attr-defined]

    def end(tag: str) -> None:
        state["depth"] -= 1
        state["closed"] = state["depth"] == 0
        builder.end(tag)

    def comment(text: str) -> None:
        if state["depth"]:
            builder.comment(text)
        else:
            outside[state["closed"]].append(f"<!--{text}-->")

    def instruction(target: str, text: str) -> None:
        if state["depth"]:
            builder.pi(target, text)
        else:
            outside[state["closed"]].append(f"<?{target} {text}?>")

    def doctype(*_: object) -> None:
        raise ModelError(
            f"{place()}: a document type declaration (<!DOCTYPE ...>) is not allowed, because "
            "entities can exhaust memory or read other files; remove it and expand the entities"
        )

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    parser.CommentHandler, parser.ProcessingInstructionHandler = comment, instruction
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data.encode() if isinstance(data, str) else data, True)
    except ModelError:
        raise
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ModelError(
            f"{source}:{error.lineno + skipped}: not well-formed XML at column {error.offset + 1}: {reason}"
        ) from None
    except (LookupError, ValueError) as error:
        raise ModelError(f"{source}: the text cannot be decoded: {error}; save the file as UTF-8") from None
    return Document(builder.close(), tuple(outside[0]), tuple(outside[1]))  # type: ignore[arg-type]


def fail(node: Node, fault: str, remedy: str = "", **arguments: str) -> ModelError:
    """Create a `ModelError` that names the position of an element in the file."""
    return ModelError(fault, remedy, place=node.where, **arguments)


def only_child(node: Node, tag: str, label: str) -> Node | None:
    """Return the child element with this tag, or None.

    Raises:
        ModelError: there are several children with this tag.
    """
    found = node.findall(tag)
    if len(found) > 1:
        raise fail(found[1], f"{label}: a second <{tag}>; remove one")  # type: ignore[arg-type]
    return found[0] if found else None  # type: ignore[return-value]


def attribute(node: Node, name: str, label: str) -> str:
    """Read a required attribute.

    Raises:
        ModelError: the attribute is missing or empty.
    """
    text = node.get(name)
    if not text:
        raise fail(node, f'{label}: <{node.tag}> needs the attribute {name}=".."')
    return text


def numbers(
    node: Node | None, name: str, count: int, label: str, default: tuple[float, ...] | None = None
) -> list[float]:
    """Read the numbers in an attribute. If the element or attribute is missing, return `default`, unless it is None.

    Raises:
        ModelError: the attribute is missing and has no default, or does not contain `count` finite numbers.
    """
    if node is None or name not in node.attrib:
        if default is None:
            assert node is not None  # an element may be missing only if there is a default
            raise fail(node, f'{label}: <{node.tag}> needs the attribute {name}=".."')
        return list(default)
    text = node.attrib[name]
    here = f"{label}: <{node.tag}> {name}={text!r}"
    if "${" in text or "$(" in text:
        raise fail(node, f"{here} is a xacro expression; run xacro on the file first: xacro FILE > robot.urdf")
    parts = text.split()
    if len(parts) != count:
        raise fail(node, f"{here} has {len(parts)} numbers, but needs {count} numbers, separated by spaces")
    values = [_finite(part) for part in parts]
    for part, value in zip(parts, values, strict=True):
        if value is None:
            raise fail(node, f"{here}: {part!r} is not a finite number")
    return [value for value in values if value is not None]


def number(node: Node | None, name: str, label: str, default: float | None = None) -> float:
    """Read a single number in an attribute: `numbers` with a count of one."""
    return numbers(node, name, 1, label, None if default is None else (default,))[0]


def _finite(part: str) -> float | None:
    try:
        value = float(part)
    except ValueError:
        return None
    return value if math.isfinite(value) and part.isascii() and "_" not in part else None  # as in other readers
