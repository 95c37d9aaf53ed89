"""Pieces of a file to be written, each with a known length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes `start` to `stop` of what is walked."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of the model's own file, as it was opened."""

    offset: int
    length: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, slots=True)
class Computed:
    """The values of a new tensor, which are computed when they are written."""

    index: int
    name: str
    data_type: int
    dims: tuple[int, ...]
    length: int

    def __len__(self) -> int:
        return self.length


Segment: TypeAlias = bytes | Stored | Computed
"""What a file is written from."""
