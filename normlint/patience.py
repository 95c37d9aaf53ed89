"""Look for garbage seldom: modules and graphs stay, and a graph is one large cycle."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEW_OBJECTS = 500_000
"""Objects made between two looks; about as many as a graph of 10 000 nodes has."""


def be_patient() -> None:
    """Let the garbage collector of this process wait from now on."""
    gc.set_threshold(_NEW_OBJECTS)


@contextmanager
def patient_collector() -> Iterator[None]:
    """Let the garbage collector wait: each look walks all that was made since the last one."""
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
