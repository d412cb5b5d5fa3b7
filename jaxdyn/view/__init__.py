"""Visualisation: plots, animations, and an interactive page in the browser."""

from ._film import animate as animate
from ._pictures import plot_positions as plot_positions, plot_torques as plot_torques
from ._scene import Part as Part, Scene as Scene, build_scene as build_scene
from ._server import Viewer as Viewer, open_viewer as open_viewer
