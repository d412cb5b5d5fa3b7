"""Comparison of two models on the same logs as text for the terminal: a table of errors, and a verdict."""

from typing import Any

from ...identification._validation.comparison import ModelComparison
from .._markup import rounded
from .._quality import torque_units

BETTER = 1.05  # errors of a joint within 5 % count as equal


def print_whole(console: Any, table: Any) -> None:
    """Print a table at its own width if it is wider than the console: rich would cut numbers."""
    from rich.measure import Measurement

    own, wide = console.width, Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    console.width = max(own, wide)
    try:
        console.print(table)
    finally:
        console.width = own


def comparison_verdict(comparison: ModelComparison) -> str:
    """The errors of both models and the better model, in two sentences."""
    names, ratio, joints = comparison.names, comparison.ratio, comparison.chains[0].joint_names
    totals = [fit.total_relative for fit in comparison.fits]
    first, second = ([j for j, r in enumerate(x) if r > BETTER] for x in (ratio, 1 / ratio))
    both = (
        f"{names[0]} predicts the torques with a total relative error of {rounded(totals[0])} %, "
        f"{names[1]} with {rounded(totals[1])} %."
    )
    if not first and not second:
        return f"{both} The errors of the two models differ by no more than 5 % on any joint."
    if not first or not second:
        better = names[0] if first else names[1]
        which = first or second
        where = (
            "every joint" if len(which) == len(joints) else ", ".join(joints[j] for j in which) + " and equal elsewhere"
        )
        return f"{both} {better} is better on {where}."
    lists = [", ".join(joints[j] for j in found) for found in (first, second)]
    return f"{both} {names[0]} is better on {lists[0]}; {names[1]} on {lists[1]}."


def comparison_table(comparison: ModelComparison) -> Any:
    """Errors by joint, as a rich table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    units, joints = torque_units(comparison.chains[0]), comparison.chains[0].joint_names
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Torque errors by joint", title_justify="left")
    shown.add_column("joint")
    same = len(set(units)) == 1
    for name in "ab":
        for column in (f"{name}: RMS\n[{units[0]}]" if same else f"{name}: RMS", "RRE\n[%]", "moving\n[%]"):
            shown.add_column(column, justify="right")
    shown.add_column("b / a", justify="right")
    for j, joint in enumerate(joints):
        cells = [Text(joint)]
        for fit in comparison.fits:
            rms = rounded(fit.rms[j]) if same else f"{rounded(fit.rms[j])} {units[j]}"
            cells += [rms, rounded(fit.relative[j]), rounded(fit.relative_moving[j])]
        shown.add_row(*cells, rounded(float(comparison.ratio[j])))
    totals = [cell for fit in comparison.fits for cell in ("", rounded(fit.total_relative), "")]
    shown.add_row("all", *totals, "")
    return shown


def print_comparison(comparison: ModelComparison, console: Any = None) -> None:
    """Print a table of errors by joint and a verdict for a comparison of two models.

    Args:
        comparison: result of `compare_models`.
        console: a rich `Console`; by default standard output.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False) if console is None else console
    print_whole(console, comparison_table(comparison))
    for letter, name in zip("ab", comparison.names, strict=True):
        console.print(Text(f"{letter}: {name}"), soft_wrap=True)
    console.print(Text(comparison_verdict(comparison)))
