"""Plots of positions and torques over time, with their limits."""

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ..errors import OutputError
from ..io._files import write_whole
from ..io._logs.motion import coordinate_names
from ..model._chain import Chain
from ..model._layout import layout, turning_joints
from ._limits import effort_limits

Row = Float[Array, " N"] | Float[np.ndarray, " N"]
Rows = Float[Array, "rows k"] | Float[np.ndarray, "rows k"]
_LINE, _LIMIT, _BEYOND = "#1f5fa8", "#b03030", "#e15759"


def plot_torques(
    chain: Chain,
    t: Row,
    tau: Rows,
    path: str | os.PathLike[str] | None = None,
    *,
    limits: Float[Array, " nv"] | Float[np.ndarray, " nv"] | None = None,
) -> Any:
    """Plot torques over time, one panel per coordinate, with limits as dashed lines and violations shaded.

    Torques are drawn as curves if `tau` has one row per time, and as steps if it has one row fewer, as in a rollout or a
    `Trajectory`.

    Args:
        t: times [s].
        tau: torques [N m or N], one column per coordinate.
        path: file to write, whose suffix selects the format (png, svg, pdf); None: no file.
        limits: largest |tau| of each coordinate [N m or N]; None: the robot's `limits.effort`, if any.

    Returns:
        The matplotlib figure, created without pyplot, so that no window opens and matplotlib's state does not change.

    Raises:
        OutputError: the number of rows or columns is wrong, or the file cannot be written.
    """
    times, values = np.asarray(t, float), np.asarray(tau, float)
    if values.ndim != 2 or values.shape[1] != chain.nv or len(values) not in (len(times), len(times) - 1):
        raise OutputError(
            f"torques have shape {values.shape}, but there are {len(times)} time stamps and {chain.nv} coordinates; "
            "pass one row per time, or "
            "one per step, with one column per coordinate"
        )
    bounds = effort_limits(chain) if limits is None else np.asarray(limits, float)
    units = _units(chain, "N m", "N")
    figure, panels = _panels(chain.nv)
    for j, (axes, name) in enumerate(zip(panels, coordinate_names(chain), strict=True)):
        y = values[:, j]
        stepped = len(y) < len(times)
        shown = np.append(y, y[-1]) if stepped else y
        style = {"drawstyle": "steps-post"} if stepped else {}
        axes.plot(times, shown, color=_LINE, linewidth=1.2, **style)
        if np.isfinite(bounds[j]):
            for side in (-1, 1):
                axes.axhline(side * bounds[j], color=_LIMIT, linestyle="--", linewidth=0.9)
            step = "post" if stepped else None
            for low, beyond in ((bounds[j], shown > bounds[j]), (-bounds[j], shown < -bounds[j])):
                axes.fill_between(times, low, shown, where=beyond, color=_BEYOND, alpha=0.5, step=step, linewidth=0)
        axes.set_title(f"{name} [{units[j]}]", fontsize="small", loc="left")
    figure.supxlabel("time [s]", fontsize="small")
    figure.supylabel("torque (dashed: limits)" if np.isfinite(bounds).any() else "torque", fontsize="small")
    return _saved(figure, path)


def plot_positions(chain: Chain, t: Row, q: Rows, path: str | os.PathLike[str] | None = None) -> Any:
    """Plot positions over time, one panel per entry of q, with joint limits as dashed lines.

    Limits are not drawn for the entries of quaternion joints, which have none.

    Args:
        t: times [s].
        q: positions [rad or m], one row per time.
        path: file to write, as for `plot_torques`.

    Returns:
        The matplotlib figure.

    Raises:
        OutputError: the number of rows or columns is wrong, or the file cannot be written.
    """
    times, values = np.asarray(t, float), np.asarray(q, float)
    if values.shape != (len(times), chain.nq):
        raise OutputError(
            f"positions have shape {values.shape}, but there are {len(times)} time stamps with {chain.nq} positions "
            "each"
        )
    names, units = _position_names(chain)
    limits = np.tile([-np.inf, np.inf], (chain.nq, 1))
    if chain.coupling is None:
        where = layout(chain)
        limits[where.entries] = np.asarray(chain.limits.position, float)[where.columns]
    figure, panels = _panels(chain.nq)
    drawn = False
    for j, axes in enumerate(panels):
        axes.plot(times, values[:, j], color=_LINE, linewidth=1.2)
        low, high = axes.get_ylim()
        for bound in limits[j][np.isfinite(limits[j])]:
            axes.axhline(bound, color=_LIMIT, linestyle="--", linewidth=0.9)
        if values[:, j].min() > limits[j, 0] and values[:, j].max() < limits[j, 1]:
            axes.set_ylim(low, high)  # an axis that includes a distant limit would flatten the curve
        low, high = axes.get_ylim()
        drawn = drawn or bool(((limits[j] >= low) & (limits[j] <= high)).any())
        axes.set_title(f"{names[j]} [{units[j]}]" if units[j] else names[j], fontsize="small", loc="left")
    figure.supxlabel("time [s]", fontsize="small")
    figure.supylabel("position (dashed: limits)" if drawn else "position", fontsize="small")
    return _saved(figure, path)


def _units(chain: Chain, turning: str, sliding: str) -> list[str]:
    """Unit of each coordinate, derived from the screw of its joint; for coupled joints, always the unit of angles."""
    if chain.coupling is not None:
        return [turning] * chain.nv
    return [turning if turns else sliding for turns in turning_joints(chain)]


def _position_names(chain: Chain) -> tuple[list[str], list[str]]:
    if chain.nq == chain.nv:
        return list(coordinate_names(chain)), _units(chain, "rad", "m")
    names, units = [""] * chain.nq, [""] * chain.nq
    coordinates, kinds = coordinate_names(chain), _units(chain, "rad", "m")
    where = layout(chain)
    for column, entry in zip(where.columns, where.entries, strict=True):
        names[entry], units[entry] = coordinates[column], kinds[column]
    for joint in where.quaternions:
        own = coordinates[joint.column]
        for k in range(joint.size + 1):
            point = joint.size == 6 and k < 3
            label = "xyz"[k] if point else f"quaternion {'wxyz'[k - (joint.size - 3)]}"
            names[joint.start + k], units[joint.start + k] = f"{own}: {label}", "m" if point else ""
    return names, units


def _panels(count: int) -> tuple[Any, Sequence]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 1 if count == 1 else 2 if count <= 4 else 3 if count <= 9 else 4
    rows = -(-count // columns)
    figure = Figure(figsize=(3.1 * columns + 0.6, 1.7 * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    for axes in panels[count:]:
        axes.set_visible(False)
    for axes in panels[:count]:
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize="small")
        axes.margins(x=0.01)
    return figure, list(panels[:count])


def _saved(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    if path is None:
        return figure
    kind = os.path.splitext(os.fspath(path))[1][1:].lower() or "png"
    content = io.BytesIO()
    try:
        figure.savefig(content, format=kind, dpi=120)
    except ValueError as error:
        raise OutputError(f"{os.fspath(path)}: {error}") from None
    write_whole(path, content.getvalue(), OutputError)
    return figure
