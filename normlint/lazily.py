"""Packages that import their names when they are first asked for (PEP 562): start-up counts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def names_of(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Give the `__getattr__` of a package for the names that its modules in `homes` define."""
    home = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:  # noqa: N807 - it becomes one
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    return __getattr__


def modules_of(package: str) -> Callable[[str], Any]:
    """Give the `__getattr__` of a package that imports its own modules."""

    def __getattr__(name: str) -> Any:  # noqa: N807 - it becomes one
        full = f"{package}.{name}"
        try:
            return import_module(full)
        except ModuleNotFoundError as error:
            if error.name != full:
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return __getattr__
