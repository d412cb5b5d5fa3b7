"""Order of the operations of a kernel, chosen so that few scalars occupy registers at the same time."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

from .._source.scalars import Node, Scalar


@dataclasses.dataclass(eq=False)
class Write:
    """Consecutive entries of a result, written together.

    Attributes:
        result: index of the result.
        place: position of the first entry.
        values: entries.
    """

    result: int
    place: int
    values: list[Scalar]


def ordered(
    items: Sequence, writes: Sequence[Write], kept: Sequence[Scalar], operands: Callable[[object], Collection[Scalar]]
) -> list:
    """Sort the items of a block and the writes of results so that operands precede the operations that use them.

    Of the following two orders, the function returns the one that keeps fewer scalars in registers:

    - the order of the traced function, in which results are written as soon as they are known (suitable for recursions over
      links);
    - an order that computes each operation just before its first use by a write, a store or a loop (suitable for results
      with many entries).

    Args:
        kept: scalars that are used after the block.
        operands: function that returns the scalars on which an item depends.
    """
    within = {x for x in items if isinstance(x, Node)}
    needs = {x: [y for y in operands(x) if y in within] for x in (*items, *writes)}
    found = [list(order(items, writes, needs)) for order in (_by_trace, _by_use)]
    ends = [x for x in kept if x in within]
    return min(found, key=lambda order: _most_alive(order, ends, needs))


def _by_trace(items: Sequence, writes: Sequence[Write], needs: dict) -> Iterator:
    place = {x: k for k, x in enumerate(items)}
    after: dict[int, list[Write]] = {}
    for write in writes:
        after.setdefault(max((place[x] for x in needs[write]), default=-1), []).append(write)
    yield from after.get(-1, ())
    for k, item in enumerate(items):
        yield item
        yield from after.get(k, ())


def _by_use(items: Sequence, writes: Sequence[Write], needs: dict) -> Iterator:
    done: set = set()
    for end in (*(x for x in items if not isinstance(x, Node)), *writes, *items):
        todo = [(end, False)]
        while todo:
            x, ready = todo.pop()
            if ready:
                yield x
            elif x not in done:
                done.add(x)
                todo += [(x, True), *((y, False) for y in reversed(needs[x]))]


def _most_alive(order: list, ends: Sequence[Node], needs: dict) -> int:
    """Maximum number of live scalars at any point of the order."""
    last = {y: k for k, x in enumerate(order) for y in needs[x]} | dict.fromkeys(ends, len(order))
    change = [0] * (len(order) + 2)
    for k, x in enumerate(order):
        if x in last:
            change[k] += 1
            change[last[x] + 1] -= 1
    alive = most = 0
    for x in change:
        alive += x
        most = max(most, alive)
    return most
