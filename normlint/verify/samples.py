"""Inputs on which a region is run: ordinary ones, and those that bring out bad arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from normlint.graph import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.graph import Tensor

    Feed = dict[str, np.ndarray[Any, Any]]

_RANKS = (3, 2, 4, 1, 5)
"""Ranks to try for a tensor of unknown rank."""
_EXTENTS = (3, 1, 4, 8, 2, 16)
"""Extents to try for all symbolic axes but the first."""
LARGE_MEAN = "large mean"
KINDS: tuple[tuple[str, float, float], ...] = (
    ("ordinary", 1.0, 0.0),
    ("small variance", 0.02, 0.0),
    ("shifted", 1.0, 3.0),
    ("large", 300.0, 0.0),
    (LARGE_MEAN, 1.0, 100.0),
)
"""Name, standard deviation and mean of the inputs."""


def feeds(tensors: Sequence[Tensor], extent: int, rank: int) -> Iterator[tuple[str, Feed]]:
    """Give inputs of each kind for the tensors; the same seed gives the same inputs."""
    shapes = _shapes(tensors, extent, rank)
    for kind, deviation, mean in KINDS:
        generator = np.random.default_rng(20_240_229)
        yield (
            kind,
            {
                tensor.name: _draw(generator, tensor.dtype, shape, deviation, mean)
                for tensor, shape in zip(tensors, shapes, strict=True)
            },
        )


def assignments(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Give the extents and ranks to try, until a model accepts them."""
    open_extents = any(
        tensor.shape is None or any(not isinstance(e, int) or e <= 0 for e in tensor.shape)
        for tensor in tensors
    )
    ranks = _RANKS if any(tensor.shape is None for tensor in tensors) else _RANKS[:1]
    for rank in ranks:
        for extent in _EXTENTS if open_extents else _EXTENTS[:1]:
            yield extent, rank


def _shapes(tensors: Sequence[Tensor], extent: int, rank: int) -> list[tuple[int, ...]]:
    named: dict[str, int] = {}
    shapes = []
    for tensor in tensors:
        shape = tensor.shape if tensor.shape is not None else (None,) * rank
        shapes.append(
            tuple(
                size
                if isinstance(size, int) and size > 0
                else named.setdefault(size, extent + len(named) % 2 if named else 2)
                if isinstance(size, str)
                else extent
                for size in shape
            )
        )
    return shapes


def _draw(
    generator: np.random.Generator,
    dtype: int,
    shape: tuple[int, ...],
    deviation: float,
    mean: float,
) -> np.ndarray[Any, Any]:
    numpy_type = onnx.helper.tensor_dtype_to_np_dtype(dtype or TensorProto.FLOAT)
    if dtype in FLOATS or dtype == 0:
        return (generator.standard_normal(shape) * deviation + mean).astype(numpy_type)
    if dtype == TensorProto.BOOL:
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in {TensorProto.INT8, TensorProto.UINT8}:
        return generator.integers(0, 100, shape).astype(numpy_type)
    return generator.integers(0, 2, shape).astype(numpy_type)
