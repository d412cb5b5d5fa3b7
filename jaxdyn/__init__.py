"""jaxdyn: differentiable rigid-body dynamics of robots on JAX, and identification of their inertial parameters.

The names for models, kinematics, dynamics, simulation and files are available as attributes of `jaxdyn`, as is `identify`.
Everything else is in the namespaces `control`, `deployment`, `dynamics`, `geometry`, `identification`, `io`, `mechanisms`,
`model`, `parallel`, `report`, `robots`, `simulation`, `spatial`, `textbook`, `trajectory`, `view` and `symbolic`. Only
`symbolic` must be imported explicitly.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from ._public import *  # noqa: F403
else:
    from ._exports import lazy as _lazy

    __getattr__, __dir__ = _lazy(__name__)
