"""One tensor's values, read when they are asked for."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from normlint.model.external import SideFiles, parse
from normlint.model.fault import FileFault, ValuesUnavailable
from normlint.model.placeholder import (
    DOUBLE_DATA,
    FLOAT_DATA,
    NEW,
    SELF,
    held,
    location,
)
from normlint.model.source import FileSource, fill

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from normlint.model.source import Source

_LARGEST = (1 << 63) - 1
_STRING = 8
_PACKED_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6}
"""Bits of the types of TensorProto.DataType that share bytes: 4-bit, 2-bit, 6-bit ones."""
_LISTS = {FLOAT_DATA: (1, 14), DOUBLE_DATA: (11, 15)}
"""Which types a list of numbers holds: FLOAT and COMPLEX64, DOUBLE and COMPLEX128."""


def count(tensor: onnx.TensorProto) -> int:
    """Return how many elements the tensor has. Raises `ValuesUnavailable` on impossible dims."""
    dims = tuple(tensor.dims)
    if dims and min(dims) < 0:
        raise ValuesUnavailable(f"{_name(tensor)} has a negative extent")
    total: int = math.prod(dims)
    # Numpy refuses what overflows even where another extent is 0.
    if (total or math.prod(filter(None, dims))) > _LARGEST:
        raise ValuesUnavailable(f"{_name(tensor)} has more elements than can be counted")
    return total


def nbytes(tensor: onnx.TensorProto) -> int:
    """Return how many bytes the values take in a file. Raises `ValuesUnavailable`."""
    total = (count(tensor) * _bits(tensor) + 7) // 8
    if total > _LARGEST:
        raise ValuesUnavailable(f"{_name(tensor)} has more bytes than can be counted")
    return total


def available(tensor: onnx.TensorProto, own: Source, side_files: SideFiles) -> bool:
    """Say whether the values can be read, by sizes alone: no file is opened."""
    place = location(tensor)
    try:
        if place is None:
            return _is_inline(tensor)
        if place == NEW:
            return False
        if place == SELF:
            block = held(tensor)
            return block.length == nbytes(tensor) and block.offset + block.length <= own.size
        wanted, size = parse(tensor), side_files.find(place).size
    except (ValuesUnavailable, FileFault, ValueError):
        return False
    length = size - wanted.offset if wanted.length is None else wanted.length
    return length == nbytes(tensor) and wanted.offset + length <= size


def read_values(tensor: onnx.TensorProto, own: Source, side_files: SideFiles) -> np.ndarray:
    """Return the values in a fresh array. Raises `ValuesUnavailable` with the reason."""
    place = location(tensor)
    if place is None:
        return _inline(tensor)
    try:
        source, offset, length = _range(tensor, place, own, side_files)
        needed = nbytes(tensor)
        if length != needed:
            message = f"{_name(tensor)} should have {needed} bytes and has {length}"
            raise ValuesUnavailable(message)
        if offset + length > source.size:
            raise ValuesUnavailable(f"{_name(tensor)} lies beyond the end of its file")
        return _decode(tensor, source, offset, length)
    except (FileFault, ValueError, EOFError, OSError, MemoryError) as error:
        raise ValuesUnavailable(f"{_name(tensor)}: {error}") from error


def _range(
    tensor: onnx.TensorProto, place: str, own: Source, side_files: SideFiles
) -> tuple[Source, int, int]:
    """Return where the bytes of the tensor lie: source, offset, length."""
    if place == SELF:
        block = held(tensor)
        if tensor.data_type not in _LISTS.get(block.field, (tensor.data_type,)):
            raise ValuesUnavailable(f"{_name(tensor)} has its numbers in the field of another type")
        return own, block.offset, block.length
    if place == NEW:
        raise ValuesUnavailable(f"{_name(tensor)} is computed when the model is written")
    wanted = parse(tensor)
    # Links were resolved already: one that appears now was put there in between.
    source = FileSource(side_files.find(place).path, follow_symlinks=False)
    length = source.size - wanted.offset if wanted.length is None else wanted.length
    return source, wanted.offset, length


def _decode(tensor: onnx.TensorProto, source: Source, offset: int, length: int) -> np.ndarray:
    import numpy as np

    if tensor.data_type in _PACKED_BITS:
        return _unpacked(tensor, source.read(offset, length))
    array = np.empty(tuple(tensor.dims), _dtype(tensor.data_type))
    fill(source, offset, array)
    return array


def _unpacked(tensor: onnx.TensorProto, data: bytes) -> np.ndarray:
    import onnx

    packed = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=data)
    return onnx.numpy_helper.to_array(packed)


def _inline(tensor: onnx.TensorProto) -> np.ndarray:
    if tensor.HasField("segment"):
        raise ValuesUnavailable(f"{_name(tensor)} is cut into segments")
    if tensor.HasField("raw_data"):
        return _inline_raw(tensor)
    count(tensor)
    import onnx

    try:
        # A list of numbers: to_array refuses a list that does not fill the dims.
        return onnx.numpy_helper.to_array(tensor).copy()
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
        raise ValuesUnavailable(f"{_name(tensor)} cannot be decoded: {error}") from error


def _inline_raw(tensor: onnx.TensorProto) -> np.ndarray:
    import numpy as np

    data, needed = tensor.raw_data, nbytes(tensor)
    if len(data) != needed:
        message = f"{_name(tensor)} should have {needed} bytes and has {len(data)}"
        raise ValuesUnavailable(message)
    if tensor.data_type in _PACKED_BITS:
        return _unpacked(tensor, data)
    return np.frombuffer(data, _dtype(tensor.data_type)).reshape(tensor.dims).copy()


def _is_inline(tensor: onnx.TensorProto) -> bool:
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) == nbytes(tensor)
    lists = (
        tensor.float_data,
        tensor.int32_data,
        tensor.int64_data,
        tensor.double_data,
        tensor.uint64_data,
        tensor.string_data,
    )
    return count(tensor) == 0 or any(map(len, lists))


def _bits(tensor: onnx.TensorProto) -> int:
    """Return the bits of one element. Raises `ValuesUnavailable` for text and unknown types."""
    if tensor.data_type in _PACKED_BITS:
        return _PACKED_BITS[tensor.data_type]
    if tensor.data_type == _STRING:
        raise ValuesUnavailable(f"{_name(tensor)} holds text, which has no fixed size")
    try:
        return 8 * _dtype(tensor.data_type).itemsize
    except (KeyError, TypeError, ValueError) as error:
        raise ValuesUnavailable(f"{_name(tensor)} has no known type") from error


@cache
def _dtype(data_type: int) -> np.dtype[Any]:
    import onnx

    return onnx.helper.tensor_dtype_to_np_dtype(data_type)


def _name(tensor: onnx.TensorProto) -> str:
    return f"tensor {tensor.name!r}"
