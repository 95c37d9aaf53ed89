"""Turn an edited skeleton into the segments of a file: its bytes, stored ones, computed ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from normlint.model.needle import replace_tensors_with
from normlint.model.placeholder import (
    MARK,
    NEW,
    RAW_DATA,
    SELF,
    block_head,
    held,
    location,
    new_index,
)
from normlint.model.segment import Computed, Segment, Span, Stored
from normlint.model.skeleton import PROTOBUF_LIMIT, SMALL
from normlint.model.source import BytesSource
from normlint.model.values import nbytes
from normlint.model.wire import LENGTH, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

NEW_INSIDE = 1 << 16
"""Bytes up to which a new tensor goes into a model whose weights lie in side files."""
_PAGE = 4096
"""Offsets in side files are multiples of it, so that a runtime can map them."""

_TOKEN = bytes(8)


@dataclass(slots=True)
class Plan:
    """What to write: the model's segments, and those of one new side file if there are any."""

    segments: list[Segment] = field(default_factory=list)
    side: list[Segment] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the model file."""
        return sum(map(len, self.segments))


def plan(data: bytes, side_name: str, *, has_side_files: bool) -> Plan:
    """Decide where each tensor of an edited and serialised skeleton goes.

    A new tensor goes into the model, unless the model keeps its weights in side files and the
    tensor is large. If the model passed protobuf's 2 GiB, all large tensors go to the side file.
    """
    limit = NEW_INSIDE if has_side_files else PROTOBUF_LIMIT
    inside = _plan(data, side_name, lambda place, length: place == NEW and length > limit)
    if inside.size <= PROTOBUF_LIMIT:
        return inside
    return _plan(data, side_name, lambda _place, length: length > SMALL)


def plan_inside(data: bytes) -> Plan:
    """Put every placeholder's bytes into the model."""
    return _plan(data, "", lambda _place, _length: False)


def _plan(data: bytes, side_name: str, goes_out: Callable[[str, int], bool]) -> Plan:
    import onnx

    result = Plan()
    side_size = 0

    def replace(serialised: bytes) -> Sequence[Segment] | None:
        nonlocal side_size
        tensor = onnx.TensorProto.FromString(serialised)
        place = location(tensor)
        if place not in {SELF, NEW}:
            return None
        block = _block(tensor, place)
        if not goes_out(place, len(block)):
            return _inside(tensor, place, block)
        if padding := -side_size % _PAGE:
            result.side.append(bytes(padding))
        offset = side_size + padding
        result.side.append(block)
        side_size = offset + len(block)
        return [_outside(tensor, side_name, offset, len(block))]

    result.segments = [
        data[segment.start : segment.stop] if isinstance(segment, Span) else segment
        for segment in replace_tensors_with(MARK.encode(), data, replace)
    ]
    return result


def _block(tensor: onnx.TensorProto, place: str) -> Stored | Computed:
    if place == SELF:
        block = held(tensor)
        return Stored(block.offset, block.length)
    return Computed(
        new_index(tensor), tensor.name, tensor.data_type, tuple(tensor.dims), nbytes(tensor)
    )


def _inside(tensor: onnx.TensorProto, place: str, block: Stored | Computed) -> list[Segment]:
    """Return the tensor with its bytes inside, at the place where protobuf writes them."""
    block_field, explicit = RAW_DATA, False
    if place == SELF:
        _, _, block_field, explicit = held(tensor)
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    if explicit:
        tensor.data_location = tensor.DEFAULT
    # Protobuf shows where it writes the field: it is given a token to write there.
    tensor.MergeFromString(block_head(block_field, len(_TOKEN)) + _TOKEN)
    data = tensor.SerializeToString()
    head, stop = _find(block_field, data)
    return [data[:head], block_head(block_field, len(block)), block, data[stop:]]


def _outside(tensor: onnx.TensorProto, side_name: str, offset: int, length: int) -> Segment:
    del tensor.external_data[:]
    for entry, value in (("location", side_name), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=entry, value=str(value))
    moved: bytes = tensor.SerializeToString()
    return moved


def _find(wanted: int, data: bytes) -> tuple[int, int]:
    """Return where the field `wanted` of a serialised tensor starts and stops."""
    reader = Reader(BytesSource(data))
    number = wire = stop = head = 0
    while (number, wire) != (wanted, LENGTH):
        head = stop
        number, wire, _, stop = reader.field(head, len(data))
    return head, stop
