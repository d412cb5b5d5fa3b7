"""Changes one at a time: their tests, cheapest first, until one fails; what became of each goes to a file at once."""

import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .coverage_map import Covering, Map, Portion
from .sites import Site
from .slots import Slot, Slots, ToolError

START = 2.0  # processor seconds of starting to run one more test file
CHANCE = 0.3  # that a test which runs a changed line fails: only the order of the files hangs on it
LIMIT = 6.0  # a process ends after that many times the processor seconds that are usual, and some more


def batches(portions: Iterable[Portion]) -> Iterator[list[Portion]]:
    """Test files in the order in which they are run: one, then two more, then four, each lot in one process.

    The order is that of cost over the chance that one of the tests fails, which finds a failure soonest.
    """
    order = sorted(portions, key=lambda p: (START + p.cost) / (1 - (1 - CHANCE) ** len(p.tests)))
    size = 1
    while order:
        yield order[:size]
        order, size = order[size:], 2 * size


def verdict(slot: Slot, site: Site, tier: str, covering: Covering, budget: float) -> dict:
    """Run the tests of a tier on a change, within a budget of processor seconds, and record which one fails."""
    record = {"tier": tier, "status": "survived", "cpu": 0.0, "tests": 0, "by": ""}
    if not covering.seen:
        record["by"] = "no test runs this line"
    for batch in (*batches(covering.seen), *batches(covering.others)):
        if record["cpu"] > budget:
            record["by"] = f"no failure in {record['tests']} tests, {record['cpu']:.0f} s; there are more"
            break
        tests = [test for portion in batch for test in portion.tests]
        limit = slot.project.least_limit + LIMIT * sum(portion.cost for portion in batch)
        reply = slot.run(site, tests, covering.known, limit, slot.project.tiers[tier])
        result = reply["result"] or {"failed": None, "passed": 0}
        record["cpu"] = round(record["cpu"] + reply["cpu"], 1)
        record["tests"] += result["passed"]
        by = _killer(reply, result["failed"])
        if by:
            return {**record, "status": "killed", "by": by}
        if reply["code"] not in (0, 5):
            text = slot.log.read_text(encoding="utf-8", errors="replace")
            raise ToolError(f"{site.file}:{site.line}: pytest ended with {reply['code']}:\n{text[-3000:]}")
    return record


def _killer(reply: dict, failed: str | None) -> str:
    """The cause of death of the mutant, if any: a test, a limit, or the end of the process."""
    if reply["limit"]:
        return f"limit of {reply['limit']}"
    if reply["signal"] or reply["code"] > 100:
        return f"crash, signal {reply['signal']}" if reply["signal"] else f"crash, exit code {reply['code']}"
    return failed or f"exit code {reply['code']}" if reply["code"] in (1, 2, 3) else ""


class Results:
    """A file with one line of JSON for each change tried; a later line overrides an earlier one of the same change."""

    def __init__(self, path: Path):
        self.path = path
        self.records: dict[str, dict] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self.records[record["key"]] = record

    def add(self, site: Site, record: dict) -> None:
        place = {name: getattr(site, name) for name in ("file", "line", "kind", "old", "new", "before", "after")}
        record = {"key": site.key, **place, **record}
        self.records[site.key] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            print(json.dumps(record), file=file, flush=True)

    def due(self, sites: list[Site], tiers: list[str], retry: bool) -> list[Site]:
        """Those that the last of these tiers has not tried and none has killed; with `retry` also its own survivors."""

        def open_(site: Site) -> bool:
            record = self.records.get(site.key)
            if record is None:
                return True
            return record["status"] == "survived" and (retry or record["tier"] in tiers[:-1])

        return [site for site in sites if open_(site)]


def run(sites: list[Site], map_: Map, slots: Slots, results: Results, budget: float = math.inf) -> None:
    """Try every change on the tests of the map's tier, and say what became of it."""
    start = time.perf_counter()

    def one(slot: Slot, site: Site) -> tuple[Site, dict]:
        return site, verdict(slot, site, map_.tier, map_.covering(site), budget)

    for count, (site, record) in enumerate(slots.each(one, sites), 1):
        results.add(site, record)
        minutes = (time.perf_counter() - start) / 60
        print(
            f"[{count:3d}/{len(sites)}, {minutes:.1f} min] {record['status']:8s} {site.file}:{site.line} "
            f"{site.kind} {site.old} -> {site.new or 'nothing'} ({record['cpu']:.0f} s; {record['by'] or 'all pass'})",
            flush=True,
        )
