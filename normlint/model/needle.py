"""Find tensors by a text in them, without looking at the rest of a serialised model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.model.placeholder import MARK, NEW, SELF, location
from normlint.model.source import BytesSource
from normlint.model.walk import Content, replace_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from normlint.model.segment import Span
    from normlint.model.wire import Reader

_LOCATION = b"location"


def replace_tensors_with(
    needle: bytes, data: bytes, replace: Callable[[bytes], Sequence[Content] | None]
) -> list[bytes | Span | Content]:
    """Call `replace` with each serialised TensorProto in `data` that contains `needle`.

    It returns the new content or None. Raises `WireError` where `data` is no model.
    """

    def pick(start: int, stop: int) -> bool:
        return data.find(needle, start, stop) >= 0

    def serialised(_reader: Reader, start: int, stop: int) -> Sequence[Content] | None:
        return replace(data[start:stop])

    return replace_tensors(BytesSource(data), pick, serialised)


def outside_tensors(data: bytes) -> list[onnx.TensorProto]:
    """Return the tensors of a serialised skeleton whose data lies in side files."""
    import onnx

    outside: list[onnx.TensorProto] = []
    # A placeholder has the word once: where it does not occur besides, no tensor is outside.
    if data.count(_LOCATION) == data.count(MARK.encode()):
        return outside

    def collect(serialised: bytes) -> Sequence[bytes] | None:
        tensor = onnx.TensorProto.FromString(serialised)
        if location(tensor) not in {None, SELF, NEW}:
            outside.append(tensor)
        return None

    replace_tensors_with(_LOCATION, data, collect)
    return outside
