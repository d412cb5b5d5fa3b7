"""Draw throughput.png from the table "Other libraries" in docs/benchmarks.md: `python docs/pictures/throughput.py`."""

import itertools
from pathlib import Path

from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent


def table(page: str) -> tuple[list[str], dict[str, list[float]]]:
    """Quantities in the table's header, and the times per evaluation [us] of each library that took less than 1 ms."""
    lines = page.split("### Other libraries\n", 1)[1].splitlines()
    lines = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    header, _, *body = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in itertools.takewhile(lambda line: line.startswith("|"), lines)
    ]
    times = {name: [float(cell) for cell in cells] for name, *cells in body}
    return header[1:], {name: cells for name, cells in times.items() if max(cells) < 1000}


def draw() -> Figure:
    quantities, times = table((HERE.parent / "benchmarks.md").read_text())
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    panels = figure.subplots(1, len(quantities), sharey=True)
    for axes, quantity, k in zip(panels, quantities, range(len(quantities)), strict=True):
        rates = {name: 1 / cells[k] for name, cells in times.items()}  # millions per second
        colours = ["#005a87" if name == "jaxdyn" else "#9aa5ad" for name in rates]
        bars = axes.barh(list(rates), list(rates.values()), color=colours)
        axes.bar_label(bars, fmt="%.2g", padding=3)
        axes.set(title=quantity, xlabel="million evaluations per second", xlim=(0, 1.15 * max(rates.values())))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.suptitle("7R arm, 4096 states, float64, one device on one shared CPU (2026-11-25)", fontsize=10)
    return figure


if __name__ == "__main__":
    draw().savefig(HERE / "throughput.png", dpi=130)
