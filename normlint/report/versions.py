"""Versions of normlint and of what it stands on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from normlint import __version__

_PACKAGES = (
    *("fast-sugiyama", "ml_dtypes", "numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "rich"),
    "typer",
)


def versions_text() -> str:
    """Give one line each."""
    lines = [f"normlint {__version__}", f"Python {platform.python_version()}"]
    lines += [f"{package} {_version(package)}" for package in _PACKAGES]
    return "".join(f"{line}\n" for line in lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"
