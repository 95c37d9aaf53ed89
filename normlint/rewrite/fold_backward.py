"""Backward: from a scale and shift to the linear operators that compute what it acts on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.context.linear import (
    LINEAR,
    Blocked,
    linear_beyond,
    obstacle,
    shape_readers,
    upstream,
)
from normlint.context.passages import PASSAGES
from normlint.rewrite.affine import Affine, Elementwise, elementwise
from normlint.rewrite.fold_outputs import scale_outputs
from normlint.rewrite.fold_quantized import behind_dequantize
from normlint.rewrite.fold_sums import carrier_of, has_small_factor, is_sum, parts_of, product_of
from normlint.rewrite.fold_weights import check_shift, computed
from normlint.rewrite.fold_wraps import Tap, rebuild, shifted, wrapped
from normlint.rule import NewNode, NotFixed, Reason, Redirect, Replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.linear import Passage
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Weights
    from normlint.rewrite.fold_sums import Part, Product
    from normlint.rule import Edit, Operand

    Array = np.ndarray[Any, Any]
    Wrap = Callable[[Operand], Operand]

_LONGEST = 64
"""Nodes between a scale and shift and its linear operator."""
_DEEPEST = 8
"""Concats in a row that are followed into all their branches."""


class Backward:
    """Finds out whether a scale and shift can go backward, and how; one use each."""

    def __init__(self, anchor: Node, weights: Weights) -> None:
        self.anchor = anchor
        self.weights = weights
        self.nodes: list[Node] = [anchor]
        """Nodes that the rewrite takes the place of."""
        self.linear: list[Node] = []
        """Linear operators that take it up."""
        self.merged: list[Node] = []
        """Further Mul, Add, Sub, Div that are taken up with it."""
        self.edits: list[Edit] = []
        self.quantized = False
        """Whether the weights are behind a DequantizeLinear."""

    def fold(self, source: Tensor, axis: int, affine: Affine) -> tuple[Edit, ...]:
        """Give the edits that replace the anchor's output. Raises Blocked."""
        if not affine.is_finite:
            raise Blocked(Reason.WOULD_OVERFLOW, self.anchor, "a scale or shift is not finite")
        operand = self.pull(source, axis, affine, 0)
        target = self.anchor.y
        if isinstance(operand, NewNode):
            return (*self.edits, Replace((target,), operand))
        return (*self.edits, Redirect(target, operand))  # type: ignore[arg-type] # a Split's output

    def pull(self, tensor: Tensor, axis: int, affine: Affine, depth: int) -> Operand:
        """Describe `affine` of a tensor, taken up by what computes it. Raises Blocked."""
        wraps: list[Wrap] = []
        for _ in range(_LONGEST):
            if depth and self.weights.constants.is_constant(tensor):
                return wrapped(self._constant(tensor, axis, affine), wraps)
            node = self._producer(tensor)
            self._tap(tensor, wraps, depth)
            step = elementwise(node, self.weights.constants)
            if step is not None:
                affine = self._arithmetic(step, axis, affine, wraps)
                tensor = step.x
                continue
            recipe = scale_outputs(node, axis, affine, self.weights)
            if recipe is not None:
                self._note(node, affine)
                return wrapped(recipe, wraps)
            product = product_of(node, axis, affine, self.weights)
            if product is not None:
                return wrapped(self._product(product, axis, affine), wraps)
            if is_sum(node):
                return wrapped(self._sum(node, axis, affine, depth), wraps)
            passages = self._passages(node, tensor, axis, affine)
            self.nodes.append(node)
            if node.op == "Concat":
                return wrapped(self._concat(node, passages, affine, depth), wraps)
            if len(node.outputs) > 1 and node.op == "Split":
                return wrapped(self._split(node, tensor, passages[0], affine, depth), wraps)
            wraps.append(rebuild(node, passages[0], affine))
            affine = affine.across(passages[0])
            tensor, axis = passages[0].tensor, passages[0].axis
        raise Blocked(Reason.NO_LINEAR_NEIGHBOUR, tensor, "no linear operator is near")

    def _producer(self, tensor: Tensor) -> Node:
        """Give the node that computes a tensor which nobody else needs. Raises Blocked."""
        node = tensor.producer
        if node is None or node.graph is not self.anchor.graph:
            what = (
                "is computed outside of the subgraph"
                if node is not None
                else "is computed by no node"
            )
            raise Blocked(Reason.NO_LINEAR_NEIGHBOUR, tensor, f"{tensor.name} {what}")
        hindrance = self._hindrance(tensor)
        if hindrance is None:
            return node
        if not self._leads_on(node):
            raise _blocked(obstacle(node, up=True))
        raise _blocked(hindrance)

    def _tap(self, tensor: Tensor, wraps: list[Wrap], depth: int) -> None:
        """Let those who read the extents of a tensor read those of what takes its place."""
        for reader in shape_readers(tensor):
            self.nodes.append(reader)
            outermost = not depth and all(isinstance(wrap, Tap) for wrap in wraps)
            wraps.append(Tap(reader, tensor, self.edits, self.anchor.y if outermost else None))

    def _hindrance(self, tensor: Tensor) -> NotFixed | None:
        if tensor.is_output:
            return NotFixed(Reason.GRAPH_OUTPUT, tensor, f"{tensor.name} is an output of the graph")
        readers = set(tensor.consumers).difference(shape_readers(tensor))
        if len(readers) == 1:
            return None
        other = next((node for node in tensor.consumers if node in readers - set(self.nodes)), None)
        return NotFixed(
            Reason.OTHER_READER, other, f"{tensor.name} is read by another node as well"
        )

    def _leads_on(self, node: Node) -> bool:
        """Whether a linear operator could be reached by way of a node."""
        if node.op in LINEAR or node.op == "BatchNormalization":
            return True
        if has_small_factor(node, self.weights):
            return True
        passes = node.op in PASSAGES or elementwise(node, self.weights.constants) is not None
        if not passes and is_sum(node):
            return all(_is_reached(tensor) for tensor in node.inputs)
        return passes and linear_beyond(node.inputs, up=True) is not None

    def _passages(self, node: Node, tensor: Tensor, axis: int, affine: Affine) -> list[Passage]:
        try:
            found = upstream(node, tensor, axis, affine.channels, self.weights.constants)
            for passage in found or ():
                affine.check(passage, node)
        except Blocked as blocked:
            if linear_beyond(node.inputs, up=True) is None:
                raise _blocked(obstacle(node, up=True)) from blocked
            raise
        if not found:
            raise _blocked(obstacle(node, up=True))
        return found

    def _note(self, node: Node, affine: Affine) -> None:
        """Note the linear operator that takes it up, if its type is wide enough."""
        narrow = node.y.dtype == TensorProto.FLOAT16 != self.anchor.y.dtype
        if narrow and np.any(np.abs(affine.scale) > 1):
            raise Blocked(
                Reason.TYPE_MISMATCH, node, f"{node.op} computes in float16, whose range may not do"
            )
        self.nodes.append(node)
        self.linear.append(node)
        for tensor in node.inputs[:2]:
            dequantize = behind_dequantize(tensor)
            if dequantize is not None and self.weights.constants.is_constant(tensor):
                self.quantized = True

    def _arithmetic(
        self, step: Elementwise, axis: int, affine: Affine, wraps: list[Wrap]
    ) -> Affine:
        """Take up a Mul, Add, Sub or Div by a constant; give what is left for its input."""
        varies = step.varies()
        along = varies is not None and all(a == axis for a in varies)
        if along:
            inner = step.affine(axis, affine.channels, self.weights)
            self.nodes.append(step.node)
            self.merged.append(step.node)
            return affine.after(inner)
        if step.node.op not in {"Add", "Sub"}:
            raise Blocked(
                Reason.CHANNEL_AXIS_MOVED,
                step.node,
                f"the constant of {step.node.op} varies along other axes",
            )
        wraps.append(shifted(step, axis, affine, self.weights))
        self.nodes.append(step.node)
        return affine.without_shift()

    def _concat(self, node: Node, passages: list[Passage], affine: Affine, depth: int) -> NewNode:
        if depth >= _DEEPEST:
            raise Blocked(Reason.NO_LINEAR_NEIGHBOUR, node, "too many Concats in a row")
        if len({passage.tensor for passage in passages}) < len(passages):
            raise Blocked(Reason.OTHER_READER, node, "Concat reads the same tensor twice")
        parts = tuple(
            self.pull(passage.tensor, passage.axis, affine.across(passage), depth + 1)
            for passage in passages
        )
        return NewNode("Concat", parts, node.attrs, node)

    def _product(self, product: Product, axis: int, affine: Affine) -> NewNode:
        """Let the small factor of a product take the scale."""
        recipe = product.recipe(axis, affine, self.weights)
        self.nodes += [product.node, product.step.node]
        self.linear.append(product.node)
        self.quantized = self.quantized or product.is_quantized
        return recipe

    def _sum(self, node: Node, axis: int, affine: Affine, depth: int) -> NewNode:
        """Let every part of a sum take the scale, and one of them the shift."""
        if depth >= _DEEPEST:
            raise Blocked(Reason.NO_LINEAR_NEIGHBOUR, node, "too many sums in a row")
        self.nodes.append(node)
        try:
            parts = parts_of(node, axis, affine.channels)
            return self._parts(node, parts, affine, depth)
        except Blocked as blocked:
            if linear_beyond(node.inputs, up=True) is None:
                raise _blocked(obstacle(node, up=True)) from blocked
            raise

    def _parts(self, node: Node, parts: list[Part], affine: Affine, depth: int) -> NewNode:
        carrier = carrier_of(parts, self.weights)
        unscaled = bool(np.all(affine.scale == 1))
        operands: list[Operand] = []
        for part in parts:
            if part is not carrier and unscaled:
                operands.append(part.tensor)
                continue
            given = affine if part is carrier else affine.without_shift()
            if part.sign < 0:
                given = Affine(given.scale, -given.shift)
            try:
                operands.append(self.pull(part.tensor, part.axis, given, depth + 1))
            except Blocked as blocked:
                reason, at = blocked.not_fixed.reason, blocked.not_fixed.at
                detail = f"{node.op} adds what cannot take it up: {blocked.not_fixed.detail}"
                raise Blocked(reason, at, detail) from blocked
        return NewNode(node.op, tuple(operands), node.attrs, node)

    def _constant(self, tensor: Tensor, axis: int, affine: Affine) -> Operand:
        """Give a constant part of a Concat, scaled and shifted."""
        shape = self.weights.shape(tensor)
        along = tuple(-1 if k == axis else 1 for k in range(len(shape)))
        check_shift(affine.shift, tensor.dtype, self.anchor)

        def compute() -> Array:
            values = self.weights.values(tensor)
            return np.asarray(affine.scale.reshape(along) * values + affine.shift.reshape(along))

        return computed(shape, tensor.dtype, compute, tensor.name, self.anchor)

    def _split(
        self, node: Node, tensor: Tensor, passage: Passage, affine: Affine, depth: int
    ) -> Tensor:
        """Let one part of a Split change and the others stay; the parts keep their tensors."""
        if depth:
            raise Blocked(Reason.OTHER_READER, node, "Split has other parts")
        source = self.pull(passage.tensor, passage.axis, affine.across(passage), depth + 1)
        recipe = NewNode(
            "Split", (source, *node.inputs[1:]), node.attrs, node, outputs=len(node.outputs)
        )
        self.edits.append(Replace(tuple(t if t.name else None for t in node.outputs), recipe))
        return tensor


def _is_reached(tensor: Tensor) -> bool:
    """Whether a linear operator computes a tensor, with nothing but layout between."""
    for _ in range(_LONGEST):
        node = tensor.producer
        if node is None:
            return False
        if node.op in LINEAR or node.op == "BatchNormalization":
            return True
        if node.op not in PASSAGES:
            return False
        tensor = node.inputs[0]
    return False


def _blocked(not_fixed: NotFixed) -> Blocked:
    return Blocked(not_fixed.reason, not_fixed.at, not_fixed.detail)
