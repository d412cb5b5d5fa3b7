"""Robots, logs and motions as files and texts."""

from .geometry import Geometry as Geometry
from .load import load as load, loads as loads, read_geometry as read_geometry
from .log import Log as Log, check_log as check_log, read_log as read_log
from .log_chunks import read_log_chunks as read_log_chunks
from .mjcf import from_mujoco as from_mujoco, load_mjcf as load_mjcf, loads_mjcf as loads_mjcf
from .mjcf_geometry import geometry_from_mujoco as geometry_from_mujoco
from .mjcf_write import to_mjcf as to_mjcf, write_mjcf as write_mjcf
from .model_file import load_model as load_model, model_about as model_about, save_model as save_model
from .motion import Motion as Motion, read_motion as read_motion
from .urdf_update import update_urdf as update_urdf
from .urdf_write import save_urdf as save_urdf, to_urdf as to_urdf
