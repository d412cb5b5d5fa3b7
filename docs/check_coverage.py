"""MkDocs hook that fails the build if a public name of jaxdyn has no docstring, or is not listed exactly once on the API pages.

Public names are those exported by `jaxdyn/_public.py` and the namespaces, all public functions and classes of exported
modules, and the public methods and properties of exported classes. Pages may also list what a module defines and its
namespace does not export, such as the class of a result, under the module: its docstrings are checked as well. Run as a
script, the file prints problems and exits with 1.
"""

import ast
import collections
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).resolve().parent
NAMESPACES = (  # in addition to jaxdyn itself
    *(
        "control",
        "deployment",
        "dynamics",
        "contact",
        "geometry",
        "identification",
        "io",
        "mechanisms",
        "model",
        "parallel",
        "report",
    ),
    *("simulation", "spatial", "trajectory", "view"),
)
EXTRAS = ("symbolic",)  # namespaces that must be imported explicitly


def exported(package: ModuleType) -> list[str]:
    """Names that a module re-exports (`from .module import name as name`), and names of its own functions and classes."""
    tree = ast.parse(Path(str(package.__file__)).read_text())
    aliases = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    own = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {alias.asname for alias in aliases if alias.asname == alias.name} | {
        x for x in own if not x.startswith("_")
    }
    return sorted(names)


def public_members(owner: ModuleType | type) -> dict[str, object]:
    """Functions and classes defined in a module, or methods and properties defined in a class, excluding fields."""
    members = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    if isinstance(owner, ModuleType):
        own = {name: value for name, value in members.items() if getattr(value, "__module__", None) == owner.__name__}
        return {name: value for name, value in own.items() if inspect.isroutine(value) or inspect.isclass(value)}
    members = {name: value for name, value in members.items() if name not in inspect.get_annotations(owner)}
    methods = {name: inspect.unwrap(getattr(value, "__func__", value)) for name, value in members.items()}
    return {name: value for name, value in methods.items() if inspect.isfunction(value) or isinstance(value, property)}


def has_docstring(value: object) -> bool:
    """True if an object has a docstring that was not generated from the fields of a dataclass."""
    text = (getattr(value, "__doc__", None) or "").strip()
    made_up = inspect.isclass(value) and text.startswith(f"{value.__name__}(")
    return bool(text) and not made_up


def inherits_docstring(owner: object, member: str) -> bool:
    """True if a method overrides a documented method of a base class."""
    bases = inspect.getmro(owner)[1:] if inspect.isclass(owner) else ()
    return any(
        base.__module__.startswith("jaxdyn") and member in vars(base) and has_docstring(vars(base)[member])
        for base in bases
    )


def of_module(name: str) -> object | None:
    """The public function or class `namespace.module.Name`, if the module defines it."""
    namespace, module, member = name.split(".")
    path = f"jaxdyn.{namespace}.{module}"
    return public_members(importlib.import_module(path)).get(member) if importlib.util.find_spec(path) else None


def problems() -> list[str]:
    """Return one line for each public name that is undocumented, and for each documented name that is not public."""
    import jaxdyn

    pages = [page.read_text() for page in sorted((DOCS / "api").glob("*.md"))]
    listings = collections.Counter(re.findall(r"^::: jaxdyn\.([\w.]+)", "\n".join(pages), re.MULTILINE))
    listed = set(listings)
    names = exported(importlib.import_module("jaxdyn._public"))  # the names that `jaxdyn` itself exports
    public = {name: getattr(jaxdyn, name) for name in names if name not in NAMESPACES}
    for namespace in (*NAMESPACES, *EXTRAS):
        package = importlib.import_module(f"jaxdyn.{namespace}")
        if not has_docstring(package):
            raise ValueError(f"jaxdyn.{namespace} has no docstring; describe its contents")
        # names that `jaxdyn` itself also exports are documented there
        public |= {f"{namespace}.{name}": getattr(package, name) for name in exported(package) if name not in public}
    public |= {name: of_module(name) for name in listed if name.count(".") == 2 and of_module(name) is not None}
    found = []
    for name, value in public.items():
        parts = {name: value}
        if isinstance(value, ModuleType) or inspect.isclass(value):
            members = public_members(value).items()
            parts |= {f"{name}.{member}": part for member, part in members if not inherits_docstring(value, member)}
        found += [f"jaxdyn.{part} has no docstring" for part, item in parts.items() if not has_docstring(item)]
        if name not in listed:
            found.append(f"jaxdyn.{name} is not on any page of docs/api")
    found += [f"docs/api lists jaxdyn.{name} {times} times" for name, times in listings.items() if times > 1]
    found += [f"docs/api lists jaxdyn.{name}, which jaxdyn does not export" for name in sorted(listed - public.keys())]
    return found


def on_config(config, **_: object):
    """Make this folder the source of pages; MkDocs' own setting rejects a folder that contains the configuration."""
    config.docs_dir = str(DOCS)
    return config


def on_pre_build(**_: object) -> None:
    """Abort the build, before MkDocs reads a page, if there are problems."""
    from mkdocs.exceptions import Abort

    found = problems()
    if found:
        raise Abort("the API documentation is incomplete:\n  " + "\n  ".join(found))


if __name__ == "__main__":
    lines = problems()
    print("\n".join(lines) or "all public names are documented")
    sys.exit(bool(lines))
