"""A scene in the browser, by viser: an extra. Sliders move the joints; a motion is played, with its torques beside it."""

import contextlib
import threading
import time
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..io.motion import Motion, coordinate_names
from ..model.configuration import neutral_configuration
from .limits import effort_limits, slider_ranges
from .scene import Scene, line_ends, positions_at

_RATE = 30.0  # pictures a second
_POINTS = 1200  # of a curve, at most
_GROUPS = {"shape": "shapes", "inertia": "inertia ellipsoids"}
_BONE = (48, 71, 94)


class Viewer:
    """A web page with a robot, served until `stop`. Made by `open_viewer`."""

    def __init__(self, scene: Scene, motion: Motion | None, server: Any):
        self._scene, self._motion, self._server = scene, motion, server
        self._lock, self._stopped = threading.RLock(), threading.Event()
        self._q = np.asarray(neutral_configuration(scene.chain), float) if motion is None else motion.q[0]
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
        """Where the page is."""
        host = self._server.get_host()
        return f"http://{'localhost' if host in ('0.0.0.0', '::') else host}:{self._server.get_port()}"

    def set_positions(self, q: Float[np.ndarray, " nq"]) -> None:
        """Show the robot in a configuration."""
        with self._lock:
            from scipy.spatial.transform import Rotation

            self._q = np.asarray(q, float)
            poses = self._scene.poses(self._q)
            turns = Rotation.from_matrix(poses[:, :3, :3]).as_quat(scalar_first=True)
            with self._server.atomic():
                for frame, pose, turn in zip(self._frames, poses, turns, strict=True):
                    frame.position, frame.wxyz = pose[:3, 3], turn
                self._lines.points = line_ends(poses, self._scene.joints).astype(np.float32)
                for slider, entry in self._sliders:
                    slider.value = float(np.clip(self._q[entry], slider.min, slider.max))

    def set_time(self, t: float) -> None:
        """Show the motion at a time [s]."""
        if self._motion is None:
            raise ModelError("this viewer was opened without a motion")
        with self._lock:
            self._time = float(np.clip(t, self._motion.t[0], self._motion.t[-1]))
            self.set_positions(
                positions_at(self._scene.chain, self._motion.t, self._motion.q, np.array([self._time]))[0]
            )
            self._clock.value = self._time

    def wait(self, seconds: float | None = None) -> None:
        """Stay until the viewer is stopped, or so long."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Close the page."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        with contextlib.redirect_stdout(None):
            self._server.stop()

    def _draw(self) -> None:
        scene, chain = self._server.scene, self._scene.chain
        scene.set_up_direction("+z")
        points = self._scene.poses(self._q)[:, :3, 3]
        parts = [part.vertices for part in self._scene.parts]
        reach = max(0.5, float(np.ptp(points, axis=0).max()), *(float(np.ptp(v, axis=0).max()) for v in parts))
        scene.add_grid("/grid", width=4 * reach, height=4 * reach, cell_size=reach / 5, section_size=reach)
        names = [*chain.link_names, chain.topology.base_name]
        self._frames = [scene.add_frame(f"/robot/{k}", show_axes=False) for k in range(len(names))]
        self._parts: dict[str, list] = {}
        for part in self._scene.parts:
            handle = scene.add_mesh_simple(
                f"/robot/{part.link % len(names)}/{part.name}",
                part.vertices.astype(np.float32),
                part.faces.astype(np.uint32),
                color=tuple(round(255 * c) for c in part.colour[:3]),
                opacity=None if part.colour[3] >= 1 else part.colour[3],
                side="double",
                visible=part.shown,
            )
            self._parts.setdefault(part.group, []).append((handle, part.shown))
        self._lines = scene.add_line_segments(
            "/lines",
            points=np.zeros((len(self._scene.joints), 2, 3), np.float32),
            colors=_BONE,
            thickness=4.0,
            thickness_units="screen",
        )
        self._lines.visible = not any(part.group == "shape" for part in self._scene.parts)
        eye = np.array([1.6, -2.0, 1.4]) * reach + points.mean(axis=0)
        self._server.initial_camera.position = tuple(eye)
        self._server.initial_camera.look_at = tuple(points.mean(axis=0))

    def _add_controls(self) -> None:
        gui = self._server.gui
        if self._motion is not None:
            self._add_playback()
        with gui.add_folder("Show"):
            for group, handles in self._parts.items():
                box = gui.add_checkbox(_GROUPS[group], all(shown for _, shown in handles))
                box.on_update(lambda event, group=group: self._show(group, event.target.value))
            lines = gui.add_checkbox("lines from joint to joint", self._lines.visible)
            lines.on_update(lambda event: setattr(self._lines, "visible", event.target.value))
        self._sliders: list[tuple[Any, int]] = []
        with gui.add_folder("Joints"):
            for name, entry, low, high in slider_ranges(self._scene.chain):
                start = float(np.clip(self._q[entry], low, high))
                slider = gui.add_slider(name, min=low, max=high, step=(high - low) / 1000, initial_value=start)
                slider.on_update(lambda event, entry=entry: self._moved(event, entry))
                self._sliders.append((slider, entry))
        if self._motion is not None and self._motion.tau is not None:
            self._add_torques()
        for note in self._scene.notes:
            gui.add_markdown(f"*{note}*")

    def _add_playback(self) -> None:
        gui, motion = self._server.gui, self._motion
        assert motion is not None
        first, last = float(motion.t[0]), float(motion.t[-1])
        with gui.add_folder("Motion"):
            self._clock = gui.add_slider(
                "time [s]", min=first, max=last, step=(last - first) / 2000, initial_value=first
            )
            self._speed = gui.add_slider("speed", min=0.1, max=4.0, step=0.1, initial_value=1.0)
            play = gui.add_checkbox("play", True)
            self._loop = gui.add_checkbox("again and again", True)
        self._clock.on_update(lambda event: None if event.client is None else self.set_time(event.target.value))
        play.on_update(lambda event: setattr(self, "_playing", event.target.value))

    def _add_torques(self) -> None:
        from viser import uplot  # pyright: ignore[reportMissingImports]

        gui, motion = self._server.gui, self._motion
        assert motion is not None and motion.tau is not None
        names = coordinate_names(self._scene.chain)
        limits = effort_limits(self._scene.chain)
        stride = -(-len(motion) // _POINTS)
        t, tau = motion.t[::stride], motion.tau[::stride]

        def curves(j: int) -> tuple:
            bound = np.full_like(t, limits[j])
            return (t, tau[:, j], bound, -bound) if np.isfinite(limits[j]) else (t, tau[:, j])

        def series(j: int) -> tuple:
            own = (
                uplot.Series(label="time [s]"),
                uplot.Series(label=f"torque of {names[j]}", stroke="#1f5fa8", width=2),
            )
            limit = tuple(uplot.Series(label=label, stroke="#b03030", width=1) for label in ("limit", "-limit"))
            return (*own, *limit) if np.isfinite(limits[j]) else own

        with gui.add_folder("Torques"):
            choice = gui.add_dropdown("joint", options=names, initial_value=names[0])
            plot = gui.add_uplot(data=curves(0), series=series(0), scales={"x": uplot.Scale(time=False)}, aspect=1.4)

        def chosen(event) -> None:
            j = names.index(event.target.value)
            with self._server.atomic():
                plot.series, plot.data = series(j), curves(j)

        choice.on_update(chosen)

    def _show(self, group: str, visible: bool) -> None:
        for handle, _ in self._parts[group]:
            handle.visible = visible

    def _moved(self, event: Any, entry: int) -> None:
        if event.client is None:  # moved by the motion, not by hand
            return
        with self._lock:
            q = self._q.copy()
            q[entry] = event.target.value
            self.set_positions(q)

    def _play(self) -> None:
        before = time.monotonic()
        while not self._stopped.wait(1 / _RATE):
            now = time.monotonic()
            passed, before = now - before, now
            if self._motion is None or not self._playing:
                continue
            ahead = self._time + passed * self._speed.value
            if ahead > self._motion.t[-1]:
                ahead = float(self._motion.t[0]) if self._loop.value else float(self._motion.t[-1])
            if ahead != self._time:
                self.set_time(ahead)


def open_viewer(scene: Scene, motion: Motion | None = None, *, host: str = "127.0.0.1", port: int = 8080) -> Viewer:
    """Serve a scene as a web page: a robot to turn about, its joints on sliders, and a motion to play with its torques.

    The page is served from threads; the call returns at once. Ellipsoids of the links' inertia and the lines from joint to
    joint can be shown and hidden. Joints without limits go from -pi to pi, or -1 m to 1 m; what has a quaternion has no slider.

    Args:
        scene: from `build_scene`.
        motion: from `read_motion`, or a `Motion` of arrays.
        host: 127.0.0.1 serves this machine alone, 0.0.0.0 all that can reach it.
        port: the next that is free is taken where this one is not.

    Raises:
        ModelError: viser is not installed (naming the extra), or the motion is another robot's.
    """
    try:
        import viser  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ModelError(
            f'the viewer needs viser, which is not installed: pip install "jaxdyn[view]" ({error})'
        ) from None
    if motion is not None and motion.q.shape[1:] != (scene.chain.nq,):
        raise ModelError(f"the motion has {motion.q.shape[1:]} positions, but this robot has {scene.chain.nq}")
    with contextlib.redirect_stdout(None):  # a library prints nothing
        server = viser.ViserServer(host=host, port=port, label="jaxdyn", verbose=False)
    try:
        return Viewer(scene, motion, server)
    except BaseException:
        server.stop()
        raise
