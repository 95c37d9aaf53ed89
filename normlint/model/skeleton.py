"""Read a model without its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from normlint.model.fault import FileFault
from normlint.model.placeholder import (
    DATA_LOCATION,
    DOUBLE_DATA,
    EXTERNAL_DATA,
    FLOAT_DATA,
    MARK,
    RAW_DATA,
    Held,
    held_fields,
)
from normlint.model.segment import Span
from normlint.model.walk import Kind, replace_tensors
from normlint.model.wire import LENGTH, VARINT, Reader, WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from normlint.model.source import Source

SMALL = 1024
"""Bytes up to which a tensor stays in the skeleton."""
PROTOBUF_LIMIT = (1 << 31) - 1
"""Bytes beyond which protobuf neither reads nor writes a message."""

_SEARCHED = 1 << 23
"""Bytes of small messages that are searched for an error that protobuf found without its place."""
_DATA = frozenset({4, 5, 6, 7, 9, 10, 11})
_ITEM_SIZE = {FLOAT_DATA: 4, RAW_DATA: 1, DOUBLE_DATA: 8}


class Skeleton(NamedTuple):
    """A model without its large tensors, parsed and serialised."""

    proto: onnx.ModelProto
    data: bytes


def read_skeleton(source: Source) -> Skeleton:
    """Return the model with a placeholder for every tensor above `SMALL` bytes.

    Raises `FileFault`: NL905 if protobuf would refuse the file, NL904 if it holds no model, NL907
    if it refers to itself in the way of a placeholder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        data, placeholders = _without_weights(source)
        model = onnx.ModelProto.FromString(data)
    except (WireError, DecodeError) as error:
        raise _unreadable(source, error) from error
    except (EOFError, OSError) as error:
        raise FileFault("NL905", f"the file cannot be read: {error}") from error
    if data.count(MARK.encode()) != placeholders:
        message = "a tensor refers to a side file by a name that no file can have"
        raise FileFault("NL907", message)
    if not model.HasField("graph") and not model.HasField("ir_version"):
        message = "this holds neither a graph nor an ONNX version, so it is not an ONNX model"
        raise FileFault("NL904", message)
    return Skeleton(model, data)


def _without_weights(source: Source) -> tuple[bytes, int]:
    """Return the skeleton, serialised, and how many placeholders are in it."""
    segments = replace_tensors(source, lambda start, stop: stop - start > SMALL, _placeholder)
    if sum(map(len, segments)) > PROTOBUF_LIMIT:
        raise WireError(0, "more than 2 GiB besides the weights, which protobuf cannot read")
    pieces = []
    placeholders = 0
    for segment in segments:
        if isinstance(segment, Span):
            pieces.append(source.read(segment.start, len(segment)))
        else:
            pieces.append(segment)
            placeholders += MARK.encode() in segment
    return b"".join(pieces), placeholders


def _placeholder(reader: Reader, start: int, stop: int) -> Sequence[bytes | Span] | None:
    """Return the tensor without its one large block of data, or None if it must stay whole.

    Anything unusual stays whole: data in two fields or twice, or inside and outside at once.
    """
    block = None
    explicit = False
    position = start
    while position < stop:
        head = position
        number, wire, value, position = reader.field(head, stop)
        if number in _DATA:
            item_size = _ITEM_SIZE.get(number)
            length = position - value
            if block or wire != LENGTH or length <= SMALL or not item_size:
                return None
            if length % item_size:
                raise WireError(head, "a list of numbers that stops within a number")
            block = Held(value, length, number, explicit=False)
            around = _spans(start, head) + _spans(position, stop)
        elif number == EXTERNAL_DATA:
            return None
        elif number == DATA_LOCATION:
            if wire != VARINT or reader.varint(value, position):
                return None
            explicit = True
    if block is None:
        return None
    return [*around, held_fields(block._replace(explicit=explicit))]


def _spans(start: int, stop: int) -> list[Span]:
    return [Span(start, stop)] if start < stop else []


def _unreadable(source: Source, error: Exception) -> FileFault:
    """Say where the file stops being protobuf."""
    if isinstance(error, WireError):
        found: WireError | None = error
    else:
        found = _first_error(source)
    where = str(found) if found else "a field holds what its type does not allow"
    message = (
        f"this is not a readable ONNX file, truncated or corrupt: {where} of {source.size}. "
        "Export or fetch it again."
    )
    return FileFault("NL905", message)


def _first_error(source: Source) -> WireError | None:
    """Walk every message of a file that protobuf refused, small ones too."""
    import onnx

    kinds: dict[str, Kind] = {}
    pending = [onnx.ModelProto.DESCRIPTOR]
    while pending:
        descriptor = pending.pop()
        kind = kinds.setdefault(descriptor.full_name, Kind())
        for field in descriptor.fields:
            child = field.message_type
            if child is None:
                continue
            if child.full_name not in kinds:
                kinds[child.full_name] = Kind()
                pending.append(child)
            kind.fields[field.number] = kinds[child.full_name]
    model = kinds[onnx.ModelProto.DESCRIPTOR.full_name]
    try:
        replace_tensors(_Patience(source), lambda *_: True, lambda *_: None, model)
    except WireError as error:
        return error
    except EOFError:
        return None
    return None


class _Patience:
    """A source that ends after so many bytes: a search for an error could take long."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = _SEARCHED
        self.size = source.size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, while there is patience left."""
        self._left -= length
        if self._left < 0:
            raise EOFError
        return self._source.read(offset, length)
