"""Versions of installed packages, and of jaxdyn itself even if it is not installed."""

import importlib.metadata

__version__ = "0.3.0"


def version_of(package: str = "jaxdyn") -> str:
    """The version of a package, or "not installed"."""
    if package == "jaxdyn":
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
