"""Read and write robots, logs and motions."""

from ._geometry import Geometry as Geometry
from ._load import load as load, loads as loads, read_geometry as read_geometry
from ._logs.chunks import read_log_chunks as read_log_chunks
from ._logs.log import Log as Log, check_log as check_log, read_log as read_log
from ._logs.motion import Motion as Motion, read_motion as read_motion
from ._mjcf.geometry import geometry_from_mujoco as geometry_from_mujoco
from ._mjcf.read import from_mujoco as from_mujoco
from ._mjcf.write import to_mjcf as to_mjcf, write_mjcf as write_mjcf
from ._model_file import load_model as load_model, model_about as model_about, save_model as save_model
from ._shapes import with_inertias_of_shapes as with_inertias_of_shapes
from ._urdf.update import update_urdf as update_urdf
from ._urdf.write import save_urdf as save_urdf, to_urdf as to_urdf
