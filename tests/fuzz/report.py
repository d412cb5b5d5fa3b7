"""Figures of a campaign: how many inputs of which kind ended how, and each defect once."""

import re
from collections import Counter, defaultdict

from .campaign import Result
from .worker import DEFECTS, OK, REFUSED


class Report:
    """Counts by kind, and the defects by what they have in common."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter] = defaultdict(Counter)
        self.slowest: dict[str, tuple[float, str]] = defaultdict(lambda: (0.0, ""))
        self.defects: dict[tuple[str, str, str], list[Result]] = defaultdict(list)

    def add(self, result: Result) -> None:
        kind = result.input.kind
        self.counts[kind][result.status] += 1
        self.slowest[kind] = max(self.slowest[kind], (result.seconds, result.input.key))
        if result.status in DEFECTS:
            self.defects[kind, result.status, _alike(result.words)].append(result)

    @property
    def total(self) -> Counter:
        return sum(self.counts.values(), Counter())

    @property
    def failed(self) -> int:
        return sum(self.total[status] for status in DEFECTS)

    def text(self) -> str:
        heads = ("inputs", OK, REFUSED, *DEFECTS, "slowest [s], its key")
        rows = [(kind, self.counts[kind], self.slowest[kind]) for kind in sorted(self.counts)]
        rows.append(("all", self.total, max(self.slowest.values(), default=(0.0, ""))))
        width = max(len(row[0]) for row in rows)
        lines = ["", "  ".join([" " * width, *heads])]
        for kind, count, slowest in rows:
            cells = [f"{sum(count.values()):{len(heads[0])}d}"]
            cells += [f"{count[status]:{len(status)}d}" for status in heads[1:-1]]
            lines.append("  ".join([f"{kind:{width}s}", *cells, f"{slowest[0]:11.2f}", slowest[1]]))
        for (kind, status, _), found in sorted(self.defects.items(), key=lambda item: -len(item[1])):
            first = found[0]
            lines += ["", f"{len(found)} x {kind} ({first.reader}), {status}: {first.words}"[:700]]
            again = first.kept or first.input.folder
            lines.append(f"    python -m tests.fuzz --replay {again}" if again else f"    key {first.input.key}")
        return "\n".join(lines)


def _alike(words: str) -> str:
    """Words without numbers and quotations; an exception's are its type and place."""
    place = re.search(r"\(\w+\.py:\d+ in .*?\)", words)
    kind = words.partition(":")[0]
    return f"{kind} {place[0]}" if place else re.sub(r"'[^']*'|[\d.e+-]+", "", words)[:60]
