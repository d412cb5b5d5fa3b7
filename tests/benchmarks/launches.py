"""Kernels, bytes, least time and collectives of a program compiled for a GPU, read from XLA's text."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

LAUNCH, BANDWIDTH = 2.5e-6, 3.35e12  # time per kernel [s], memory bandwidth [B/s]
WIDTH = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "pred": 1}
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota", "partition-id"}
SLICES = {"dynamic-slice", "slice", "gather"}
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast")


class Instruction(NamedTuple):
    """One instruction of a computation; `rest` is the rest of its line, starting with the operands."""

    name: str
    shape: str
    operation: str
    rest: str

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.rest.split("), ")[0])


Computations = dict[str, list[Instruction]]


class Total(NamedTuple):
    """Number of kernels, bytes of their operands and results, and least time [s], over all iterations of loops."""

    kernels: int = 0
    moved: int = 0
    least: float = 0.0

    def plus(self, other: "Total", turns: int = 1) -> "Total":
        return Total(*(a + turns * b for a, b in zip(self, other, strict=True)))


def computations(text: str) -> Computations:
    """The instructions of each computation, by name; the name of the entry computation is empty."""
    found: Computations = {}
    for line in text.splitlines():
        line = re.sub(r"/\*.*?\*/", "", line)
        if head := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line):
            current = found["" if head[1] else head[2]] = []
        elif found and (m := re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$", line)):
            current.append(Instruction(*m.groups()))
    return found


def launched(found: Computations, name: str = "") -> Total:
    """The total of a computation, with the largest branch of a conditional, and one iteration of loops of unknown length."""
    shapes = {x.name: x.shape for x in found[name]}
    total = Total()
    for x in found[name]:
        if x.operation in FREE or x.operation.endswith("-done"):
            continue
        if x.operation == "while":
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', x.rest)
            total = total.plus(launched(found, _called(x, "body")[0]), int(trips[1]) if trips else 1)
        elif x.operation == "conditional":
            names = _called(x, "branch_computations", "true_computation", "false_computation")
            total = total.plus(Total(*map(max, *(launched(found, y) for y in names))))
        elif x.operation in ("call", "async-start"):
            for y in _called(x, "to_apply", "calls"):
                total = total.plus(launched(found, y))
        else:
            moved = _moved(found, shapes, x)
            total = total.plus(Total(1, moved, max(LAUNCH, moved / BANDWIDTH)))
    return total


def iteration(found: Computations) -> Total:
    """The total of one iteration of the most expensive loop of unknown length."""
    loops = [x for y in found.values() for x in y if x.operation == "while" and "known_trip_count" not in x.rest]
    return max((launched(found, _called(x, "body")[0]) for x in loops), key=lambda total: total.least)


def communicated(found: Computations) -> dict[str, int]:
    """Bytes of the results of each kind of collective; collectives in a loop count once."""
    total: dict[str, int] = defaultdict(int)
    for instructions in found.values():
        for x in instructions:
            kind = x.operation.removesuffix("-start")
            if kind in COLLECTIVES:
                total[kind] += size(x.shape)
    return dict(total)


def size(shape: str) -> int:
    """Number of bytes of an array or a tuple of arrays."""
    total = 0
    for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", shape):
        count = WIDTH.get(kind, 0)
        for x in dims.split(","):
            count *= int(x or 1)
        total += count
    return total


def _called(x: Instruction, *attributes: str) -> list[str]:
    found = re.findall(rf"(?:{'|'.join(attributes)})=(\{{.*?\}}|%?[\w.\-]+)", x.rest)
    return [name for group in found for name in re.findall(r"[\w.\-]+", group)]


def _moved(found: Computations, shapes: dict[str, str], x: Instruction) -> int:
    """Bytes read and written; if a fusion only slices or partly updates an array, only that part counts."""
    inner = found.get(next(iter(_called(x, "calls")), ""), []) if x.operation == "fusion" else []
    if not inner:
        return size(x.shape) + sum(size(shapes.get(y, "")) for y in x.operands)
    within, users = {y.name: y.shape for y in inner}, defaultdict(list)
    for y in inner:
        for operand in y.operands:
            users[operand].append(y)
    updates = [y for y in inner if y.operation == "dynamic-update-slice"]
    written = sum(size(within[y.operands[1]]) for y in updates)
    rest = size(x.shape) - sum(size(y.shape) for y in updates)
    total = written + max(rest, 0)
    for y in inner:
        if y.operation != "parameter":
            continue
        uses = list(_uses(users, y.name))
        if uses and all(z.operation in SLICES for z, _ in uses):
            total += sum(size(z.shape) for z, _ in uses)
        elif not (uses and all(z.operation == "dynamic-update-slice" and z.operands[0] == name for z, name in uses)):
            total += size(y.shape)
    return total


def _uses(users: dict[str, list[Instruction]], name: str) -> Iterator[tuple[Instruction, str]]:
    """The instructions that use a value, also as a bitcast, with the name by which they use it."""
    for x in users[name]:
        if x.operation == "bitcast":
            yield from _uses(users, x.name)
        else:
            yield x, name
