"""Which names `jaxdyn` and its namespaces show to users: in `dir`, in `help` and in `from .. import *`."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def publish(package: str, *modules: str) -> None:
    """Let a namespace show what its `__init__` imports, and of its own modules only those given.

    Otherwise, `dir` also lists every module of the package, and `help` lists none of the imported functions and classes.
    """
    module = sys.modules[package]
    shown = lambda name, x: not name.startswith("_") and (name in modules or not isinstance(x, ModuleType))
    names = sorted(name for name, x in vars(module).items() if shown(name, x))
    vars(module).update(__all__=names, __dir__=lambda: names)


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports the module of a name of `package._public` on first use.

    Importing all modules takes longer than importing JAX, and `jaxdyn --help` requires neither.
    """

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(origins())
        if name.startswith("_") or name not in origins():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        origin = origins()[name]
        module = importlib.import_module(origin, package)
        found = module if origin == f".{name}" else getattr(module, name)
        return vars(sys.modules[package]).setdefault(name, found)

    @functools.cache
    def origins() -> dict[str, str]:
        """Module that defines each public name, found by parsing the imports in `_public` without executing them."""
        import ast

        full = f"{package}._public"
        source = importlib.util.find_spec(full).loader.get_source(full)  # type: ignore[union-attr]
        if source is None:  # a frozen program has no source
            return {key: "._public" for key in vars(importlib.import_module(full)) if not key.startswith("_")}
        imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
        return {alias.name: f".{node.module or alias.name}" for node in imports for alias in node.names}

    return find, lambda: sorted(origins())
