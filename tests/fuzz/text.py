"""Damage to bytes and to lines, whatever the file says."""

import random
import re

# what stands where a number should
NUMBERS = (
    *("nan", "inf", "-inf", "1e300", "-1e300", "1e999", "1e-320", "-0", "0", "", " ", "-1", "9" * 400, "1" + "0" * 30),
    *(
        "0x10",
        "1,2",
        "1.2.3",
        "1_000",
        "1e",
        "--1",
        "1d0",
        "1 2",
        "true",
        "None",
        "٣",
        "\uff11\uff12",
        "∞",
        "2.5e",
        "NaN(7)",
        "\x00",
    ),
)
# what stands where a name should
NAMES = (
    *(
        "",
        " ",
        "x" * 300,
        "y" * 100_000,
        "关节",
        "a\u202eb",
        "é",
        "../../etc",
        "a/b",
        "{0}",
        "%s",
        "'",
        "a\tb",
        "\U0001f916",
    ),
    *("q1", "t", "world", "universe", "base", "-1", "__class__", "#", "q[1]", "tau1"),
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bits flipped; pieces cut out, doubled, exchanged, filled with zeros or noise; the end cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not out:
            return bytes(out)
        at = rng.randrange(len(out))
        size = min(len(out) - at, rng.choice((1, 2, 4, 8, 64, 1024)))
        match rng.randrange(8):
            case 0 | 1:
                for _ in range(rng.choice((1, 3, 20))):
                    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + size]
            case 4:
                out[at:at] = out[at : at + size] * rng.choice((1, 1, 100))
            case 5:
                to = rng.randrange(len(out))
                piece = bytes(out[at : at + size])
                out[at : at + size], out[to : to + size] = out[to : to + size], piece
            case 6:
                out[at : at + size] = bytes(size)
            case 7:
                out[at : at + size] = rng.randbytes(size)
    return bytes(out)


def damaged_text(rng: random.Random, text: str) -> str:
    """Lines cut out, doubled or exchanged, and numbers replaced."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        k = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[k : k + rng.choice((1, 1, 5))]
            case 1:
                lines[k:k] = [lines[k]] * rng.choice((1, 1, 30))
            case 2:
                other = rng.randrange(len(lines))
                lines[k], lines[other] = lines[other], lines[k]
            case _:
                lines[k] = other_number(rng, lines[k])
        lines = lines or [""]
    return "\n".join(lines)


def other_number(rng: random.Random, text: str) -> str:
    """One number in the text replaced by what is hardly one."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + rng.choice(NUMBERS) + text[match.end() :]


def encoded(rng: random.Random, text: str) -> bytes:
    """The text in another encoding, with a mark that says so, or says something else; with other line ends."""
    match rng.randrange(9):
        case 0:
            return b"\xef\xbb\xbf" + text.encode()
        case 1:
            return text.encode("utf-16")
        case 2:
            return text.encode(rng.choice(("utf-16-le", "utf-16-be", "utf-32")))
        case 3:
            return text.replace("a", "é", 1).encode("latin-1", "replace")
        case 4:
            return text.replace("\n", rng.choice(("\r\n", "\r", "\n\n", "\u2028", "\x0c"))).encode()
        case 5:
            return rng.choice(("\n", " ", "\t\n", "\ufeff\ufeff", "\x00", "# \n")).encode() + text.encode()
        case 6:
            return text.encode() + rng.choice((b"\x00", b"\x1a", b"\xff", b"\n" * 1000, text.encode()))
        case 7:
            return text.encode("utf-16")[: -rng.choice((1, 3))]
        case _:
            return b"\xff\xfe" + text.encode()
