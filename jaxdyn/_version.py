"""Versions of packages, of this one too where it is used from a checkout that was never installed."""

import importlib.metadata

__version__ = "0.2.0"


def version_of(package: str = "jaxdyn") -> str:
    """The version of a package, "not installed" where it is not there."""
    if package == "jaxdyn":
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
