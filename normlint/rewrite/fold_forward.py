"""Forward: from a scale and shift to the linear operators that read what it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.context.linear import (
    LINEAR,
    Blocked,
    downstream,
    linear_beyond,
    obstacle,
    shape_readers,
)
from normlint.context.passages import PASSAGES
from normlint.rewrite.fold_inputs import scale_inputs
from normlint.rewrite.fold_use import Use
from normlint.rewrite.fold_weights import vector
from normlint.rule import NewNode, NotFixed, Reason, Redirect, Replace

if TYPE_CHECKING:
    from normlint.context.linear import Passage
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rewrite.fold_use import Absorbed
    from normlint.rule import Edit, Operand

_NARROW = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
_MOST = 256
"""Tensors downstream that are followed."""


class Forward:
    """Finds out whether a scale and shift can go forward, and how; one use each."""

    def __init__(self, anchor: Node, weights: Weights) -> None:
        self.anchor = anchor
        self.weights = weights
        self.nodes: list[Node] = [anchor]
        self.linear: list[Node] = []
        self.edits: list[Edit] = []
        self.added = 0
        """How many nodes the new linear operators are more than the old ones."""
        self.map_bytes = 0
        """Memory of the constant image that takes up a shift."""

    def fold(self, source: Tensor, axis: int, affine: Affine) -> tuple[Edit, ...]:
        """Give the edits after which everybody reads `source` instead. Raises Blocked."""
        target = self.anchor.y
        if not affine.is_finite:
            raise Blocked(Reason.WOULD_OVERFLOW, self.anchor, "a scale or shift is not finite")
        if target.dtype != source.dtype:
            raise Blocked(Reason.TYPE_MISMATCH, source, f"{source.name} has another element type")
        pending = [(target, axis, affine)]
        for _ in range(_MOST):
            if not pending:
                return (Redirect(target, source), *self.edits)
            tensor, along, given = pending.pop()
            pending.extend(self._readers(tensor, source, along, given))
        raise Blocked(Reason.NO_LINEAR_NEIGHBOUR, target, "no linear operator is near")

    def _readers(
        self, tensor: Tensor, source: Tensor, axis: int, affine: Affine
    ) -> list[tuple[Tensor, int, Affine]]:
        """Let every reader take it up; give the tensors behind those that let it pass."""
        aside = shape_readers(tensor)
        self.nodes.extend(aside)
        readers = [node for node in dict.fromkeys(tensor.consumers) if node not in aside]
        if not readers:
            raise Blocked(Reason.NO_LINEAR_NEIGHBOUR, tensor, f"no node reads {tensor.name}")
        if tensor.is_output:
            if not any(self._leads_on(node) for node in readers):
                raise _blocked(obstacle(readers[0], up=False))
            detail = f"{tensor.name} is an output of the graph"
            raise Blocked(Reason.GRAPH_OUTPUT, tensor, detail)
        onward: list[tuple[Tensor, int, Affine]] = []
        for node in readers:
            try:
                onward.extend(self._reader(node, tensor, source, axis, affine))
            except Blocked as blocked:
                raise self._explained(blocked, node, readers) from blocked
        return onward

    def _explained(self, blocked: Blocked, node: Node, readers: list[Node]) -> Blocked:
        """Blame the one reader that cannot, where others could."""
        others = [reader for reader in readers if reader is not node]
        if blocked.not_fixed.reason is Reason.NO_LINEAR_NEIGHBOUR:
            for other in others:
                also = obstacle(other, up=False)
                if also.reason is Reason.ACTIVATION_BETWEEN:
                    return _blocked(also)
        if any(reader.op in LINEAR for reader in others) and node.op not in LINEAR:
            detail = f"{node.op} reads it as well and cannot take it up"
            return Blocked(Reason.OTHER_READER, node, detail)
        return blocked

    def _reader(
        self, node: Node, tensor: Tensor, source: Tensor, axis: int, affine: Affine
    ) -> list[tuple[Tensor, int, Affine]]:
        if node.graph is not self.anchor.graph:
            raise Blocked(Reason.OTHER_READER, node, f"{node.op} reads it from a subgraph")
        positions = [k for k, given in enumerate(node.inputs) if given is tensor]
        if len(positions) > 1:
            raise _blocked(obstacle(node, up=False))
        given = source if tensor is self.anchor.y else tensor
        use = Use(node, positions[0], given, axis, affine, self.weights)
        absorbed = None if self._is_pair(node) else scale_inputs(use)
        if absorbed is not None:
            self.nodes.extend(absorbed.nodes)
            self.linear.append(node)
            self.added += absorbed.added
            self._note_map(absorbed)
            self.edits.append(Replace(absorbed.tensors, absorbed.by))
            return []
        passages = self._passages(node, tensor, axis, affine)
        _check_narrowing(node, affine)
        self.nodes.append(node)
        if passages[0].pad is not None:
            self._pad(node, given, passages[0], affine)
        onward = [
            (passage.tensor, passage.axis, affine.across(passage))
            for passage in passages
            if passage.tensor.consumers or passage.tensor.is_output
        ]
        if not onward:
            raise Blocked(
                Reason.NO_LINEAR_NEIGHBOUR, node, f"no node reads what {node.op} computes"
            )
        return onward

    def _note_map(self, absorbed: Absorbed) -> None:
        """Note a constant image; two of them are more work than what they stand for."""
        if absorbed.map_bytes and self.map_bytes:
            detail = "more than one convolution would need a map for its bias"
            raise Blocked(Reason.PADDING, absorbed.nodes[0], detail)
        self.map_bytes += absorbed.map_bytes

    def _is_pair(self, node: Node) -> bool:
        """Whether it is a BatchNormalization after another: the second is merged backward."""
        return node.op == self.anchor.op == "BatchNormalization"

    def _passages(self, node: Node, tensor: Tensor, axis: int, affine: Affine) -> list[Passage]:
        try:
            found = downstream(node, tensor, axis, affine.channels, self.weights.constants)
            for passage in found or ():
                affine.check(passage, node)
        except Blocked as blocked:
            if linear_beyond(node.outputs, up=False) is None:
                raise _blocked(obstacle(node, up=False)) from blocked
            raise
        if not found:
            raise _blocked(obstacle(node, up=False))
        return found

    def _leads_on(self, node: Node) -> bool:
        if node.op in LINEAR:
            return True
        return node.op in PASSAGES and linear_beyond(node.outputs, up=False) is not None

    def _pad(self, node: Node, source: Tensor, passage: Passage, affine: Affine) -> None:
        """Replace a Pad by one whose constant makes up for the scale and shift behind it."""
        value = affine.pad_after(passage.pad or 0.0, node)
        if value == passage.pad:
            return
        rest: list[Operand] = [tensor if tensor.name else None for tensor in node.inputs[1:]]
        attrs = dict(node.attrs)
        if rest:
            rest.extend([None] * (2 - len(rest)))
            dtype = node.y.dtype or source.dtype
            rest[1] = vector(np.asarray(value), dtype, f"{node.y.name}_value")
        else:
            attrs["value"] = value
        self.edits.append(Replace((node.y,), NewNode("Pad", (source, *rest), attrs, node)))


def _check_narrowing(node: Node, affine: Affine) -> None:
    """Raise Blocked where a Cast would round, or cut off, what is not scaled and shifted yet."""
    if node.op != "Cast" or node.y.dtype not in _NARROW or node.inputs[0].dtype in _NARROW:
        return
    if affine.has_shift or np.any(np.abs(affine.scale) < 1):
        detail = "a Cast to half precision stands between, and would come first"
        raise Blocked(Reason.TYPE_MISMATCH, node, detail)


def _blocked(not_fixed: NotFixed) -> Blocked:
    return Blocked(not_fixed.reason, not_fixed.at, not_fixed.detail)
