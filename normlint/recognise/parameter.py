"""Scales and biases of normalisations, aligned to the axes of what they act on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.model import ValuesUnavailable
from normlint.normalization import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Shape, Tensor

    Array = np.ndarray[Any, Any]


def static(shape: Shape | None) -> tuple[int, ...] | None:
    """Give a shape whose extents are all numbers; None where one of them is not."""
    if shape is None:
        return None
    extents = tuple(extent for extent in shape if isinstance(extent, int))
    return extents if len(extents) == len(shape) else None


@dataclass(frozen=True)
class Aligner:
    """Makes parameters for a tensor of a rank (None where it is not known)."""

    constants: Constants
    rank: int | None

    def trailing(self, tensor: Tensor | None) -> Parameter | None:
        """Align a tensor that broadcasts from the last axis, as in a LayerNormalization."""
        shape = None if tensor is None else static(tensor.shape)
        if shape is None or self.rank is None or len(shape) > self.rank:
            return self._make(tensor, None, 1)
        return self._make(tensor, (1,) * (self.rank - len(shape)) + shape, 1)

    def channels(
        self, tensor: Tensor | None, axis: int = 1, channels: int | None = None
    ) -> Parameter | None:
        """Align a vector that runs along one axis.

        Where it is shorter than `channels`, each of its values stands for a group of channels.
        """
        shape = None if tensor is None else static(tensor.shape)
        if shape is None or self.rank is None or len(shape) != 1 or not 0 <= axis < self.rank:
            return self._make(tensor, None, 1)
        repeats = 1
        if channels is not None and 0 < shape[0] < channels and channels % shape[0] == 0:
            repeats = channels // shape[0]
        aligned = [1] * self.rank
        aligned[axis] = shape[0] * repeats
        return self._make(tensor, tuple(aligned), repeats)

    def _make(
        self, tensor: Tensor | None, shape: tuple[int, ...] | None, repeats: int
    ) -> Parameter | None:
        if tensor is None:
            return None
        compute: Callable[[], Array] | None = None
        if self.constants.is_constant(tensor):
            compute = _Values(self.constants, tensor, shape, repeats)
        return Parameter(shape, (tensor,), compute, tensor if repeats == 1 else None)


@dataclass(frozen=True)
class _Values:
    constants: Constants
    tensor: Tensor
    shape: tuple[int, ...] | None
    repeats: int

    def __call__(self) -> Array:
        values = self.constants.values(self.tensor).astype(np.float64)
        if self.repeats > 1:
            values = np.repeat(values, self.repeats)
        if self.shape is None:
            return values
        if values.size != math.prod(self.shape):
            raise ValuesUnavailable(f"{self.tensor.name} has other extents than it says")
        return values.reshape(self.shape)
