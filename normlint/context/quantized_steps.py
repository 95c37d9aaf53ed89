"""The grid that a value is rounded to, and the error that this leaves in a normalised value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Node

_INTEGER_BITS: dict[int, int] = {
    TensorProto.INT8: 8,
    TensorProto.UINT8: 8,
    TensorProto.INT16: 16,
    TensorProto.UINT16: 16,
    TensorProto.INT32: 32,
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
}
_FRACTION_BITS: dict[int, int] = {
    TensorProto.FLOAT8E4M3FN: 3,
    TensorProto.FLOAT8E4M3FNUZ: 3,
    TensorProto.FLOAT8E5M2: 2,
    TensorProto.FLOAT8E5M2FNUZ: 2,
    TensorProto.FLOAT4E2M1: 1,
}
_LARGEST_FLOAT: dict[int, float] = {
    TensorProto.FLOAT8E4M3FN: 448.0,
    TensorProto.FLOAT8E4M3FNUZ: 240.0,
    TensorProto.FLOAT8E5M2: 57344.0,
    TensorProto.FLOAT8E5M2FNUZ: 57344.0,
    TensorProto.FLOAT4E2M1: 6.0,
}
_UNIFORM = math.sqrt(12.0)
"""Step of a grid over the deviation of what is rounded away, uniformly distributed."""
_LARGEST_SCALE = 1 << 16


@dataclass(frozen=True)
class Step:
    """The grid of one rounding; of several scales (per channel, per block) the coarsest."""

    size: float
    """Distance of neighbouring values; for small floats, of those near the largest."""
    range: float
    """Distance of the least value from the largest."""
    bits: int
    dtype: int
    """Element type, one of TensorProto.DataType."""
    axis: int | None = None
    """Axis along which the scales differ; None for a single scale."""

    @property
    def type_name(self) -> str:
        """Name of the element type."""
        return str(TensorProto.DataType.Name(self.dtype)).lower()

    @property
    def levels(self) -> float:
        """Number of steps in the range."""
        return self.range / self.size

    def relative_error(self, deviation: float) -> float:
        """Give the relative error of a normalised value: step / (√12 · deviation).

        `deviation` is the standard deviation of what is normalised. Integers are evenly spaced; the
        spacing of small floats follows the value, so that their error does not depend on it.
        """
        if self.dtype in _FRACTION_BITS:
            return float(2.0 ** -_FRACTION_BITS[self.dtype]) / _UNIFORM
        return self.size / (_UNIFORM * deviation) if deviation > 0 else math.inf


def step_of(dequantize: Node, constants: Constants) -> Step | None:
    """Give the grid of a DequantizeLinear; None where its scale is no constant."""
    if len(dequantize.inputs) < 2:
        return None
    scales = constants.known(dequantize.inputs[1], _LARGEST_SCALE)
    if scales is None:
        return None
    largest = float(np.max(np.abs(scales.astype(np.float64))))
    dtype = _type_of(dequantize)
    axis = int(dequantize.attrs.get("axis", 1)) if scales.size > 1 else None
    if dtype in _FRACTION_BITS:
        top = _LARGEST_FLOAT[dtype]
        size = largest * 2.0 ** (math.floor(math.log2(top)) - _FRACTION_BITS[dtype])
        return Step(size, 2 * top * largest, 4 if top < 8 else 8, dtype, axis)
    bits = _INTEGER_BITS.get(dtype, 8)
    return Step(largest, largest * (2**bits - 1), bits, dtype, axis)


def _type_of(dequantize: Node) -> int:
    """Give the type of the integers; that of the zero point where an operator hides it."""
    if dequantize.inputs[0].dtype:
        return dequantize.inputs[0].dtype
    zero = dequantize.input(2)
    return TensorProto.UINT8 if zero is None or not zero.dtype else zero.dtype
