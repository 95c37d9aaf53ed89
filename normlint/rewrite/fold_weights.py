"""Weights times a factor and biases moved by a shift: computed when they are needed, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from normlint.context.linear import Blocked
from normlint.deferred import dataclass
from normlint.graph import FLOATS
from normlint.model import ValuesUnavailable
from normlint.rule import Computed, OutOfRange, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Weights

    Array = np.ndarray[Any, Any]

_EXTREME = 1e15
"""Factors within this of 1 keep any weight of a sane network within the range of float."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A weight times a factor, seen in a shape in which the factor broadcasts."""

    tensor: Tensor
    weights: Weights
    factor: Array
    view: tuple[int, ...]
    """The weight's shape, with an axis split in two where groups ask for it; -1 is not allowed."""
    dtype: int

    @property
    def is_same(self) -> bool:
        """Whether the new weight is the old one."""
        return bool(np.all(self.factor == 1))

    def compute(self) -> Array:
        """Give the new weight. Raises OutOfRange."""
        values = self.weights.values(self.tensor)
        folded = (values.reshape(self.view) * self.factor).reshape(values.shape)
        return in_range(folded, self.dtype, self.tensor.name)

    def constant(self) -> Computed:
        """Describe the new weight."""
        shape = self.weights.shape(self.tensor)
        return Computed(shape, self.dtype, self.compute, self.tensor.name)

    def check(self, at: Node) -> None:
        """Raise Blocked where the weight would leave the range of its type, or be subnormal.

        Reads the weight only where that can happen at all.
        """
        if not np.isfinite(self.factor).all():
            raise overflow(at, "a scale is not finite")
        if self.dtype != TensorProto.FLOAT16 and not _is_extreme(self.factor):
            return
        try:
            values = self.weights.values(self.tensor).reshape(self.view)
        except ValuesUnavailable as fault:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, self.tensor, str(fault)) from fault
        self._check_rows(values, at)

    def _check_rows(self, values: Array, at: Node) -> None:
        factor = self.factor.reshape((1,) * (values.ndim - self.factor.ndim) + self.factor.shape)
        rest = tuple(axis for axis in range(values.ndim) if factor.shape[axis] == 1)
        before = np.abs(values).max(axis=rest, keepdims=True, initial=0)
        after = before * np.abs(factor)
        limits = limits_of(self.dtype)
        if np.any(after > float(limits.max)):
            raise overflow(at, f"{self.tensor.name} would exceed {float(limits.max):g}")
        least = float(limits.smallest_normal)
        if np.any((after > 0) & (after < least) & (before >= least)):
            raise overflow(at, f"a channel of {self.tensor.name} would become subnormal")


def _is_extreme(factor: Array) -> bool:
    magnitude = np.abs(factor[factor != 0])
    return bool(np.any(magnitude > _EXTREME) or np.any(magnitude < 1 / _EXTREME))


def overflow(at: Node, detail: str) -> Blocked:
    """Refuse because numbers would leave the range of their type."""
    return Blocked(Reason.WOULD_OVERFLOW, at, detail)


def limits_of(dtype: int) -> Any:
    """Give the limits (`max`, `smallest_normal`) of a float type."""
    import ml_dtypes

    limits: Callable[[Any], Any] = ml_dtypes.finfo
    return limits(onnx.helper.tensor_dtype_to_np_dtype(dtype))


def in_range(values: Array, dtype: int, name: str) -> Array:
    """Give values that the type can hold. Raises OutOfRange."""
    limit = float(limits_of(dtype).max)
    if not np.isfinite(values).all() or np.any(np.abs(values) > limit):
        raise OutOfRange(f"{name} would exceed {limit:g}")
    return values


def check_scale(new: Array, old: Array, dtype: int, at: Node) -> None:
    """Raise Blocked where a new factor is beyond the range of its type, or becomes subnormal."""
    check_shift(new, dtype, at)
    least = float(limits_of(dtype).smallest_normal)
    small = (new != 0) & (np.abs(new) < least) & (np.abs(old) >= least)
    if np.any(small):
        raise overflow(at, "a scale would become subnormal")


def check_shift(shift: Array, dtype: int, at: Node) -> None:
    """Raise Blocked where a new bias is not finite in its type."""
    if dtype not in FLOATS:
        raise Blocked(Reason.TYPE_MISMATCH, at, "a shift has no float type")
    if not np.isfinite(shift).all() or np.any(np.abs(shift) > float(limits_of(dtype).max)):
        raise overflow(at, "a shift leaves the range of its type")


def computed(
    shape: tuple[int, ...], dtype: int, compute: Callable[[], Array], name: str, at: Node
) -> Computed:
    """Describe a constant whose values must be within the range of its type.

    In half precision, where that is no matter of course, they are looked at: raises Blocked.
    Elsewhere computing them may raise OutOfRange.
    """
    new = Computed(shape, dtype, lambda: in_range(compute(), dtype, name), name)
    if dtype == TensorProto.FLOAT16:
        try:
            new.compute()
        except OutOfRange as fault:
            raise overflow(at, str(fault)) from fault
        except ValuesUnavailable as fault:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, at, str(fault)) from fault
    return new


def vector(values: Array, dtype: int, name: str, shape: tuple[int, ...] | None = None) -> Computed:
    """Describe a small constant whose values are there already."""
    shaped = values if shape is None else values.reshape(shape)
    return Computed(shaped.shape, dtype, lambda: shaped, name)


def type_of(node: Node, tensor: Tensor) -> int:
    """Give the element type of a weight; where it is not known, that of the node's data.

    Inference knows nothing of operators of other domains, but their weights have a type.
    """
    weights = next((other.dtype for other in node.inputs if other.is_float), TensorProto.FLOAT)
    return tensor.dtype or node.y.dtype or node.inputs[0].dtype or weights
