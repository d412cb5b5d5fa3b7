"""Quantities derived from the topology: the ancestors of each link, and a link order for traversing the tree in one scan."""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np


def ancestor_mask(parents: tuple[int, ...]) -> np.ndarray:
    """Boolean matrix in which entry (i, j) is True if link i is link j itself or an ancestor of link j."""
    mask = np.eye(len(parents), dtype=bool)
    for j, p in enumerate(parents):
        if p >= 0:
            mask[:, j] |= mask[:, p]
    return mask


class Trunks(NamedTuple):
    """The links before a robot branches, except the last one of each trunk (`before`), and those outside trunks (`beyond`)."""

    before: np.ndarray
    beyond: np.ndarray


@functools.lru_cache(maxsize=256)
def trunks_of(parents: tuple[int, ...]) -> Trunks:
    """Return the `Trunks` of a tree whose parents are given as in `Topology`."""
    single = np.bincount(np.array(parents, int) + 1, minlength=len(parents) + 1)[1:] == 1
    beyond = np.zeros(len(parents), bool)
    for i, p in enumerate(parents):
        beyond[i] = p >= 0 and (beyond[p] or not single[p])
    return Trunks(single & ~beyond, beyond)


class Place(NamedTuple):
    """The registers that each link of a walk reads (`source`) and writes (-1: none), and which links start at the base."""

    source: np.ndarray
    register: np.ndarray
    from_base: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Walk:
    """A depth-first order of a tree's links, with registers for the states of branching links.

    A branching link keeps its state in a register until its last child is visited; registers are then reused, so few
    are needed: one or two for a humanoid. Every step of a sweep reads before it writes.

    Attributes:
        order: the links in the order of the walk; None if this is 0, 1, 2, ...
        back: position of each link in the walk; None if `order` is None.
        parents: position of each link's parent in the walk (-1 for the base), in the order of the walk.
    """

    order: np.ndarray | None
    back: np.ndarray | None
    parents: tuple[int, ...]
    registers: int
    place: Place

    @property
    def is_serial(self) -> bool:
        """True if every link's parent is the previous link."""
        return not self.place.from_base.any() and not (self.place.source >= 0).any()

    @property
    def leaves_base(self) -> bool:
        """True if more than one branch starts at the base."""
        return bool(self.place.from_base.any())


@functools.lru_cache(maxsize=256)
def walk_of(parents: tuple[int, ...]) -> Walk:
    """Return the `Walk` of a tree whose parents are given as in `Topology`."""
    order = _preorder(parents)
    back = [0] * len(order)
    for position, link in enumerate(order):
        back[link] = position
    above = tuple(-1 if parents[link] < 0 else back[parents[link]] for link in order)
    last_child = {p: i for i, p in enumerate(above)}  # for each link, its last child in the order of the walk
    n = len(above)
    source, register, from_base = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.zeros(n, bool)
    free: list[int] = []
    count = 0
    for i, p in enumerate(above):
        if i > 0 and p != i - 1:
            if p < 0:
                from_base[i] = True
            else:
                source[i] = register[p]
                if last_child[p] == i:
                    free.append(int(register[p]))
        if last_child.get(i, i + 1) > i + 1:  # the link has a child that does not directly follow it
            if not free:
                free.append(count)
                count += 1
            register[i] = free.pop()
    straight = order == list(range(n))
    return Walk(
        None if straight else np.array(order),
        None if straight else np.array(back),
        above,
        count,
        Place(source, register, from_base),
    )


def _preorder(parents: tuple[int, ...]) -> list[int]:
    """Depth-first order; the branch that needs the most registers comes last where this saves registers."""
    children: dict[int, list[int]] = {}
    for link, parent in enumerate(parents):
        children.setdefault(parent, []).append(link)
    needs: dict[int, int] = {}

    def held(link: int, branches: list[int]) -> int:
        """Maximum number of registers in use at once below `link` if its branches are visited in the order `branches`."""
        own = 1 if link >= 0 else 0  # the state of the base is always available
        return max([own + needs[x] for x in branches[:-1]] + [needs[x] for x in branches[-1:]], default=0)

    ordered: dict[int, list[int]] = {}
    for link in sorted({-1, *range(len(parents))}, reverse=True):
        branches = children.get(link, [])
        sparing = sorted(branches, key=lambda x: needs[x])
        better = held(link, sparing) < held(link, branches)
        ordered[link] = sparing if better else branches
        needs[link] = held(link, ordered[link])
    order, waiting = [], ordered[-1][::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += ordered[order[-1]][::-1]
    return order
