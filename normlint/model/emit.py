"""Write segments to an open file, large ones by the means of the operating system."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from normlint.model.segment import Computed, Segment, Stored
from normlint.model.source import PIECE, FileSource, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np


def emit(
    fd: int,
    segments: Iterable[Segment],
    source: Source,
    new_values: Sequence[Callable[[], np.ndarray]],
) -> None:
    """Append `segments` at the position of `fd`.

    Computed values are evaluated one at a time and dropped once they are written. Raises `OSError`,
    `EOFError` where the source became shorter, `ValueError` where values do not fit their tensor.
    """
    for segment in segments:
        if isinstance(segment, Stored):
            copy(source, segment.offset, segment.length, fd)
        elif isinstance(segment, Computed):
            write(fd, encode(segment, new_values[segment.index]()))
        else:
            write(fd, segment)


def write(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`: one call may write less."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def copy(source: Source, offset: int, length: int, fd: int) -> None:
    """Append a range of `source`, within the kernel where it can."""
    if isinstance(source, FileSource):
        done = _copy_in_kernel(source.fd, offset, length, fd)
        offset, length = offset + done, length - done
    for start in range(offset, offset + length, PIECE):
        write(fd, source.read(start, min(PIECE, offset + length - start)))


def encode(tensor: Computed, array: np.ndarray) -> memoryview:
    """Return the bytes of `array` as `raw_data`. Raises `ValueError` if it is not the tensor's."""
    import numpy as np
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if array.dtype != dtype or array.shape != tensor.dims:
        message = (
            f"the new tensor {tensor.name!r} should be {dtype} of shape {tensor.dims} "
            f"and is {array.dtype} of shape {array.shape}"
        )
        raise ValueError(message)
    if tensor.length == array.nbytes:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return memoryview(onnx.numpy_helper.from_array(array).raw_data)


def _copy_in_kernel(source: int, offset: int, length: int, target: int) -> int:
    """Return how many bytes were copied: all, or fewer where the system cannot go on."""
    done = 0
    if not hasattr(os, "copy_file_range"):
        return done
    while done < length:
        try:
            count = os.copy_file_range(source, target, length - done, offset + done)
        except OSError:
            # Another file system, or one that cannot. A full disk is found when writing goes on.
            break
        if not count:
            break
        done += count
    return done
