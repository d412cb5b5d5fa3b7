"""Results of a sweep as a table."""

from collections import Counter
from typing import Any


def summary(lines: list[dict[str, Any]], wanted: set[str]) -> tuple[str, int]:
    """The table, and how many defects it names; robots are those of `wanted` that were tried."""
    lines = [line for line in lines if line["model"] in wanted]
    done = {line["model"] for line in lines if "finished" in line}
    loads = [line for line in lines if line.get("done") == "load" and line.get("devices") == 1]
    first = {line["model"]: line for line in reversed(loads)}
    programs = [line for line in lines if line.get("done", "load") != "load"]
    defects = [line for line in lines if line.get("problem")]
    loaded = [line for line in first.values() if not line.get("refused") and not line.get("problem")]
    peers = [line for line in first.values() if line.get("peer") and "random" not in line["model"].split()[:1]]
    text = [f"{len(done)} of {len(wanted)} models, {len(loaded)} loaded; {len(programs)} programs"]
    text += [f"{sum(line.get('seconds', 0) for line in programs):.0f} s of processor time in programs"]
    if peers:
        ours = sum(not line.get("refused") for line in peers)
        text += [
            f"of {len(peers)} files in which another program finds joints, {ours} load ({100 * ours / len(peers):.1f} %)"
        ]
    text += [f"{sum(bool(line.get('warned')) for line in loaded)} with a warning"]
    reasons = Counter(line["no_truth"].partition(":")[0] for line in loaded if line.get("no_truth"))
    text += [f"{count} without another program's numbers: {reason}" for reason, count in reasons.items()]
    for line in peers:
        if line.get("refused"):
            text += [f"REFUSED {line['model']}: {line['refused'].partition(': ')[2][:300]}"]
    for line in defects:
        text += [f"DEFECT {line['model']}, {line['done']}, {line['devices']} device(s): {line['problem'][:600]}"]
    text += [f"{len(defects)} defects"]
    return "\n".join(text), len(defects)
