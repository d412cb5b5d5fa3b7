"""jaxdyn: differentiable rigid-body dynamics of robots on JAX, and identification of their inertial parameters.

The names for models, kinematics, dynamics, simulation and files are available as attributes of `jaxdyn`, as is `identify`.
Everything else is in the namespaces `control`, `deployment`, `dynamics`, `identification`, `io`, `mechanisms`, `model`,
`parallel`, `report`, `simulation`, `spatial`, `trajectory`, `view` and `symbolic`. Only `symbolic` must be imported
explicitly.
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
        """Import the module that defines a name on first use.

        Importing all modules takes longer than importing JAX, and `jaxdyn --help` requires neither.
        """
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
        """Module that defines each public name, found by parsing the imports in `_public` without executing them."""
        full = f"{__name__}._public"
        source = importlib.util.find_spec(full).loader.get_source(full)
        if source is None:  # a frozen program has no source
            return {key: "._public" for key in vars(importlib.import_module(full)) if not key.startswith("_")}
        imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
        return {alias.name: f".{node.module or alias.name}" for node in imports for alias in node.names}
