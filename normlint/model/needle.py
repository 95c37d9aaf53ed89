"""Find tensors by a text in them, without looking at the rest of a serialised model."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from normlint.model.source import BytesSource
from normlint.model.walk import replace_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.model.segment import Segment
    from normlint.model.wire import Reader


def replace_tensors_with(
    needle: bytes, data: bytes, replace: Callable[[bytes], Sequence[Segment] | None]
) -> list[Segment]:
    """Call `replace` with each serialised TensorProto in `data` that contains `needle`.

    It returns the new content or None. Raises `WireError` where `data` is no model.
    """
    places = _places(needle, data)

    def pick(start: int, stop: int) -> bool:
        at = bisect_left(places, start)
        return at < len(places) and places[at] < stop

    def serialised(_reader: Reader, start: int, stop: int) -> Sequence[Segment] | None:
        return replace(data[start:stop])

    return replace_tensors(BytesSource(data), pick, serialised)


def _places(needle: bytes, data: bytes) -> list[int]:
    places = []
    at = data.find(needle)
    while at >= 0:
        places.append(at)
        at = data.find(needle, at + 1)
    return places
