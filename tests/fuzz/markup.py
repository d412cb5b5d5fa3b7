"""Damage to XML that leaves it XML: elements, attributes, names and numbers."""

import copy
import random
import xml.etree.ElementTree as ET

from .text import NAMES, damaged_bytes, damaged_text, encoded, other_number

_DEEP = 50_000


def damaged_markup(rng: random.Random, data: bytes) -> bytes:
    """Of every ten files, seven are XML still, and one is what only a reader of XML can be tripped up by."""
    choice = rng.randrange(20)
    text = data.decode()
    if choice < 2:
        return damaged_bytes(rng, data)
    if choice < 4:
        return damaged_text(rng, text).encode()
    if choice < 5:
        return encoded(rng, text)
    if choice < 6:
        return _hostile(rng, text).encode("utf-8", "surrogatepass")
    root = ET.fromstring(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(rng, root)
    out = ET.tostring(root)
    return damaged_text(rng, out.decode()).encode() if choice == 6 else out


def _change(rng: random.Random, root: ET.Element) -> None:
    """One change to one element or attribute."""
    parents = [e for e in root.iter() if len(e)]
    parent = rng.choice(parents or [root])
    child = rng.choice(list(parent)) if len(parent) else root
    holders = [e for e in root.iter() if e.attrib]
    holder = rng.choice(holders) if holders else root
    key = rng.choice(list(holder.attrib)) if holder.attrib else ""
    match rng.randrange(16):
        case 0 if len(parent):
            parent.remove(child)
        case 1:
            parent.append(copy.deepcopy(child))
        case 2:
            child.tag = rng.choice((*sorted({e.tag for e in root.iter()}), "unknown", "mujoco", "robot"))
        case 3 if len(parent):
            parent.remove(child)
            others = [e for e in root.iter() if e not in set(child.iter())]
            rng.choice(others or [root]).append(child)
        case 4:
            order = list(parent)
            rng.shuffle(order)
            parent[:] = order
        case 5:
            holder.attrib.pop(key, None)
        case 6 if key:
            holder.set(rng.choice(("Name", "unknown", key + "x", "type")), holder.attrib.pop(key))
        case 7 | 8 if key:
            names = [e.get("name") or "" for e in root.iter() if e.get("name")]
            holder.set(key, _writable(rng.choice((*NAMES, *names))))
        case 9:
            other = rng.choice(holders or [root])
            same = [k for k in other.attrib if k in holder.attrib]
            for k in same[: rng.choice((1, 3))]:
                holder.attrib[k], other.attrib[k] = other.attrib[k], holder.attrib[k]
        case _:
            numeric = [(e, k) for e in holders for k, v in e.attrib.items() if any(c.isdigit() for c in v)]
            if numeric:
                element, name = rng.choice(numeric)
                element.set(name, _writable(other_number(rng, element.attrib[name])))


def _writable(text: str) -> str:
    return "".join(c for c in text if c >= " " or c in "\t\n")  # XML has no other control characters


def _hostile(rng: random.Random, text: str) -> str:
    """Depth, size, entities, other languages."""
    head, mark, rest = text.partition(">\n")
    root = text[text.index("<", 1) :] if text.startswith("<?xml") else text
    match rng.randrange(8):
        case 0:
            return head + mark + "<a>" * _DEEP + "</a>" * _DEEP + rest
        case 1:
            bomb = '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
            return bomb + root.replace('name="', 'name="&c;', 1)
        case 2:
            return '<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/hostname">]>' + root.replace("><", ">&e;<", 1)
        case 3:
            return text.replace(
                '="', '="' + rng.choice(("$(find x)", "${pi}", "$(optenv A)", "&#0;", "&#x110000;", "\ud800")), 3
            )
        case 4:
            return (
                '<?xml version="1.0" encoding="'
                + rng.choice(("utf-7", "x-none", "UTF-16", "latin-1", "idna"))
                + '"?>'
                + root
            )
        case 5:
            return root.replace(" name=", ' a:b="1" name=', 1)
        case 6:
            return head + mark + "".join(f"<link name='l{k}'/>" for k in range(3000)) + rest
        case _:
            return head + mark + '<link name="' + "z" * 1_000_000 + '"/>' + rest
