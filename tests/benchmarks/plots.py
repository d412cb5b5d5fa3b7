"""Plots of throughput against batch size, with the floor as a line, and of time against the number of joints."""

import itertools
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

COLOURS = {"jaxdyn": ("#0b5d8a", "#2b9bd1", "#7cc4ea"), "Pinocchio": ("#b5523b", "#e08a6e", "#f0bda8")}
OTHERS = {"frax": "#5d8a3c", "mjx": "#8a6bbf", "adam": "#c9a227", "brax": "#777777"}


def draw(part: str, records: list[dict], folder: Path) -> list[Path]:
    """Draw the plots of a part as PNG files in a folder; return their paths, none if the part has no plots."""
    measured = [r for r in records if r.get("seconds")]
    if not measured:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    if part == "batches":
        return [
            _curves(part, robot, [r for r in measured if r["robot"] == robot], folder)
            for robot in dict.fromkeys(r["robot"] for r in measured)
        ]
    return [_scaling(measured, folder)] if part == "scaling" else []


def _curves(part: str, robot: str, records: list[dict], folder: Path) -> Path:
    labels = list(dict.fromkeys(r["label"] for r in records))
    precisions = list(dict.fromkeys(r["precision"] for r in records))
    size = (4.4 * len(labels), 3.6 * len(precisions) + 0.9)
    figure, axes = plt.subplots(len(precisions), len(labels), figsize=size, squeeze=False, sharex=True)
    seen = {}
    for i, precision in enumerate(precisions):
        for j, label in enumerate(labels):
            axis = axes[i][j]
            group = [r for r in records if r["label"] == label and r["precision"] == precision]
            for key, line in _lines(group).items():
                batches, rates = zip(*[(r["batch"], 1 / r["seconds"]) for r in line], strict=True)
                style = _style(*key, [k for k in _lines(records) if k[0] == key[0]])
                (seen[", ".join(key)],) = axis.plot(batches, rates, **style)
            for devices, rate in _floors(group).items():
                text = f"floor, {devices} device{'s' * (devices > 1)}"
                seen[text] = axis.axhline(rate, color="black", linewidth=1, linestyle="--" if devices == 1 else ":")
            axis.set(xscale="log", yscale="log", title=f"{label}, {precision}")
            axis.grid(True, which="major", alpha=0.3, linewidth=0.6)
            axis.spines[["top", "right"]].set_visible(False)
            if i == len(precisions) - 1:
                axis.set_xlabel("states at once")
            if j == 0:
                axis.set_ylabel("evaluations per second")
    seen = dict(sorted(seen.items(), key=lambda item: [item[0].startswith(x) for x in ("floor", "frax", "Pin")]))
    columns = min(len(seen), 1 if len(labels) == 1 else len(labels) + 1)
    rows = math.ceil(len(seen) / columns)
    figure.legend(seen.values(), seen.keys(), loc="lower center", ncols=columns, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, (0.24 * rows + 0.1) / size[1], 1, 1))
    return _save(figure, folder / f"{part}_{robot}.png")


def _scaling(records: list[dict], folder: Path) -> Path:
    labels = list(dict.fromkeys(r["label"] for r in records))
    sizes = {r["n"] for r in records}
    figure, axes = plt.subplots(1, len(labels), figsize=(3.6 * len(labels), 3.9), squeeze=False, sharey=True)
    for axis, label in zip(axes[0], labels, strict=True):
        for shape, library in itertools.product(("chain", "tree"), ("jaxdyn", "Pinocchio")):
            group = [r for r in records if (r["label"], r["robot"], r["library"]) == (label, shape, library)]
            line = sorted((r["n"], 1e6 * r["seconds"]) for r in group)
            if line:
                style = {"marker": "os"[shape == "tree"], "linestyle": "-:"[shape == "tree"], "markersize": 3.5}
                axis.plot(*zip(*line, strict=True), color=COLOURS[library][0], label=f"{library}, {shape}s", **style)
        axis.set(xscale="log", yscale="log", title=label, xlabel="joints", xlim=(1.6, None))
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.set_xticks([n for n in (2, 10, 50, 200, 1000) if n in sizes], minor=False)
        axis.set_xticks([], minor=True)
        axis.grid(True, alpha=0.3, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("us per evaluation")
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    return _save(figure, folder / "scaling.png")


def _lines(records: list[dict]) -> dict[tuple, list[dict]]:
    found: dict[tuple, list[dict]] = {}
    for r in sorted(records, key=lambda r: r["batch"]):
        found.setdefault((r["library"], r.get("variant", "")), []).append(r)
    return found


def _floors(records: list[dict]) -> dict[int, float]:
    """Evaluations per second at the machine's peak, by number of devices."""
    return {r["devices"]: 1 / r["floor"] for r in records if r.get("floor")}


def _style(library: str, variant: str, keys: list[tuple]) -> dict:
    shades = COLOURS.get(library)
    place = keys.index((library, variant))
    colour = shades[min(place, 2)] if shades else OTHERS.get(library, "#444444")
    return {"color": colour, "marker": "osD^"[place % 4], "markersize": 3.5, "linewidth": 1.6}


def _save(figure, path: Path) -> Path:
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
