"""Inputs on which a region is run: ordinary ones, and those that bring out bad arithmetic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.graph import FLOATS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from normlint.graph import Shape, Tensor

    Feed = dict[str, np.ndarray[Any, Any]]

_RANKS = (3, 2, 4, 1, 5)
"""Ranks to try for a tensor of unknown rank."""
_EXTENTS = (3, 1, 4, 8, 2, 16)
"""Extents to try for all symbolic axes but the first."""
_FIRST_EXTENTS = (4, 8, 3, 5, 6, 7, 16, 32)
"""Extents to try where the first symbol is no batch."""
_MOST_ELEMENTS = 1 << 26
"""Elements of all inputs together beyond which no memory is taken for them."""
_MANY_ELEMENTS = 1 << 20
"""Elements beyond which it is first tried with less: a proof needs no image of full size."""
_LESS = 8
KINDS: tuple[tuple[str, float, float], ...] = (
    ("ordinary", 1.0, 0.0),
    ("small variance", 0.02, 0.0),
    ("shifted", 1.0, 3.0),
    ("large", 300.0, 0.0),
    ("large mean", 1.0, 100.0),
)
"""Name, standard deviation and mean of the inputs."""
_LARGEST_MEAN = 100.0
"""Deviations of the largest mean."""


def share_of_mean(kind: str) -> float:
    """Give the mean of a kind of inputs in deviations, as a part of the largest one."""
    return next(mean / deviation for name, deviation, mean in KINDS if name == kind) / _LARGEST_MEAN


@dataclass(frozen=True)
class Sizes:
    """What is assumed of tensors whose extents are open."""

    extent: int
    """Extent of every symbolic axis but the first."""
    rank: int
    """Rank of a tensor of unknown rank."""
    axis: int | None = None
    """An axis that has another extent."""
    fixed: int = 0
    first: int = 2
    """Extent of the first symbol, which is the batch in most models."""
    declared: bool = True
    """Whether extents that the file declares are believed: exporters do get them wrong."""
    kept: frozenset[int] | None = None
    """Declared extents that stay, where larger ones become small ones."""
    alike: bool = False
    """Whether all symbolic axes but the first have the one extent."""

    def shapes(self, tensors: Sequence[Tensor], named: dict[str, int]) -> list[tuple[int, ...]]:
        """Give a shape for each tensor; the same symbolic extent is the same number everywhere.

        `named` takes up the numbers of the symbolic extents.
        """
        return [self._shape(tensor.shape, named) for tensor in tensors]

    def _shape(self, shape: Shape | None, named: dict[str, int]) -> tuple[int, ...]:
        shape = (None,) * self.rank if shape is None else shape
        if not self.declared:
            return (self.extent,) * len(shape)
        at = None if self.axis is None else self.axis % max(len(shape), 1)
        return tuple(
            self._less(size)
            if isinstance(size, int) and size > 0
            else self._open(size, named, axis == at)
            for axis, size in enumerate(shape)
        )

    def _less(self, size: int) -> int:
        if self.kept is None or size in self.kept:
            return size
        return min(size, _LESS)

    def _open(self, size: int | str | None, named: dict[str, int], fixed: bool) -> int:
        if fixed:
            return self.fixed
        if not isinstance(size, str):
            return self.extent
        more = 0 if self.alike else len(named) % 2
        return named.setdefault(size, self.extent + more if named else self.first)


def feeds(tensors: Sequence[Tensor], sizes: Sizes) -> Iterator[tuple[str, Feed]]:
    """Give inputs of each kind for the tensors; the same seed gives the same inputs.

    Raises ValueError where they would be too large.
    """
    named: dict[str, int] = {}
    shapes = sizes.shapes(tensors, named)
    if sum(math.prod(shape) for shape in shapes) > _MOST_ELEMENTS:
        raise ValueError("its inputs are too large")
    targets = {tensor.name: _target(tensor, named) for tensor in tensors}
    for kind, deviation, mean in KINDS:
        generator = np.random.default_rng(20_240_229)
        yield (
            kind,
            {
                tensor.name: _draw(generator, tensor.dtype, shape, deviation, mean)
                if targets[tensor.name] is None
                else np.array(targets[tensor.name], np.int64)
                for tensor, shape in zip(tensors, shapes, strict=True)
            },
        )


def _target(tensor: Tensor, named: dict[str, int]) -> list[int] | None:
    """Give the target of a Reshape for a tensor that is read as one; None where it is not."""
    for node in tensor.consumers:
        shape = node.y.shape if node.op == "Reshape" and node.inputs[1] is tensor else None
        if shape is None:
            continue
        target = [e if isinstance(e, int) else named.get(e or "", -1) for e in shape]
        if target.count(-1) <= 1:
            return target
    return None


def assignments(
    tensors: Sequence[Tensor], hints: Sequence[int] = (), kept: Collection[int] = ()
) -> Iterator[Sizes]:
    """Give the extents and ranks to try, until a model accepts them.

    `hints` are extents of constants, which the last axis or axis 1 of an input may have to fit;
    `kept` are all of them.
    """
    if _size(tensors) > _MANY_ELEMENTS:
        yield Sizes(_EXTENTS[0], _RANKS[0], kept=frozenset(kept))
    ranks = _RANKS if any(tensor.shape is None for tensor in tensors) else _RANKS[:1]
    is_open = any(
        tensor.shape is None or any(not isinstance(e, int) or e <= 0 for e in tensor.shape)
        for tensor in tensors
    )
    if not is_open:
        yield Sizes(_EXTENTS[0], ranks[0])
        for hint in hints:
            yield Sizes(hint, ranks[0], declared=False)
        return
    if all(tensor.shape is not None for tensor in tensors):
        # Only ranks that never occur make a small extent run where it should not.
        yield Sizes(_EXTENTS[0], ranks[0])
    for rank in ranks:
        for hint in hints:
            yield Sizes(_EXTENTS[0], rank, -1, hint)
            yield Sizes(_EXTENTS[0], rank, 1, hint)
        for extent in _EXTENTS:
            yield Sizes(extent, rank)
        for extent in _FIRST_EXTENTS:
            yield Sizes(extent, rank, first=extent)
    for rank in ranks:
        yield from _pairs(hints, rank)


def _pairs(hints: Sequence[int], rank: int) -> Iterator[Sizes]:
    """Give one extent to one axis and another to the rest: two constants may each ask for one."""
    for extent in hints:
        for hint in hints:
            yield Sizes(extent, rank, first=hint, alike=True)
            yield Sizes(extent, rank, -1, hint, first=extent, alike=True)
            yield Sizes(extent, rank, 1, hint, first=extent, alike=True)


def _size(tensors: Sequence[Tensor]) -> int:
    """Count the elements of tensors of static shape."""
    extents = [tensor.shape for tensor in tensors if tensor.shape is not None]
    return sum(math.prod(e for e in shape if isinstance(e, int) and e > 0) for shape in extents)


def _draw(
    generator: np.random.Generator,
    dtype: int,
    shape: tuple[int, ...],
    deviation: float,
    mean: float,
) -> np.ndarray[Any, Any]:
    numpy_type = onnx.helper.tensor_dtype_to_np_dtype(dtype or TensorProto.FLOAT)
    if dtype in FLOATS or dtype == 0:
        # A draw of no extents is a number of Python's, which the runtime refuses.
        return np.asarray(generator.standard_normal(shape) * deviation + mean, numpy_type)
    if dtype == TensorProto.BOOL:
        return np.asarray(generator.integers(0, 2, shape), bool)
    if dtype in {TensorProto.INT8, TensorProto.UINT8}:
        return np.asarray(generator.integers(0, 100, shape), numpy_type)
    return np.asarray(generator.integers(0, 2, shape), numpy_type)
