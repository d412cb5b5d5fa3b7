"""Scenes on a web page, with joint sliders and playback of motions with their torques; requires the package viser."""

import contextlib
import socket
import threading
import time
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..io.logs import Motion
from ..model.chain import coordinate_names
from ..model.configuration import positions_at
from .scene import (
    FIELD_OF_VIEW,
    Scene,
    creased,
    effort_limits,
    frame_scene,
    line_ends,
    slider_ranges,
    start_configuration,
)

_RATE = 30.0  # frames per second
_LONGEST = 0.25  # largest advance of the motion's time from frame to frame, at speed 1 [s]
_POINTS = 1200  # maximum number of points of a curve
_GROUPS = {
    "shape": "shapes",
    "collision": "convex shapes",
    "surroundings": "surroundings",
    "inertia": "inertia ellipsoids",
}
_NEAREST, _OVERLAP = (31, 95, 168), (214, 39, 40)  # line between the closest points
_BONE = (48, 71, 94)
_GHOST, _OPACITY = (224, 122, 38), 0.35  # colour and opacity of the robot that shows the second motion
_SKY, _CELL, _SECTION = (233, 237, 241), (208, 213, 218), (172, 178, 186)


class Viewer:
    """A web page that shows a robot, served until `stop` is called; created by `open_viewer`."""

    def __init__(self, scene: Scene, motion: Motion | None, server: Any, ghost: Motion | None = None):
        self._scene, self._motion, self._ghost, self._server = scene, motion, ghost, server
        self._lock, self._stopped = threading.RLock(), threading.Event()
        self._q = start_configuration(scene.chain) if motion is None else motion.q[0]
        self._time = 0.0 if motion is None else float(motion.t[0])
        self._playing = motion is not None
        with server.atomic():
            self._draw()
            self._add_controls()
            self.set_positions(self._q)
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        host = self._server.get_host()
        return f"http://{'localhost' if host in ('0.0.0.0', '::') else host}:{self._server.get_port()}"

    def set_positions(self, q: Float[np.ndarray, " nq"]) -> None:
        """Show the robot in a configuration q [rad or m]."""
        with self._lock:
            self._q = np.asarray(q, float)
            nearest = self._scene.nearest(self._q[None])
            with self._server.atomic():
                self._place(self._frames, self._lines, self._q)
                if nearest is not None:
                    self._gap.points = nearest[0].astype(np.float32)
                    self._gap.colors = np.array(_OVERLAP if nearest[1][0] < 0 else _NEAREST, np.uint8)
                    self._distance.content = f"smallest distance: {1000 * nearest[1][0]:.0f} mm"
                for slider, entry in self._sliders:
                    slider.value = round(float(np.clip(self._q[entry], slider.min, slider.max)), 4)

    def set_time(self, t: float) -> None:
        """Show the motion at a given time [s], clipped to its duration; ModelError if the viewer has no motion."""
        if self._motion is None:
            raise ModelError("this viewer was opened without a motion")
        with self._lock:
            self._time = float(np.clip(t, self._motion.t[0], self._motion.t[-1]))
            now = lambda motion: positions_at(self._scene.chain, motion.t, motion.q, np.array([self._time]))[0]
            self.set_positions(now(self._motion))
            if self._ghost is not None:
                with self._server.atomic():
                    self._place(self._ghost_frames, self._ghost_lines, now(self._ghost))
            self._clock.value = float(np.clip(self._time, self._clock.min, self._clock.max))

    def wait(self, seconds: float | None = None) -> None:
        """Block until the viewer stops or a time limit [s] is reached."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Stop serving the page."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        with contextlib.redirect_stdout(None):
            self._server.stop()

    def _place(self, frames: list, lines: Any, q: Float[np.ndarray, " nq"]) -> None:
        """Move a robot on the page into a configuration."""
        from scipy.spatial.transform import Rotation

        poses = self._scene.poses(q)
        turns = Rotation.from_matrix(poses[:, :3, :3]).as_quat(scalar_first=True)
        for frame, pose, turn in zip(frames, poses, turns, strict=True):
            frame.position, frame.wxyz = pose[:3, 3], turn
        lines.points = line_ends(poses, self._scene.joints).astype(np.float32)

    def _draw(self) -> None:
        from scipy.spatial.transform import Rotation

        scene = self._server.scene
        view = frame_scene(self._scene, self._q[None] if self._motion is None else self._motion.q)
        scene.set_up_direction(tuple(view.up))
        scene.set_background_image(np.full((2, 2, 3), _SKY, np.uint8))
        half = 5 * np.ceil(2 * view.radius / view.cell / 5) * view.cell
        scene.add_grid(
            "/ground",
            width=2 * half,
            height=2 * half,
            cell_size=view.cell,
            section_size=5 * view.cell,
            cell_color=_CELL,
            section_color=_SECTION,
            wxyz=Rotation.from_matrix(view.turn).as_quat(scalar_first=True),
            position=view.ground,
        )
        camera = self._server.initial_camera
        camera.position, camera.look_at, camera.up = tuple(view.eye), tuple(view.target), tuple(view.up)
        camera.fov = FIELD_OF_VIEW
        self._parts: dict[str, list] = {}
        self._frames, self._lines = self._draw_robot("robot", _BONE)
        if self._scene.shapes is not None:
            points = np.zeros((1, 2, 3), np.float32)
            line = {"thickness": 6.0, "thickness_units": "screen"}
            self._gap = scene.add_line_segments("/closest points", points=points, colors=_NEAREST, **line)
        if self._ghost is not None:
            self._ghost_frames, self._ghost_lines = self._draw_robot("ghost", _GHOST, _GHOST)
            self._place(self._ghost_frames, self._ghost_lines, self._ghost.q[0])

    def _draw_robot(self, root: str, bone: tuple, colour: tuple | None = None) -> tuple[list, Any]:
        """Draw a robot, transparent if `colour` is given; return the frames of its links and the lines between its joints."""
        scene, count = self._server.scene, len(self._scene.chain.link_names) + 1
        frames = [scene.add_frame(f"/{root}/{k}", show_axes=False) for k in range(count)]
        for part in self._scene.parts:
            if colour is not None and part.link < 0:
                continue  # both robots have the same base
            vertices, faces = creased((part.vertices, part.faces))
            opacity = part.colour[3] if colour is None else _OPACITY * part.colour[3]
            handle = scene.add_mesh_simple(
                f"/{root}/{part.link % count}/{part.name}",
                vertices.astype(np.float32),
                faces.astype(np.uint32),
                color=colour or tuple(round(255 * c) for c in part.colour[:3]),
                opacity=None if opacity >= 1 else opacity,
                side="double",
                visible=part.shown,
            )
            self._parts.setdefault(part.group, []).append((handle, part.shown))
        lines = scene.add_line_segments(
            f"/{root} lines",
            points=np.zeros((len(self._scene.joints), 2, 3), np.float32),
            colors=bone,
            thickness=4.0,
            thickness_units="screen",
        )
        lines.visible = not any(part.group in ("shape", "collision") for part in self._scene.parts)
        return frames, lines

    def _add_controls(self) -> None:
        gui = self._server.gui
        gui.configure_theme(show_logo=False, show_share_button=False)  # the share button would upload the page
        gui.main_panel.dock_right()
        if self._motion is not None:
            self._add_playback()
            if self._motion.tau is not None:
                self._add_torques()
        with gui.add_folder("Show"):
            for group, handles in self._parts.items():
                box = gui.add_checkbox(_GROUPS[group], all(shown for _, shown in handles))
                parts = [handle for handle, _ in handles]
                box.on_update(lambda event, parts=parts: self._show(parts, event.target.value))
            lines = gui.add_checkbox("lines from joint to joint", self._lines.visible)
            all_lines = [self._lines, *([] if self._ghost is None else [self._ghost_lines])]
            lines.on_update(lambda event: self._show(all_lines, event.target.value))
            if self._scene.shapes is not None:
                gap = gui.add_checkbox("closest points", True)
                gap.on_update(lambda event: self._show([self._gap], event.target.value))
                self._distance = gui.add_markdown("")
        self._sliders: list[tuple[Any, int]] = []
        with gui.add_folder("Joints [rad, m]"):
            for name, entry, low, high in slider_ranges(self._scene.chain):
                digits = 3 if high - low > 0.5 else 4
                low, high = round(low, digits), round(high, digits)
                start = round(float(np.clip(self._q[entry], low, high)), digits)
                slider = gui.add_slider(name, min=low, max=high, step=10.0**-digits, initial_value=start)
                slider.on_update(lambda event, entry=entry: self._moved(event, entry))
                self._sliders.append((slider, entry))
        for note in self._scene.notes:
            gui.add_markdown(f"*{note}*")

    def _add_playback(self) -> None:
        gui, motion = self._server.gui, self._motion
        assert motion is not None
        first, last = float(motion.t[0]), float(motion.t[-1])
        with gui.add_folder("Motion"):
            digits = max(0, 3 - int(np.floor(np.log10(last - first))))
            first, last = round(first, digits), round(last, digits)
            step = 10.0**-digits
            self._clock = gui.add_slider("time [s]", min=first, max=last, step=step, initial_value=first)
            self._speed = gui.add_slider("speed", min=0.1, max=4.0, step=0.1, initial_value=1.0)
            self._plays = gui.add_checkbox("play", True)
            self._loop = gui.add_checkbox("loop", True)
        self._clock.on_update(lambda event: None if event.client is None else self.set_time(event.target.value))
        self._plays.on_update(lambda event: self._set_playing(event.target.value))

    def _add_torques(self) -> None:
        from viser import uplot  # pyright: ignore[reportMissingImports]

        gui, motion = self._server.gui, self._motion
        assert motion is not None and motion.tau is not None
        names = coordinate_names(self._scene.chain)
        limits = effort_limits(self._scene.chain)
        stride = -(-len(motion) // _POINTS)
        t, tau = motion.t[::stride], motion.tau[::stride]
        ghost = None if self._ghost is None else self._ghost.tau

        def shown(j: int) -> tuple[tuple, tuple]:
            """The curves of a joint, and how they are drawn."""
            curves = [t, tau[:, j]]
            series = [
                uplot.Series(label="time [s]"),
                uplot.Series(label=f"torque of {names[j]}", stroke="#1f5fa8", width=2),
            ]
            if self._ghost is not None and ghost is not None:
                curves.append(np.interp(t, self._ghost.t, ghost[:, j], np.nan, np.nan))
                series.append(uplot.Series(label="of the second motion", stroke="#e07a26", width=2))
            if np.isfinite(limits[j]):
                curves += [np.full_like(t, side * limits[j]) for side in (1, -1)]
                series += [uplot.Series(label=label, stroke="#b03030", width=1) for label in ("limit", "-limit")]
            return tuple(curves), tuple(series)

        largest = np.abs(np.nan_to_num(motion.tau)).max(axis=0)
        shares = largest / limits if (np.isfinite(limits) & (limits > 0)).all() else largest
        first = int(shares.argmax())  # the joint whose torque is closest to its limit, if all limits are known
        with gui.add_folder("Torques"):
            choice = gui.add_dropdown("joint", options=names, initial_value=names[first])
            data, series = shown(first)
            plot = gui.add_uplot(data=data, series=series, scales={"x": uplot.Scale(time=False)}, aspect=1.4)

        def chosen(event) -> None:
            with self._server.atomic():
                plot.data, plot.series = shown(names.index(event.target.value))

        choice.on_update(chosen)

    def _show(self, handles: list, visible: bool) -> None:
        for handle in handles:
            handle.visible = visible

    def _moved(self, event: Any, entry: int) -> None:
        if event.client is None:  # set by the motion, not by the user
            return
        with self._lock:
            if self._motion is not None:
                self._plays.value = self._playing = False  # otherwise the motion would move the joint back
            q = self._q.copy()
            q[entry] = event.target.value
            self.set_positions(q)

    def _set_playing(self, playing: bool) -> None:
        with self._lock:
            assert self._motion is not None
            if playing and not self._playing and self._time >= self._motion.t[-1]:
                self._time = float(self._motion.t[0])
            self._playing = playing

    def _play(self) -> None:
        before = time.monotonic()
        while not self._stopped.wait(1 / _RATE):
            now = time.monotonic()
            passed, before = min(now - before, _LONGEST), now
            if self._motion is None or not self._playing:
                continue
            ahead = self._time + passed * self._speed.value
            if ahead > self._motion.t[-1]:
                ahead = float(self._motion.t[0]) if self._loop.value else float(self._motion.t[-1])
                self._plays.value = self._playing = self._loop.value
            self.set_time(ahead)


def open_viewer(
    scene: Scene,
    motion: Motion | None = None,
    *,
    ghost: Motion | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
) -> Viewer:
    """Serve a scene as a web page: a robot with joint sliders, and playback of a motion with its torques.

    The page is served from background threads, so the call returns immediately. Sliders of joints without limits range from
    -pi to pi, or from -1 m to 1 m; quaternion joints have no sliders.

    Args:
        scene: robot to show, as returned by `build_scene`.
        motion: motion to play, as returned by `read_motion`, or a `Motion` constructed from arrays.
        ghost: a second motion of the same robot, shown simultaneously by a transparent robot, for example to compare a
            simulated motion with a measured one.
        host: 127.0.0.1 for this machine only, or 0.0.0.0 for every machine that can reach it.
        port: port of the page; if it is in use, the next free port.

    Raises:
        ModelError: viser is not installed, a motion belongs to another robot, there is a ghost but no motion, or the host
            is not an address of this machine.
    """
    try:
        import viser  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        fault = f'the viewer needs viser, which is not installed: pip install "jaxdyn[view]" ({error})'
        raise ModelError(fault) from None
    for name, given in (("motion", motion), ("ghost", ghost)):
        if given is not None and given.q.shape[1:] != (scene.chain.nq,):
            shape = given.q.shape[1:]
            raise ModelError(
                f"the {name} has positions of shape {shape}, but this robot has {scene.chain.nq} positions"
            )
    if ghost is not None and motion is None:
        raise ModelError("a ghost can be shown only together with a motion; pass motion=")
    _check_host(host)
    with contextlib.redirect_stdout(None):  # a library call must not print, as viser does by default
        server = viser.ViserServer(host=host, port=port, label="jaxdyn", verbose=False)
    try:
        return Viewer(scene, motion, server, ghost)
    except BaseException:
        server.stop()
        raise


def _check_host(host: str) -> None:
    """Raise ModelError if no page can be served at this host; without this check, the server would try ports endlessly."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        fault = f"{host!r} is not an address of this machine: {error.strerror or error}"
        remedy = "use 127.0.0.1 for this machine only, or 0.0.0.0 for all machines that can reach it"
        raise ModelError(fault, remedy) from None
