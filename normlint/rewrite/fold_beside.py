"""A BatchNorm beside a convolution of the same input, both summed, as a block of RepVGG is trained.

BatchNorm(x) + Conv(x) = Conv'(x): a convolution that keeps the extents of the image has a tap that
reads the place which it writes. There each channel takes the scale of its own; the bias takes the
shift. Padding does not matter, for that tap never reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.fold_outputs import has_activation, rebuilt
from normlint.rewrite.fold_quantized import behind_dequantize
from normlint.rewrite.fold_sums import is_sum
from normlint.rewrite.fold_weights import check_shift, computed, type_of, vector
from normlint.rule import NewNode, Redirect, Replace

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rule import Computed, Edit, Operand

    Array = np.ndarray[Any, Any]

_MOST = 16
"""Sums in a row, and parts of them, that are looked through."""


class Beside:
    """Finds the convolution beside a scale and shift, and what it becomes; one use each."""

    def __init__(self, anchor: Node, weights: Weights) -> None:
        self.anchor = anchor
        self.weights = weights
        self.linear: list[Node] = []
        self.nodes: list[Node] = [anchor]

    def fold(self, source: Tensor, axis: int, affine: Affine) -> tuple[Edit, ...] | None:
        """Give the edits that take the anchor and its sum away; None where nothing is beside it."""
        total = self._sum_of(self.anchor.y)
        if total is None or axis != 1 or not affine.is_finite:
            return None
        rest = [tensor for tensor in total.inputs if tensor is not self.anchor.y]
        conv = self._convolution(rest, source)
        place = None if conv is None else _own_tap(conv, source, affine.channels)
        if conv is None or place is None:
            return None
        self.linear.append(conv)
        self.nodes += [conv, total]
        try:
            recipe = self._recipe(conv, place, affine)
        except Blocked:
            return None
        if rest == [conv.y]:
            return (Replace((total.y,), recipe),)
        return (Replace((conv.y,), recipe), _without(total, rest))

    def _sum_of(self, tensor: Tensor) -> Node | None:
        """Give the sum that is all that reads a tensor, in the same graph."""
        readers = set(tensor.consumers)
        if tensor.is_output or len(readers) != 1:
            return None
        reader = readers.pop()
        return reader if reader.graph is self.anchor.graph and _adds(reader) else None

    def _convolution(self, parts: list[Tensor], source: Tensor) -> Node | None:
        """Search the parts of a sum, and what they are sums of, for a convolution of the source."""
        pending = list(parts)
        for _ in range(_MOST):
            if not pending:
                return None
            tensor = pending.pop()
            node = tensor.producer
            if node is None or tensor.is_output or len(set(tensor.consumers)) != 1:
                continue
            if node.graph is not self.anchor.graph:
                continue
            if node.op == "Conv" and node.is_standard and node.inputs[0] is source:
                return node
            if _adds(node):
                self.nodes.append(node)
                pending.extend(node.inputs)
        return None

    def _recipe(self, conv: Node, place: tuple[int, ...], affine: Affine) -> NewNode:
        weight = self.weights.require(conv.input(1), conv)
        shape = self.weights.shape(weight)
        bias = None if conv.input(2) is None else self.weights.require(conv.input(2), conv)
        channels = np.arange(shape[0])

        def compute() -> Array:
            values = np.array(self.weights.values(weight))
            own: tuple[Any, ...] = (channels, channels % shape[1], *place)
            values[own] += affine.scale
            return values

        dtype = type_of(conv, weight)
        inputs: dict[int, Operand] = {1: computed(shape, dtype, compute, weight.name, conv)}
        if affine.has_shift:
            inputs[2] = self._bias(conv, bias, affine, dtype)
        return rebuilt(conv, inputs)

    def _bias(self, conv: Node, bias: Tensor | None, affine: Affine, dtype: int) -> Computed:
        shift = affine.shift
        name = f"{conv.y.name}_bias"
        if bias is not None:
            shift, name = shift + self.weights.vector(bias, conv), bias.name
            dtype = type_of(conv, bias)
        check_shift(shift, dtype, conv)
        return vector(shift, dtype, name)


def _adds(node: Node) -> bool:
    """Whether a node adds different computed tensors."""
    return is_sum(node) and node.op != "Sub" and len(set(node.inputs)) == len(node.inputs) > 1


def _without(total: Node, rest: list[Tensor]) -> Edit:
    """Give a sum of fewer parts."""
    if len(rest) == 1:
        return Redirect(total.y, rest[0])
    return Replace((total.y,), NewNode(total.op, tuple(rest), total.attrs, total))


def _own_tap(conv: Node, source: Tensor, channels: int) -> tuple[int, ...] | None:
    """Find the tap by which a convolution reads the place that it writes; None without one."""
    kernel = _kernel(conv, channels)
    if kernel is None or source.rank not in {None, len(kernel) + 2}:
        return None
    count = len(kernel)
    dilations = conv.attrs.get("dilations") or [1] * count
    pads = _pads(conv, kernel, dilations)
    place = []
    for k, (taps, step) in enumerate(zip(kernel, dilations, strict=True)):
        before, after = pads[k], pads[k + count]
        if before + after != step * (taps - 1) or before % step or before // step >= taps:
            return None
        place.append(before // step)
    return tuple(place)


def _kernel(conv: Node, channels: int) -> list[int] | None:
    """Give the extents of a kernel that makes as many channels as it reads, place by place."""
    weight, attrs = conv.input(1), conv.attrs
    shape = None if weight is None else weight.shape
    if weight is None or shape is None or behind_dequantize(weight) is not None:
        return None
    known = [extent for extent in shape if isinstance(extent, int)]
    if len(known) != len(shape) or any(step != 1 for step in attrs.get("strides") or ()):
        return None
    made, read, *kernel = known
    fits = made == channels == read * int(attrs.get("group", 1))
    return kernel if fits and not has_activation(conv) else None


def _pads(conv: Node, kernel: list[int], dilations: list[int]) -> list[int]:
    """Give the zeros in front, then behind, of every axis."""
    count = len(kernel)
    auto = conv.attrs.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return list(conv.attrs.get("pads") or [0] * (2 * count))
    if auto == "VALID":
        return [0] * (2 * count)
    totals = [step * (taps - 1) for taps, step in zip(kernel, dilations, strict=True)]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return [*less, *more] if auto == "SAME_UPPER" else [*more, *less]
