"""Read and write robots, logs and motions."""

from .._exports import publish as _publish
from .loading import load as load, loads as loads, read_geometry as read_geometry
from .logs import (
    Log as Log,
    Motion as Motion,
    check_log as check_log,
    read_log as read_log,
    read_log_chunks as read_log_chunks,
    read_motion as read_motion,
)
from .mjcf import from_mujoco as from_mujoco
from .mjcf_write import to_mjcf as to_mjcf, write_mjcf as write_mjcf
from .model_file import (
    load_model as load_model,
    model_about as model_about,
    save_model as save_model,
)
from .shapes import (
    Geometry as Geometry,
    geometry_from_mujoco as geometry_from_mujoco,
    with_inertias_of_shapes as with_inertias_of_shapes,
)
from .urdf_write import save_urdf as save_urdf, to_urdf as to_urdf, update_urdf as update_urdf

_publish(__name__)
