"""Pictures of a motion: plots of positions and torques over time with their limits, and animations as a stick figure."""

import contextlib
import dataclasses
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, UInt8

from ..errors import OutputError
from ..io.files import check_output_folder, write_whole
from ..model.chain import Chain, coordinate_names, layout, turning_joints
from ..model.configuration import positions_at
from .scene import Part, Scene, build_scene, effort_limits, line_ends, placed

Row = Float[Array, " N"] | Float[np.ndarray, " N"]
Rows = Float[Array, "rows k"] | Float[np.ndarray, "rows k"]
_LINE, _BEYOND = "#1f5fa8", "#e15759"
_LIMIT = {"color": "#b03030", "linestyle": "--", "linewidth": 0.9}


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
        path: file to write, whose suffix selects the format (png, svg, pdf); None: no file.
        limits: largest |tau| of each coordinate [N m or N]; None: the robot's `limits.effort`, if any.

    Returns:
        The matplotlib figure, created without pyplot, so that no window opens and matplotlib's state does not change.

    Raises:
        OutputError: the number of rows or columns is wrong, or the file cannot be written.
    """
    times, values = np.asarray(t, float), np.asarray(tau, float)
    if values.ndim != 2 or values.shape[1] != chain.nv or len(values) not in (len(times), len(times) - 1):
        fault = f"torques have shape {values.shape}, but there are {len(times)} time stamps and {chain.nv} coordinates"
        raise OutputError(fault, "pass one row per time, or one per step, with one column per coordinate")
    bounds = effort_limits(chain) if limits is None else np.asarray(limits, float)
    figure, panels = _panels(coordinate_names(chain), _units(chain, "N m", "N"))
    stepped = len(values) < len(times)
    step = "post" if stepped else None
    for axes, y, bound in zip(panels, values.T, bounds, strict=True):
        shown = np.append(y, y[-1]) if stepped else y
        axes.plot(times, shown, color=_LINE, linewidth=1.2, drawstyle="steps-post" if stepped else "default")
        if np.isfinite(bound):
            for side, beyond in ((bound, shown > bound), (-bound, shown < -bound)):
                axes.axhline(side, **_LIMIT)
                axes.fill_between(times, side, shown, where=beyond, color=_BEYOND, alpha=0.5, step=step, linewidth=0)
    return _finished(figure, "torque", bool(np.isfinite(bounds).any()), path)


def plot_positions(chain: Chain, t: Row, q: Rows, path: str | os.PathLike[str] | None = None) -> Any:
    """Plot positions q [rad or m] over time [s], one panel per entry of q, with joint limits as dashed lines.

    Limits are not drawn for the entries of quaternion joints, which have none. `path`, the result and the errors are those of
    `plot_torques`.
    """
    times, values = _samples(chain, t, q)
    limits = np.tile([-np.inf, np.inf], (chain.nq, 1))
    if chain.coupling is None:
        where = layout(chain)
        limits[where.entries] = np.asarray(chain.limits.position, float)[where.columns]
    figure, panels = _panels(*_position_names(chain))
    drawn = False
    for axes, y, own in zip(panels, values.T, limits, strict=True):
        axes.plot(times, y, color=_LINE, linewidth=1.2)
        low, high = axes.get_ylim()
        for bound in own[np.isfinite(own)]:
            axes.axhline(bound, **_LIMIT)
        if y.min() > own[0] and y.max() < own[1]:
            axes.set_ylim(low, high)  # an axis that includes a distant limit would flatten the curve
        low, high = axes.get_ylim()
        drawn = drawn or bool(((own >= low) & (own <= high)).any())
    return _finished(figure, "position", drawn, path)


def _samples(chain: Chain, t: Row, q: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Times and positions as NumPy arrays, if their shapes match."""
    times, values = np.asarray(t, float), np.asarray(q, float)
    if values.shape != (len(times), chain.nq):
        counts = f"{len(times)} time stamps with {chain.nq} positions each"
        raise OutputError(f"positions have shape {values.shape}, but there are {counts}")
    return times, values


def _units(chain: Chain, turning: str, sliding: str) -> list[str]:
    """Unit of each coordinate, derived from the screw of its joint; for coupled joints, always the unit of angles."""
    if chain.coupling is not None:
        return [turning] * chain.nv
    return [turning if turns else sliding for turns in turning_joints(chain)]


