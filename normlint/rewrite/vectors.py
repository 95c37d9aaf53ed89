"""The scale and the bias of an operator, from the parameters of a normalisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.recognise.extents import above
from normlint.recognise.parameter import static
from normlint.rewrite.demands import refuse
from normlint.rule import Computed, NewNode, Reason

if TYPE_CHECKING:
    from normlint.graph import Tensor
    from normlint.normalization import Normalization, Parameter
    from normlint.rule import Operand

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Vectors:
    """Makes the scale and the bias of an operator, of one shape and type."""

    dtype: int
    shape: tuple[int, ...]
    norm: Normalization

    def scale(self, parameter: Parameter | None) -> Operand:
        """Give a scale; ones where there is none, for the operators demand one."""
        return self.filled(1.0) if parameter is None else self.give(parameter, "scale")

    def filled(self, value: float) -> Computed:
        """Give a constant of one value."""
        kind = "ones" if value else "zeros"
        name = f"{self.norm.y.name}_{kind}"
        return Computed(self.shape, self.dtype, lambda: np.full(self.shape, value), name)

    def give(self, parameter: Parameter, what: str) -> Operand:
        """Give a parameter in the operator's shape: the tensor itself where it has it."""
        tensor = None if parameter.tensor is None else _without_alias(parameter.tensor)
        compute = parameter.compute
        fits = tensor is not None and (tensor.dtype, tensor.shape) == (self.dtype, self.shape)
        if tensor is not None and fits and (tensor.is_constant or compute is None):
            return tensor
        if compute is not None:
            name = tensor.name if tensor is not None else f"{self.norm.y.name}_{what}"

            def values() -> Array:
                return self._in_shape(compute())

            return Computed(self.shape, self.dtype, values, name)
        return self._reshaped(parameter)

    def broadcast(self, parameter: Parameter) -> Operand:
        """Give a parameter as the operand of an elementwise operator."""
        tensor, compute = parameter.tensor, parameter.compute
        if tensor is not None and tensor.dtype == self.dtype and _stands_as(tensor, parameter):
            return _without_alias(tensor)
        if compute is None or parameter.shape is None:
            at = parameter.tensors[0] if parameter.tensors else self.norm.anchor
            raise refuse(Reason.WEIGHTS_NOT_CONSTANT, at, "scale or bias is computed at run time")
        return Computed(parameter.shape, self.dtype, compute)

    def _in_shape(self, values: Array) -> Array:
        """Drop the leading extents of 1 and spread over the others."""
        width = len(self.shape)
        if values.size == math.prod(self.shape):
            return values.reshape(self.shape)
        if values.size == 1:
            return np.broadcast_to(values.reshape(-1)[0], self.shape)
        lead = max(values.ndim - width, 0)
        return np.broadcast_to(values.reshape(values.shape[lead:]), self.shape)

    def _reshaped(self, parameter: Parameter) -> Operand:
        """Bring a tensor that a caller may override into the operator's shape at run time."""
        tensor = parameter.tensor
        size = math.prod(self.shape)
        if tensor is None or tensor.dtype != self.dtype or not _holds(tensor, size):
            at = parameter.tensors[0] if parameter.tensors else self.norm.anchor
            raise refuse(Reason.WEIGHTS_NOT_CONSTANT, at, "scale or bias is computed at run time")
        target = Computed(
            (len(self.shape),), TensorProto.INT64, lambda: np.asarray(self.shape, np.int64)
        )
        return NewNode("Reshape", (tensor, target), like=self.norm.anchor)


def _stands_as(tensor: Tensor, parameter: Parameter) -> bool:
    """Whether a tensor broadcasts to x as the parameter does, without another shape."""
    shape, aligned = static(tensor.shape), parameter.shape
    if shape is None or aligned is None:
        return shape is not None
    return (1,) * (len(aligned) - len(shape)) + shape == aligned


def _without_alias(tensor: Tensor) -> Tensor:
    """Give the tensor that another one is by way of Identity alone."""
    for node in above(tensor):
        if node.op != "Identity":
            break
        tensor = node.inputs[0]
    return tensor


def _holds(tensor: Tensor, size: int) -> bool:
    extents = [extent for extent in tensor.shape or (0,) if isinstance(extent, int)]
    return len(extents) == len(tensor.shape or (0,)) and math.prod(extents) == size
