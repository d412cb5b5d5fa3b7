"""Versions of packages, including this one when used from an uninstalled checkout."""

import importlib.metadata

__version__ = "0.2.0"


def version_of(package: str = "jaxdyn") -> str:
    """The version of a package, or "not installed"."""
    if package == "jaxdyn":
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
