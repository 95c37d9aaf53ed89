"""Sums and products of computed tensors in front of a scale and shift.

Of a sum every part takes the scale, and one of them the shift: s (a + b) + t = (s a + t) + s b.
Where the scale is 1, the others stay as they are. Of a product one factor takes the scale: worth it
where that is small and is multiplied by a constant itself, as behind the integer products of
dynamic quantisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import INTEGER_LINEAR, LINEAR, Blocked
from normlint.deferred import dataclass
from normlint.rewrite.affine import elementwise
from normlint.rewrite.fold_outputs import added
from normlint.rewrite.fold_weights import check_scale, check_shift, vector
from normlint.rule import NewNode, Reason

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Elementwise, Weights
    from normlint.rule import Operand

    Array = np.ndarray[Any, Any]

SUMS = frozenset(("Add", "Sub", "Sum"))
_BROADCASTING_SINCE = {"Add": 7, "Sub": 7, "Mul": 7, "Sum": 8}
_BIASED = (LINEAR - {"MatMul", "FusedMatMul"}) | {"BatchNormalization"}
"""Operators with a bias of their own: there a shift costs nothing."""


@dataclass(frozen=True, eq=False)
class Part:
    """One part of a sum, and the axis of its channels."""

    tensor: Tensor
    axis: int
    sign: int
    """-1 for what is subtracted."""


def _is_computed(node: Node, ops: frozenset[str]) -> bool:
    """Whether a node is one of some operators, broadcasts as they do today, and is of floats."""
    return (
        node.op in ops
        and node.is_standard
        and node.graph.opset >= _BROADCASTING_SINCE[node.op]
        and node.y.is_float
    )


def is_sum(node: Node) -> bool:
    """Whether a node adds or subtracts computed tensors."""
    return _is_computed(node, SUMS)


def parts_of(node: Node, axis: int, channels: int) -> list[Part]:
    """Give the parts of a sum whose channels run along an axis.

    Raises Blocked where a part is the same for all channels, or where that is not known.
    """
    if len(set(node.inputs)) < len(node.inputs):
        raise Blocked(Reason.OTHER_READER, node, f"{node.op} reads the same tensor twice")
    return [
        Part(tensor, _axis(node, tensor, axis, channels), -1 if node.op == "Sub" and k else 1)
        for k, tensor in enumerate(node.inputs)
    ]


def _axis(node: Node, tensor: Tensor, axis: int, channels: int) -> int:
    """Find the channels of a part, which has as many axes as the sum, or fewer in front."""
    rank = node.y.rank
    if tensor.shape is None or rank is None:
        raise Blocked(Reason.SHAPE_UNKNOWN, node, f"the shapes around {node.op} are not known")
    own = axis - rank + len(tensor.shape)
    extent = tensor.shape[own] if own >= 0 else 1
    if extent == channels:
        return own
    if isinstance(extent, int):
        detail = f"{node.op} adds {tensor.name} to every channel alike"
        raise Blocked(Reason.BROADCAST, node, detail)
    raise Blocked(Reason.SHAPE_UNKNOWN, node, f"the extents of {tensor.name} are not known")


def carrier_of(parts: list[Part], weights: Weights) -> Part:
    """Give the part that should take the shift: one where that costs nothing, if there is one."""
    return min(parts, key=lambda part: _cost(part.tensor, weights))


def _cost(tensor: Tensor, weights: Weights) -> int:
    producer = tensor.producer
    if producer is None:
        return 2
    is_free = producer.op in _BIASED or elementwise(producer, weights.constants) is not None
    return 0 if is_free else 1


@dataclass(frozen=True, eq=False)
class Product:
    """A product with a small factor that is computed from a constant."""

    node: Node
    position: int
    """Which input the small factor is."""
    step: Elementwise
    """What computes the small factor."""

    @property
    def is_quantized(self) -> bool:
        """Whether the other factor is an integer product."""
        cast = self.node.inputs[1 - self.position].producer
        made = cast.inputs[0].producer if cast is not None and cast.op == "Cast" else None
        return made is not None and made.op in INTEGER_LINEAR

    def recipe(self, axis: int, affine: Affine, weights: Weights) -> NewNode:
        """Describe the product with the scale in the small factor, and the shift behind it."""
        node, step = self.node, self.step
        rank = node.y.rank or 0
        along = (-1, *(1,) * (rank - 1 - axis))
        constant = weights.require(step.constant, node)
        known = weights.vector(constant, node).reshape(weights.shape(constant))
        scale = affine.scale.reshape(along)
        scale = scale / known if step.node.op == "Div" else scale * known
        check_scale(scale, known, constant.dtype, node)
        inputs: tuple[Operand, ...] = (step.x, vector(scale, constant.dtype, constant.name))
        factor = NewNode("Mul", inputs, like=step.node)
        product = NewNode(
            "Mul",
            tuple(factor if k == self.position else t for k, t in enumerate(node.inputs)),
            like=node,
        )
        if not affine.has_shift:
            return product
        dtype = node.y.dtype or constant.dtype
        check_shift(affine.shift, dtype, node)
        return added(node, product, vector(affine.shift, dtype, f"{node.y.name}_bias", along))


def product_of(node: Node, axis: int, affine: Affine, weights: Weights) -> Product | None:
    """Read a node as such a product whose channels run along an axis; None where it is none."""
    if not _is_computed(node, frozenset(("Mul",))) or len(set(node.inputs)) != len(node.inputs):
        return None
    if np.all(affine.scale == 1):
        return None
    for position, tensor in enumerate(node.inputs):
        step = _small(node, tensor, axis, weights)
        if step is not None:
            return Product(node, position, step)
    return None


def has_small_factor(node: Node, weights: Weights) -> bool:
    """Whether a node is such a product whose channels run along axis 1, as those of a BatchNorm."""
    return _is_computed(node, frozenset(("Mul",))) and any(
        _small(node, tensor, 1, weights) is not None for tensor in node.inputs
    )


def _small(node: Node, tensor: Tensor, axis: int, weights: Weights) -> Elementwise | None:
    producer, rank = tensor.producer, node.y.rank
    if producer is None or producer.graph is not node.graph or rank is None:
        return None
    if tensor.is_output or set(tensor.consumers) != {node} or tensor.shape is None:
        return None
    varies = {k + rank - len(tensor.shape) for k, n in enumerate(tensor.shape) if n != 1}
    step = elementwise(producer, weights.constants)
    if not varies <= {axis} or step is None or step.node.op not in {"Mul", "Div"}:
        return None
    return step if step.constant.dtype == node.y.dtype else None
