"""Weights behind a DequantizeLinear: a factor goes into its scale, the integers stay.

W = (q - z) * S. A factor s > 0 makes S' = s * S. A negative one makes S' = |s| * S and turns the
sign of q - z, which is exact: q' = -q where z = 0, else both are mirrored in the range of the type.

A bias that was quantised becomes a float one, which is exact. As an integer of scale s_x s_w |s| it
would be off by up to half a step of the integer product, and nothing would be won: ONNX Runtime
makes one integer kernel of the convolution either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx

from normlint.context.linear import Blocked
from normlint.deferred import dataclass
from normlint.model import ValuesUnavailable
from normlint.rewrite.fold_weights import check_scale, vector
from normlint.rule import Computed, NewNode, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rule import Operand

    Array = np.ndarray[Any, Any]

_integer_limits: Callable[[Any], Any] = ml_dtypes.iinfo
_PER_CHANNEL_SINCE = 13
_FAR = 16


def behind_dequantize(tensor: Tensor) -> Node | None:
    """Give the DequantizeLinear that a constant weight is computed by; None where there is none."""
    pending = [tensor]
    for _ in range(_FAR):
        if not pending:
            return None
        producer = pending.pop().producer
        if producer is None:
            continue
        if producer.op == "DequantizeLinear":
            return producer
        pending.extend(producer.inputs)
    return None


def scale_dequantize(
    node: Node, weight: Tensor, axis: int, affine: Affine, weights: Weights, *, groups: int = 1
) -> NewNode:
    """Describe the weight times a scale for each entry of its `axis`, from the same integers.

    Raises Blocked.
    """
    steps, dequantize, axis = _path(weight, axis)
    scale = affine.scale
    if groups > 1:
        parts = scale.reshape(groups, -1)
        if not np.all(parts == parts[0]):
            raise Blocked(
                Reason.BROADCAST,
                node,
                "each group of the quantised weight needs a scale of its own",
            )
        scale = parts[0]
    recipe: NewNode = _Dequantized(dequantize, axis, scale, weights).recipe()
    for step in reversed(steps):
        recipe = NewNode(step.op, (recipe, *step.inputs[1:]), step.attrs, step)
    return recipe


def _path(weight: Tensor, axis: int) -> tuple[list[Node], Node, int]:
    """Walk from a weight to its DequantizeLinear through Transposes; map the axis."""
    steps: list[Node] = []
    tensor = weight
    while (producer := tensor.producer) is not None and producer.op != "DequantizeLinear":
        if producer.op == "Transpose" and tensor.rank is not None:
            axis = list(producer.attrs.get("perm") or range(tensor.rank)[::-1])[axis]
        elif producer.op != "Identity":
            raise Blocked(
                Reason.QUANTIZED_BETWEEN, producer, f"{producer.op} works on the dequantised weight"
            )
        steps.append(producer)
        tensor = producer.inputs[0]
    if producer is None:
        raise Blocked(
            Reason.QUANTIZED_BETWEEN, weight, "the weight is computed from a quantised one"
        )
    return steps, producer, axis


@dataclass(frozen=True, eq=False)
class _Dequantized:
    node: Node
    axis: int
    factor: Array
    weights: Weights

    def recipe(self) -> NewNode:
        node = self.node
        integers = self.weights.require(node.inputs[0], node)
        shape = self._scale_shape(len(self.weights.shape(integers)))
        along = self._along(shape)
        old = self._read(node.inputs[1]).reshape(shape)
        factor = np.abs(self.factor).reshape(along)
        # A scale of zero is not portable: the integers of such a channel become the zero point.
        new = old * np.where(factor == 0, 1.0, factor)
        check_scale(new, old, node.inputs[1].dtype, node)
        inputs: list[Operand] = [
            self._integers(integers),
            vector(new, node.inputs[1].dtype, node.inputs[1].name),
        ]
        zero = self._zero_point(new.shape, along)
        if zero is not None:
            inputs.append(vector(zero, integers.dtype, f"{integers.name}_zero_point"))
        attrs = {key: value for key, value in node.attrs.items() if key != "axis"}
        if new.ndim == 1:
            attrs["axis"] = self.axis
        elif "axis" in node.attrs:
            attrs["axis"] = node.attrs["axis"]
        return NewNode("DequantizeLinear", tuple(inputs), attrs, node)

    def _scale_shape(self, rank: int) -> tuple[int, ...]:
        """Give the shape in which the old scale broadcasts along the axis. Raises Blocked."""
        node = self.node
        scale = self.weights.require(node.inputs[1], node)
        shape = self.weights.shape(scale)
        own = int(node.attrs.get("axis", 1)) % rank
        if int(np.prod(shape)) == 1:
            if node.graph.opset < _PER_CHANNEL_SINCE:
                raise Blocked(Reason.OPSET, node, "a scale for each channel needs opset 13 or more")
            return (1,)
        if node.attrs.get("block_size"):
            if own == self.axis:
                raise Blocked(
                    Reason.CHANNEL_AXIS_MOVED, node, "the weight is quantised in blocks of channels"
                )
            return shape
        if own != self.axis:
            raise Blocked(
                Reason.CHANNEL_AXIS_MOVED, node, "the weight's scale runs along another axis"
            )
        return shape

    def _along(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) == 1:
            return (-1,)
        return tuple(-1 if k == self.axis else 1 for k in range(len(shape)))

    def _read(self, tensor: Tensor) -> Array:
        return self.weights.vector(tensor, self.node)

    def _zeros(self) -> Array:
        tensor = self.node.input(2)
        return np.zeros(1) if tensor is None else self._read(tensor)

    def _limits(self, dtype: int) -> tuple[int, int] | None:
        """Give the least and greatest integer of a type; None for a float type."""
        try:
            info = _integer_limits(onnx.helper.tensor_dtype_to_np_dtype(dtype))
        except ValueError:
            return None
        return int(info.min), int(info.max)

    def _mirrors(self) -> bool:
        """Whether sign changes go by mirroring in the range of the type, with the zero point."""
        limits = self._limits(self.node.inputs[0].dtype)
        return limits is not None and (limits[0] == 0 or bool(np.any(self._zeros() != 0)))

    def _zero_point(self, shape: tuple[int, ...], along: tuple[int, ...]) -> Array | None:
        tensor = self.node.input(2)
        flips = bool(np.any(self.factor < 0)) and self._mirrors()
        if tensor is None and not flips:
            return None
        zeros = self._zeros()
        zeros = zeros.reshape(shape) if zeros.size > 1 else np.broadcast_to(zeros, shape)
        limits = self._limits(self.node.inputs[0].dtype)
        if not flips or limits is None:
            return zeros
        return np.where(self.factor.reshape(along) < 0, sum(limits) - zeros, zeros)

    def _integers(self, integers: Tensor) -> Operand:
        """Give the integers: the same tensor where no factor is negative or zero."""
        if np.all(self.factor > 0):
            return integers
        limits = self._limits(integers.dtype)
        shape = self.weights.shape(integers)
        along = tuple(-1 if k == self.axis else 1 for k in range(len(shape)))
        negative, off = (self.factor < 0).reshape(along), (self.factor == 0).reshape(along)
        mirrors = self._mirrors()
        if np.any(off) and self.node.attrs.get("block_size"):
            raise Blocked(
                Reason.BROADCAST, self.node, "a channel of a blocked weight is switched off"
            )
        zeros = self._zeros()
        zeros = zeros.reshape(along) if zeros.size > 1 else zeros.reshape(())
        if limits is not None and limits[0] < 0 and not mirrors:
            self._refuse_least(integers, negative, limits[0])

        def compute() -> Array:
            values = self.weights.values(integers)
            turned = sum(limits) - values if limits is not None and mirrors else -values
            return np.where(off, zeros, np.where(negative, turned, values))

        return Computed(shape, integers.dtype, compute, integers.name)

    def _refuse_least(self, integers: Tensor, negative: Array, least: int) -> None:
        if not negative.any():
            return
        try:
            values = self.weights.values(integers)
        except ValuesUnavailable as fault:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, integers, str(fault)) from fault
        if np.any((values == least) & negative):
            raise Blocked(
                Reason.WOULD_OVERFLOW, self.node, f"{least} has no opposite in its integer type"
            )
