"""One use of a scaled and shifted tensor by a linear operator, and what comes in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.linear import Blocked
from normlint.deferred import dataclass
from normlint.rewrite.fold_quantized import behind_dequantize
from normlint.rewrite.fold_weights import Scaled, type_of
from normlint.rule import NewNode, Reason

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rule import Operand


@dataclass(frozen=True, eq=False)
class Absorbed:
    """New nodes in place of a linear operator."""

    tensors: tuple[Tensor | None, ...]
    """What they compute."""
    by: NewNode
    nodes: tuple[Node, ...]
    """The nodes whose place they take."""
    added: int = 0
    """How many nodes more they are than before."""
    map_bytes: int = 0
    """Memory of the constant image that takes up a shift."""


@dataclass(frozen=True, eq=False)
class Use:
    """One use of a scaled and shifted tensor by a node."""

    node: Node
    position: int
    """Which input it is."""
    source: Tensor
    """What the new node reads instead."""
    axis: int
    affine: Affine
    weights: Weights


def scaled_weight(use: Use, position: int, along: int, shape: tuple[int, ...]) -> Operand:
    """Give the weight at a position times the scale, along one of its axes. Raises Blocked."""
    node = use.node
    weight = node.inputs[position]
    if behind_dequantize(weight) is not None:
        raise Blocked(
            Reason.QUANTIZED_BETWEEN, node, f"the weight of {node.op} is quantised for each output"
        )
    if shape[along] != use.affine.channels:
        raise Blocked(Reason.BROADCAST, node, f"{node.op} reads {shape[along]} channels")
    factor = use.affine.scale.reshape(tuple(-1 if k == along else 1 for k in range(len(shape))))
    scaled = Scaled(weight, use.weights, factor, shape, type_of(node, weight))
    if scaled.is_same:
        return weight
    scaled.check(node)
    return scaled.constant()