def _position_names(chain: Chain) -> tuple[list[str], list[str]]:
    """Name and unit of each entry of q."""
    coordinates, kinds = list(coordinate_names(chain)), _units(chain, "rad", "m")
    if chain.nq == chain.nv:
        return coordinates, kinds
    names, units = [""] * chain.nq, [""] * chain.nq
    where = layout(chain)
    for column, entry in zip(where.columns, where.entries, strict=True):
        names[entry], units[entry] = coordinates[column], kinds[column]
    for joint in where.curved:
        for entry, (label, unit) in enumerate(joint.positions, joint.start):
            names[entry], units[entry] = f"{coordinates[joint.column]}: {label}", unit
    return names, units


def _panels(names: Sequence[str], units: Sequence[str]) -> tuple[Any, Sequence]:
    """A figure with one panel for each name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(names)
    columns = 1 if count == 1 else 2 if count <= 4 else 3 if count <= 9 else 4
    rows = -(-count // columns)
    figure = Figure(figsize=(3.1 * columns + 0.6, 1.7 * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    for axes in panels[count:]:
        axes.set_visible(False)
    for axes, name, unit in zip(panels, names, units, strict=False):
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize="small")
        axes.margins(x=0.01)
        axes.set_title(f"{name} [{unit}]" if unit else name, fontsize="small", loc="left")
    return figure, list(panels[:count])


def _finished(figure: Any, what: str, limited: bool, path: str | os.PathLike[str] | None) -> Any:
    """The figure with labels, written to a file unless `path` is None."""
    figure.supxlabel("time [s]", fontsize="small")
    figure.supylabel(f"{what} (dashed: limits)" if limited else what, fontsize="small")
    if path is not None:
        content = io.BytesIO()
        try:
            figure.savefig(content, format=Path(path).suffix[1:].lower() or "png", dpi=120)
        except ValueError as error:
            raise OutputError(f"{os.fspath(path)}: {error}") from None
        write_whole(path, content.getvalue(), OutputError)
    return figure


_BONE, _JOINT, _TRACE, _NEAREST, _OVERLAP = "#30475e", "#f28e2b", "#59a14f", "#1f5fa8", "#d62728"
_COLOURS = 120  # of a GIF, besides these
_CLEAR = 0.5  # opacity of bodies, behind which lines are seen


def animate(
    chain: Chain | Scene,
    t: Row,
    q: Rows,
    path: str | os.PathLike[str],
    *,
    fps: float = 20.0,
    speed: float = 1.0,
    ellipsoids: bool = False,
    trace: bool = True,
    size: tuple[int, int] = (420, 400),
    direction: tuple[float, float] = (20.0, -60.0),
) -> int:
    """Write an animation of a motion that shows joints as dots, lines between them, and the path of the tip.

    Of a scene, the parts that are initially shown are drawn, too, and the closest points of its nearest pair of convex shapes
    with a line between them, in red if they overlap.

    Positions between samples are interpolated by `integrate` with a fraction of their `difference`. For a planar robot, choose
    a direction normal to its plane: direction=(0, -90) looks along y.

    Args:
        chain: the robot, or a scene with it, as returned by `build_scene`.
        path: file to write, .gif or .mp4. An .mp4 file requires ffmpeg, on the system path or from `pip install
            imageio-ffmpeg`.
        fps: frames per second; for a GIF, a frame lasts a whole number of hundredths of a second, at least two.
        speed: playback speed relative to real time.
        ellipsoids: also draw the inertia ellipsoids of the links.
        trace: draw the path of the tip (of the drawn end of its link, without a tool frame), if there is a single one.
        size: width and height [pixels].
        direction: elevation of the viewpoint and its azimuth about z, measured from x [degrees].

    Returns:
        The number of frames.

    Raises:
        OutputError: the suffix is neither .gif nor .mp4; ffmpeg is missing or fails; times and positions do not match or are
            not finite; `fps`, `speed` or `size` is invalid; or the file cannot be written, in which case no file is written.

    Cost: about 50 ms per frame.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise OutputError(f"{target}: the suffix of a film must be .gif or .mp4")
    encoder = _ffmpeg() if kind == ".mp4" else ""
    check_output_folder(target.absolute().parent, (target.name,))
    if not (0 < fps < np.inf and 0 < speed < np.inf):
        raise OutputError(f"fps={fps:g} and speed={speed:g} must both be positive and finite")
    if min(size) < 16:
        raise OutputError(f"a film of {size[0]} x {size[1]} pixels is too small; at least 16 x 16 are needed")
    if kind == ".gif":
        fps = 1000 / _gif_delay(fps)
    scene = chain if isinstance(chain, Scene) else build_scene(chain)
    drawn = lambda part: (scene is chain and part.shown) or (ellipsoids and part.group == "inertia")
    parts = tuple(filter(drawn, scene.parts))
    times, rows = _samples(scene.chain, t, q)
    if len(times) < 2:
        raise OutputError(f"a film needs at least two samples, but this motion has {len(times)}")
    if not (np.isfinite(times).all() and np.isfinite(rows).all() and (np.diff(times) > 0).all()):
        raise OutputError("times and positions must be finite, and times must increase")
    count = max(2, round((times[-1] - times[0]) / speed * fps) + 1)
    moments = np.minimum(times[0] + np.arange(count) * speed / fps, times[-1])
    shown = dataclasses.replace(scene, parts=parts)
    pictures = _pictures(shown, moments, positions_at(scene.chain, times, rows, moments), trace, size, direction)
    write_whole(target, _gif(pictures, fps) if kind == ".gif" else _mp4(pictures, fps, size, encoder), OutputError)
    return count


