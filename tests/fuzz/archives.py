"""Damage to zip archives and to files of one line of JSON with arrays behind it."""

import io
import json
import random
import zipfile

from .text import NAMES, damaged_bytes
from .trees import as_json, damaged_tree

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_LARGE = 3 * 10**8


def damaged_archive(rng: random.Random, data: bytes) -> bytes:
    """The archive's bytes damaged; or its parts, and it written anew, so that every checksum of it holds."""
    if rng.random() < 0.4:
        return damaged_bytes(rng, data)
    parts = unpacked(data)
    whole = dict(parts)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(parts))
        match rng.randrange(8):
            case 0:
                del parts[name]
            case 1:
                parts[rng.choice(NAMES).replace("\x00", "") or "empty"] = parts.pop(name)
            case 2:
                parts[name] = b""
            case 3:
                parts[name + "/" * rng.randrange(2)] = parts[name]
            case 4 if name in whole and name.endswith(".json"):
                text = as_json(rng, damaged_tree(rng, json.loads(whole[name])))
                parts[name] = text.encode("utf-8", "surrogatepass")
            case 5 if rng.random() < 0.1:
                parts[name] = bytes(_LARGE)  # a hundred kilobytes in the file
            case _:
                parts[name] = damaged_bytes(rng, parts[name])
        if not parts:
            break
    large = any(len(part) == _LARGE for part in parts.values())  # which other methods take long to write
    return packed(parts, zipfile.ZIP_DEFLATED if large else rng.choice(METHODS))


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name[:1000], (1980, 1, 1, 0, 0, 0)), part, method)
    return content.getvalue()


def damaged_headed(rng: random.Random, data: bytes) -> bytes:
    """A file of a line of JSON and arrays: its bytes, its first line, or what stands behind it."""
    line, _, content = data.partition(b"\n")
    match rng.randrange(6):
        case 0 | 1:
            return damaged_bytes(rng, data)
        case 2:
            return line + rng.choice((b"\r\n", b"\n\n", b"", b" \n")) + content
        case 3:
            return line + b"\n" + damaged_bytes(rng, content)
    return as_json(rng, damaged_tree(rng, json.loads(line))).encode("utf-8", "surrogatepass") + b"\n" + content
