"""Search of a graph with loops for the parts that affect its results."""

from collections.abc import Iterable

from .loops import Loop, LoopGraph, Memory, Store
from .scalars import Node, Scalar


class Live:
    """The nodes, loops and stores on which results depend.

    Attributes:
        items: nodes, loops, stores and memories.
        carried: for each loop, the indices of the values that must be carried from one iteration to the next.
    """

    def __init__(self, graph: LoopGraph, results: Iterable[Scalar], written: Iterable[Memory] = ()) -> None:
        self.items: set = set()
        self.carried: dict[Loop, set[int]] = {}
        self._stores: dict[Memory, list[Store]] = {}
        self._around: dict[int, tuple[Loop, ...]] = {}
        self._todo: list = [*results, *written]
        self._read(graph.items, ())
        while self._todo:
            self._mark(self._todo.pop())

    def _read(self, items: list, around: tuple[Loop, ...]) -> None:
        for item in items:
            if isinstance(item, Loop):
                self._read(item.items, (*around, item))
            elif isinstance(item, Store):
                self._stores.setdefault(item.memory, []).append(item)
            self._around[id(item)] = around

    def _mark(self, item: object) -> None:
        if isinstance(item, Node):
            if item in self.items:
                return
            self.items.add(item)
            if item.kind in ("carry", "result"):
                self._carry(*item.of)
            elif item.kind == "load":
                self._todo.append(item.of[0])
            elif item.kind not in ("input", "index"):
                self._todo.extend(item.of)
            self._todo.extend(self._around[id(item)])
        elif isinstance(item, Loop):
            self.items.add(item)
            self.carried.setdefault(item, set())
        elif isinstance(item, Memory) and item not in self.items:
            self.items.add(item)
            for store in self._stores.get(item, ()):
                self.items.add(store)
                self._todo += [store.value, *self._around[id(store)]]

    def _carry(self, loop: Loop, number: int) -> None:
        self._todo.append(loop)
        kept = self.carried.setdefault(loop, set())
        if number not in kept:
            kept.add(number)
            self._todo += [loop.first[number], loop.last[number]]