def _pictures(
    scene: Scene,
    times: Float[np.ndarray, " M"],
    q: Float[np.ndarray, "M nq"],
    trace: bool,
    size: tuple[int, int],
    direction: tuple[float, float],
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Frames of a film of all parts of a scene."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    poses, nearest, chain = scene.poses(q), scene.nearest(q), scene.chain
    lines = line_ends(poses, scene.joints)
    parts, canvas, axes = _stage(scene.parts, poses, lines, size, direction)
    clock = axes.text2D(0.03, 0.97, "", transform=axes.transAxes, fontsize=9, va="top")
    line = lambda **style: axes.plot([], [], [], **style)[0]
    bones: list[Any] = [
        line(color=_BONE, linewidth=1.5 if parts else 3, solid_capstyle="round", zorder=3) for _ in lines[0]
    ]
    dots = line(marker="o", linestyle="", color=_JOINT, markersize=3 if parts else 5, zorder=4)
    path = line(color=_TRACE, linewidth=1.2, zorder=2)
    gap = line(marker="o", markersize=4, linewidth=2, zorder=5)
    trace = trace and chain.topology.tip_name is not None
    bodies = None
    for k, (here, pose) in enumerate(zip(lines, poses, strict=True)):
        for bone, (a, b) in zip(bones, here, strict=True):
            bone.set_data_3d(*np.stack([a, b], axis=1))
        dots.set_data_3d(*here[: chain.n, 1].T)
        if trace:
            path.set_data_3d(*lines[: k + 1, -1, 1].T)
        if bodies is not None:
            bodies.remove()
        if parts:
            triangles, colours = _triangles(parts, pose)
            bodies = axes.add_collection3d(
                Poly3DCollection(triangles, facecolors=colours, shade=True, linewidth=0, zorder=1)
            )
        words = f"{times[k] - times[0]:.2f} s"
        if nearest is not None:
            ends, distance = nearest[0][k], nearest[1][k]
            gap.set_data_3d(*ends.T)
            gap.set_color(_OVERLAP if distance < 0 else _NEAREST)
            words += f"\n{1000 * distance:.0f} mm"
        clock.set_text(words)
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _stage(
    parts: Sequence[Part],
    poses: Float[np.ndarray, "M m 4 4"],
    lines: Float[np.ndarray, "M k 2 3"],
    size: tuple[int, int],
    direction: tuple[float, float],
) -> tuple[list[Part], Any, Any]:
    """The parts, with planes that fill the picture, and the canvas and axes, which contain the robot in all frames."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    dpi = 100
    width, height = ((x + 0.01) / dpi for x in size)  # matplotlib truncates to whole pixels
    figure = Figure(figsize=(width, height), dpi=dpi)
    canvas = FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0.0, 0.0, 1.0, 1.0), projection="3d", computed_zorder=not parts)
    axes.view_init(*direction)
    some = poses[:: max(1, len(poses) // 20)]
    reach = [lines.reshape(-1, 3)]
    reach += [
        placed((part.vertices[::4], part.faces), pose[part.link])[0]
        for part in parts
        if not part.is_plane
        for pose in some
    ]
    low, high = (f(np.concatenate(reach), axis=0) for f in (np.min, np.max))
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2 * 1.05, 1e-3)
    axes.set(**{f"{x}lim": (m - half, m + half) for x, m in zip("xyz", middle, strict=True)})
    axes.set_box_aspect((1, 1, 1), zoom=1.0)
    axes.tick_params(labelsize=7, pad=-2)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.pane.set_facecolor((0.97, 0.97, 0.98, 1.0))
        axis.set_major_locator(MaxNLocator(4))
    return [_filling(part, poses[0], middle, half) if part.is_plane else part for part in parts], canvas, axes


def _filling(part: Part, pose: Float[np.ndarray, "m 4 4"], middle: Float[np.ndarray, "3"], half: float) -> Part:
    """A plane as the square of the picture's size that is nearest to its middle."""
    base = pose[part.link]
    centre, first = part.vertices.mean(axis=0), part.vertices[:2]
    along = (first[1] - first[0]) / np.linalg.norm(first[1] - first[0])
    across = first.mean(axis=0) - centre
    across /= np.linalg.norm(across)
    away = base[:3, :3].T @ (middle - base[:3, 3]) - centre
    centre = centre + (away @ along) * along + (away @ across) * across
    corners = [centre + half * (u * along + v * across) for u, v in ((-1, 1), (1, 1), (1, -1), (-1, -1))]
    return dataclasses.replace(part, vertices=np.stack(corners))


def _triangles(
    parts: Sequence[Part], pose: Float[np.ndarray, "m 4 4"]
) -> tuple[Float[np.ndarray, "F 3 3"], Float[np.ndarray, "F 4"]]:
    """Corners in the world and colours of all triangles."""
    placements = [placed((part.vertices, part.faces), pose[part.link]) for part in parts]
    colours = [
        np.broadcast_to([*part.colour[:3], min(part.colour[3], 0.2 if part.is_plane else _CLEAR)], (len(part.faces), 4))
        for part in parts
    ]
    return np.concatenate([corners[faces] for corners, faces in placements]), np.concatenate(colours)


def _gif(pictures: Iterator[UInt8[np.ndarray, "height width 3"]], fps: float) -> bytes:
    """Encode frames as a GIF, with one common palette so that colours do not flicker."""
    from PIL import Image, ImageColor

    frames = [Image.fromarray(picture) for picture in pictures]
    sample = frames[:: max(1, len(frames) // 6)]
    sheet = Image.new("RGB", (sample[0].width, sample[0].height * len(sample)))
    for k, frame in enumerate(sample):
        sheet.paste(frame, (0, k * frame.height))
    palette = sheet.quantize(_COLOURS, dither=Image.Dither.NONE)
    own = [
        x for colour in (_BONE, _JOINT, _TRACE, _NEAREST, _OVERLAP) for x in ImageColor.getrgb(colour)
    ]  # also if rare
    palette.putpalette([*(palette.getpalette() or [])[: 3 * _COLOURS], *own])
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    content = io.BytesIO()
    shown = _gif_delay(fps)
    first.save(content, "GIF", save_all=True, append_images=rest, duration=shown, loop=0, optimize=True)
    return content.getvalue()


def _gif_delay(fps: float) -> int:
    """Display time of each GIF frame [ms], at least 20, because browsers display shorter frames for 100 ms."""
    return max(20, round(100 / fps) * 10)


def _mp4(
    pictures: Iterator[UInt8[np.ndarray, "height width 3"]], fps: float, size: tuple[int, int], encoder: str
) -> bytes:
    """Encode frames as MP4. They are passed to ffmpeg one by one, so that memory use does not grow with the film's length."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as complaints:
        draft = os.path.join(folder, "film.mp4")
        raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", f"{fps:g}", "-i", "-"]
        even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white"]  # most players support only even sizes
        command = [encoder, "-loglevel", "error", "-y", *raw, *even, "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
        try:
            with subprocess.Popen([*command, draft], stdin=subprocess.PIPE, stderr=complaints) as process:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # ffmpeg stopped; its error message is reported below
                    for picture in pictures:
                        process.stdin.write(picture.tobytes())
        except OSError as error:
            raise OutputError(f"{encoder}: ffmpeg cannot be run: {error.strerror}") from None
        if process.returncode or not os.path.exists(draft):
            complaints.seek(0)
            reason = complaints.read().decode(errors="replace").strip() or f"exit status {process.returncode}"
            raise OutputError(f"ffmpeg ({encoder}) could not write the film: {reason}")
        return Path(draft).read_bytes()


def _ffmpeg() -> str:
    """Path of ffmpeg, the program that writes MP4 files."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        fault = "an .mp4 file needs ffmpeg, which is missing"
        raise OutputError(fault, "install ffmpeg, or pip install imageio-ffmpeg, or write a .gif") from None
