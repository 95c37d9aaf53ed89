"""Forward into Gemm and MatMul: the scale along the axis they sum over, the shift behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.affine import elementwise
from normlint.rewrite.fold_outputs import added, moved, rebuilt
from normlint.rewrite.fold_use import Absorbed, Use, scaled_weight
from normlint.rewrite.fold_weights import computed, type_of
from normlint.rule import NewNode, Reason

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rule import Computed, Operand

    Array = np.ndarray[Any, Any]


def gemm(use: Use) -> Absorbed | None:
    """Describe the Gemm on the operand without scale and shift. Raises Blocked."""
    node, position = use.node, use.position
    if position > 1:
        return None
    other = 1 - position
    transposed = bool(node.attrs.get("transB" if position else "transA", 0))
    inner = (1 - position) ^ transposed
    if use.axis != inner:
        raise moved(node, "its channels are not the axis that Gemm sums over")
    weight = use.weights.require(node.input(other), node)
    flipped = bool(node.attrs.get("transA" if position else "transB", 0))
    along = (1 - other) ^ flipped
    shape = use.weights.shape(weight)
    new = scaled_weight(use, other, along, shape)
    inputs: dict[int, Operand] = {position: use.source, other: new}
    if not use.affine.has_shift:
        return Absorbed((node.y,), rebuilt(node, inputs), (node,))
    inputs[2], attrs = _gemm_bias(use, weight, along, column=bool(position))
    return Absorbed((node.y,), rebuilt(node, inputs, attrs), (node,))


def _gemm_bias(
    use: Use, weight: Tensor, along: int, *, column: bool
) -> tuple[Computed, dict[str, Any]]:
    """Give the new C: beta C' = beta C + alpha W t."""
    node, weights = use.node, use.weights
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    given = node.input(2) if beta else None
    known = None if given is None else weights.require(given, node)
    attrs: dict[str, Any] = {"broadcast": 1} if node.graph.opset < 7 else {}
    ratio = alpha / beta if known is not None else alpha
    if known is None:
        attrs["beta"] = 1.0
    made = weights.shape(weight)[1 - along]
    own = (made, 1) if column else (made,)

    def compute() -> Array:
        added = np.tensordot(weights.values(weight), use.affine.shift, (along, 0)) * ratio
        added = added.reshape(own)
        return added if known is None else weights.values(known) + added

    before = () if known is None else weights.shape(known)
    name = f"{node.y.name}_bias" if known is None else known.name
    dtype = type_of(node, weight if known is None else known)
    return computed(np.broadcast_shapes(before, own), dtype, compute, name, node), attrs


def matmul(use: Use) -> Absorbed | None:
    """Describe the MatMul, or FusedMatMul, on such an operand. Raises Blocked."""
    node, position = use.node, use.position
    if node.attrs.get("transBatchA") or node.attrs.get("transBatchB"):
        return None
    other = 1 - position
    weight = use.weights.require(node.input(other), node)
    shape = use.weights.shape(weight)
    rank = node.inputs[position].rank
    if rank is None:
        raise Blocked(Reason.SHAPE_UNKNOWN, node, f"the rank of what {node.op} reads is not known")
    if use.axis != rank + _summed(node, position, rank):
        raise moved(node, f"its channels are not the axis that {node.op} sums over")
    along = len(shape) + _summed(node, other, len(shape))
    new = scaled_weight(use, other, along, shape)
    product = rebuilt(node, {position: use.source, other: new})
    if not use.affine.has_shift:
        return Absorbed((node.y,), product, (node,))
    return _with_shift(use, product, _matmul_shift(use, weight, along, rank))


def _summed(node: Node, position: int, rank: int) -> int:
    """Give the axis (negative) that a MatMul sums over, of one operand."""
    if rank == 1:
        return -1
    transposed = bool(node.attrs.get("transB" if position else "transA", 0))
    return -2 if bool(position) != transposed else -1


def _matmul_shift(use: Use, weight: Tensor, along: int, rank: int) -> Computed:
    """Give alpha W t, in a shape that broadcasts to the product."""
    node, weights = use.node, use.weights
    alpha = float(node.attrs.get("alpha", 1.0))
    shape = weights.shape(weight)
    rest = tuple(extent for k, extent in enumerate(shape) if k != along)
    own = rest
    # Where both have rows and columns, the axis of the other operand's is still there.
    if len(shape) > 1 and rank > 1:
        own = (*rest, 1) if use.position == 1 else (*rest[:-1], 1, rest[-1]) if rest[:-1] else rest

    def compute() -> Array:
        added = np.tensordot(weights.values(weight), use.affine.shift, (along, 0))
        return np.asarray(alpha * added).reshape(own)

    return computed(own, type_of(node, weight), compute, f"{node.y.name}_bias", node)


def _with_shift(use: Use, product: NewNode, shift: Computed) -> Absorbed:
    """Add the shift of a product: to the bias that follows, or as a new one."""
    node = use.node
    readers = node.y.consumers
    step = None
    if len(readers) == 1 and not node.y.is_output and readers[0].graph is node.graph:
        step = elementwise(readers[0], use.weights.constants)
    if step is None or not step.is_shift or step.constant.dtype != shift.dtype:
        recipe = added(node, product, shift)
        return Absorbed((node.y,), recipe, (node,), added=1)
    follower, constant = step.node, step.constant
    sign = -1 if follower.op == "Sub" else 1
    weights = use.weights

    def compute() -> Array:
        return np.asarray(weights.values(constant) + sign * shift.compute())

    before = weights.shape(constant)
    after = np.broadcast_shapes(before, shift.shape)
    new = computed(after, shift.dtype, compute, constant.name, node)
    inputs: tuple[Operand, ...] = (product, new) if step.position == 0 else (new, product)
    recipe = NewNode(follower.op, inputs, follower.attrs, follower)
    return Absorbed((follower.y,), recipe, (node, follower))
