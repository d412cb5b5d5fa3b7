"""Versions of packages, of this one too where it is used from a checkout that was never installed."""

import importlib.metadata


def version_of(package: str = "jaxdyn") -> str:
    """The version of an installed package, "not installed" where it is not one."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
