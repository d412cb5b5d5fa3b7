"""Damage to what JSON and TOML say: keys, types, numbers, depth; and both written back."""

import copy
import datetime
import json
import math
import random
from typing import Any

from .text import NAMES

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, 10**40, 0.5, -0.0, 1e300, math.nan, math.inf, -math.inf),
    *("", "s", "deg", "x" * 3000, "关节", [], [[]], [1, 2], ["a", "b"], [None], {}, {"a": 1}, [[1.0, 2.0]], [{}]),
    *(datetime.date(2026, 1, 1), datetime.time(1, 2)),
)


def damaged_tree(rng: random.Random, tree: Any) -> Any:
    """A copy with keys removed, renamed or nested, and values of other types."""
    out = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(out))
        if not places:
            return copy.deepcopy(rng.choice(_VALUES))
        container, key = rng.choice(places)
        value = container[key]
        match rng.randrange(9):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[rng.choice(NAMES)] = container.pop(key)
            case 2:
                container[key] = {"a": value} if rng.random() < 0.5 else [value]
            case 3 if isinstance(value, list):
                container[key] = value * 2 if rng.random() < 0.5 else value[:-1]
            case 4:
                other, name = rng.choice(places)
                container[key] = copy.deepcopy(other[name])
            case 5 if isinstance(value, str):
                container[key] = rng.choice(NAMES)
            case 6 if isinstance(value, int | float) and not isinstance(value, bool):
                container[key] = rng.choice((-value, value + 1, value * 1e6, float(value), str(value)))
            case _:
                container[key] = copy.deepcopy(rng.choice(_VALUES))
    return out


def _places(tree: Any):
    """Every container with a key of it."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from _places(value)


def as_json(rng: random.Random, tree: Any) -> str:
    """JSON, sometimes too deep or with a key twice."""
    text = json.dumps(tree, default=str)
    match rng.randrange(12):
        case 0:
            return "[" * 100_000 + "]" * 100_000
        case 1:
            deep = rng.choice((200, 400, 900, 1000, 50_000))
            return text.replace("{", '{"a":' + "[" * deep + "]" * deep + ",", 1)
        case 2 if isinstance(tree, dict) and tree:
            key = rng.choice(list(tree))
            return text.replace("{", "{" + json.dumps(key) + ": 1, ", 1)
        case 3:
            return text.replace(": ", ": " + rng.choice(("1e999, ", "9" * 5000, "\\ud800", "-")), 1)
    return text


def as_toml(tree: Any) -> str:
    """TOML of a dictionary whose values are numbers, texts, lists, dates and dictionaries; what is None is an unknown word."""
    if not isinstance(tree, dict):
        return _toml(tree)
    plain = [f"{_key(k)} = {_toml(v)}" for k, v in tree.items() if not isinstance(v, dict)]
    for name, table in tree.items():
        if isinstance(table, dict):
            plain += [f"[{_key(name)}]", *(f"{_key(k)} = {_toml(v)}" for k, v in table.items())]
    return "\n".join(plain) + "\n"


def _key(name: Any) -> str:
    text = str(name)
    return text if text and all(c.isascii() and (c.isalnum() or c in "-_") for c in text) else json.dumps(text)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(_toml(v) for v in value) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case None:
            return "none"
    return repr(value)
