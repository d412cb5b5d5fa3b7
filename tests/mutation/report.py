"""Changes named as equivalent, and the table and list at the end."""

import dataclasses
import tomllib
from collections import Counter
from pathlib import Path

from .campaign import Results
from .sites import Site

LIMIT, SURVIVED, EQUIVALENT, UNTRIED = "of them by limit or crash", "survived", "equivalent", "not tried"


@dataclasses.dataclass(frozen=True)
class Equivalent:
    """A change that no test can notice, by the text of its line."""

    file: str
    before: str
    after: str
    reason: str

    def names(self, site: Site) -> bool:
        return (self.file, self.before, self.after) == (site.file, site.before, site.after)


def read_equivalents(path: Path) -> list[Equivalent]:
    if not path.exists():
        return []
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    return [Equivalent(**entry) for entry in entries]


def stale(equivalents: list[Equivalent], sites: list[Site]) -> list[Equivalent]:
    """Those whose line, or the change to it, is not in the package any more."""
    there = {(site.file, site.before, site.after) for site in sites}
    return [entry for entry in equivalents if (entry.file, entry.before, entry.after) not in there]


@dataclasses.dataclass(frozen=True)
class Summary:
    """Outcome of a draw by package and tier; each tier runs on the survivors of those before it."""

    tiers: list[str]
    counts: dict[str, Counter]
    survivors: list[dict]

    def share(self, tier: str) -> tuple[int, int]:
        """Numbers of mutants killed up to a tier, and of all that are not equivalent."""
        total = sum(self.counts.values(), Counter())
        killed = [total[name] for name in self.tiers]
        return sum(killed[: self.tiers.index(tier) + 1]), sum(killed) + total[SURVIVED]

    def text(self) -> str:
        columns = [*self.tiers, LIMIT, SURVIVED, EQUIVALENT, UNTRIED]
        heads = [f"killed by {name}" for name in self.tiers] + columns[len(self.tiers) :]
        width = max(len(name) for name in (*self.counts, "all"))
        lines = ["", "  ".join([" " * width, *heads])]
        for part, count in [*sorted(self.counts.items()), ("all", sum(self.counts.values(), Counter()))]:
            cells = [f"{count[name]:{len(head)}d}" for name, head in zip(columns, heads, strict=True)]
            lines.append("  ".join([f"{part:{width}s}", *cells]))
        if self.survivors:
            lines += ["", "survivors:"]
        for record in sorted(self.survivors, key=lambda r: (r["file"], r["line"])):
            lines.append(f"{record['file']}:{record['line']}  {record['kind']}, {record['why']}")
            lines += [f"  - {record['before']}", f"  + {record['after']}"]
        lines.append("")
        for tier in self.tiers:
            killed, tried = self.share(tier)
            lines.append(f"killed by tests up to {tier}: {killed} of {tried}, {100 * killed / max(tried, 1):.1f} %")
        return "\n".join(lines)


def summary(sites: list[Site], equivalents: list[Equivalent], results: Results, tiers: list[str]) -> Summary:
    """Of a draw and the tiers asked for: what only a later one has killed counts as alive."""
    counts: dict[str, Counter] = {}
    survivors = []
    for site in sites:
        count = counts.setdefault(site.file.split("/")[1], Counter())
        record = results.records.get(site.key)
        if any(entry.names(site) for entry in equivalents):
            count[EQUIVALENT] += 1
        elif record is None:
            count[UNTRIED] += 1
        elif record["status"] == "killed" and record["tier"] in tiers:
            count[record["tier"]] += 1
            count[LIMIT] += record["by"].startswith(("limit", "crash"))
        else:
            count[SURVIVED] += 1
            later = f"killed by {record['tier']}" if record["status"] == "killed" else ""
            why = later or record["by"] or f"{record['tests']} tests pass"
            survivors.append({**record, "line": site.line, "why": why})
    return Summary(tiers, counts, survivors)
