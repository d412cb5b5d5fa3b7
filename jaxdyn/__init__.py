"""jaxdyn: differentiable rigid-body dynamics of robots on JAX, and identification of their inertial parameters.

Models, kinematics, dynamics, simulation, files and `identify` are exported here, everything else by the namespaces `control`,
`deployment`, `dynamics`, `identification`, `io`, `mechanisms`, `model`, `parallel`, `report`, `simulation`, `spatial`,
`trajectory`, `view`, and `symbolic`, which must be imported explicitly.

"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import everything on first use of a name: importing JAX takes seconds, and `jaxdyn --help` does not need it."""
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = vars(importlib.import_module(f"{__name__}._public"))
        names = {key: value for key, value in public.items() if not key.startswith("_")}
        globals().update(names)
        if name != "__all__" and name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return names.get(name, sorted(names))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
