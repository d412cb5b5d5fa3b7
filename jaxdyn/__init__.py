"""jaxdyn: differentiable rigid-body dynamics of robots on JAX, and identification of their inertial parameters.

Models, kinematics, dynamics, simulation, files and `identify` are exported here. Everything else is in the namespaces
`control`, `deployment`, `dynamics`, `identification`, `io`, `mechanisms`, `model`, `parallel`, `report`, `simulation`,
`spatial`, `trajectory` and `view`, and in `symbolic`, which must be imported explicitly.

"""

import ast
import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import the module that defines a name when the name is first used.

        Importing everything takes longer than importing JAX, and `jaxdyn --help` needs neither."""
        if name == "__all__":
            return sorted(_origins())
        if name.startswith("_") or name not in _origins():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        origin = _origins()[name]
        module = importlib.import_module(origin, __name__)
        return globals().setdefault(name, module if origin == f".{name}" else getattr(module, name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *_origins()})

    @functools.cache
    def _origins() -> dict[str, str]:
        """The module that defines each public name, found by parsing (not executing) the imports in `_public`."""
        full = f"{__name__}._public"
        source = importlib.util.find_spec(full).loader.get_source(full)
        if source is None:  # a frozen program has no source
            return {key: "._public" for key in vars(importlib.import_module(full)) if not key.startswith("_")}
        imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
        return {alias.name: f".{node.module or alias.name}" for node in imports for alias in node.names}
