"""Dataclasses whose methods are written when the first instance is made.

`dataclasses.dataclass` compiles up to six methods of each class from text, a third of a millisecond
together. A check imports a hundred such classes and makes instances of a third of them: to write
the methods of the rest would be a tenth of the start-up time. What is read from the class itself
(`dataclasses.fields`) is there from the first instance on; a class that is asked for it before, or
that every check makes instances of, is better a plain dataclass. So is one with slots.
"""

from __future__ import annotations

import dataclasses
from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> type | Callable[[type], type]:
        """Mark a class as a dataclass, with the options of `dataclasses.dataclass`."""

        def marked(cls: type) -> type:
            _waiting[cls] = options
            cls.__new__ = _new
            return cls

        return marked if cls is None else marked(cls)


_waiting: dict[type, dict[str, Any]] = {}
_complete: set[type] = set()
_lock = RLock()


def _new(cls: type, *_: object, **__: object) -> object:
    """Make an instance, be it by a call or from a pickle; its `__init__` is asked for after this.

    It stays in place, so that no other thread finds a class that has neither it nor an `__init__`.
    """
    if cls not in _complete:
        with _lock:
            _write_methods(cls)
    return object.__new__(cls)


def _write_methods(cls: type) -> None:
    """Write the methods of a class and of those that it is derived from, these first."""
    for base in reversed(cls.__mro__):
        options = _waiting.get(base)
        if options is not None:
            dataclasses.dataclass(**options)(base)
            del _waiting[base]
    _complete.add(cls)
