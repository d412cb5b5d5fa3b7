"""Visualisation: plots, animations, and an interactive page in the browser."""

from .._exports import publish as _publish
from .film import animate as animate, plot_positions as plot_positions, plot_torques as plot_torques
from .scene import Scene as Scene, build_scene as build_scene
from .server import Viewer as Viewer, open_viewer as open_viewer

_publish(__name__)
