"""Backward: a scale and shift of what a linear operator computes go into its weights.

With s the scale and t the shift of each channel: W' = s W and b' = s b + t, on the axis of W that
makes the channel axis. A weight that is read elsewhere as well stays as it is there: the new one is
a constant of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.affine import is_per_channel
from normlint.rewrite.fold_quantized import behind_dequantize, scale_dequantize
from normlint.rewrite.fold_weights import Scaled, check_shift, computed, type_of, vector
from normlint.rule import NewNode, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rule import Computed, Operand

    Array = np.ndarray[Any, Any]
    Absorber = Callable[[Node, int, Affine, Weights], NewNode | None]


def scale_outputs(node: Node, axis: int, affine: Affine, weights: Weights) -> NewNode | None:
    """Describe the linear node that computes `affine` of what this one computes, along `axis`.

    None where the node is not linear. Raises Blocked where it is and cannot take it up.
    """
    absorber = _ABSORBERS.get(("" if node.is_standard else node.domain, node.op))
    return None if absorber is None else absorber(node, axis, affine, weights)


def moved(node: Node, detail: str) -> Blocked:
    """Refuse because the channels are not those that the weights make."""
    return Blocked(Reason.CHANNEL_AXIS_MOVED, node, detail)


def has_activation(node: Node) -> bool:
    """Whether a fused operator applies an activation to what it computes."""
    return node.attrs.get("activation", "") not in {"", "Identity"}


def _conv(node: Node, axis: int, affine: Affine, weights: Weights) -> NewNode | None:
    if has_activation(node) or node.input(3) is not None:
        return None
    if axis != 1:
        raise moved(node, f"its channels are not those of {node.op}")
    weight = weights.require(node.input(1), node)
    shape = weights.shape(weight)
    groups = int(node.attrs.get("group", 1))
    if node.op == "ConvTranspose":
        view = (groups, shape[0] // groups, *shape[1:])
        factor = affine.scale.reshape(groups, 1, -1, *(1,) * (len(shape) - 2))
        made = shape[1] * groups
    else:
        view = shape
        factor = affine.scale.reshape(-1, *(1,) * (len(shape) - 1))
        made = shape[0]
    if made != affine.channels:
        raise Blocked(Reason.BROADCAST, node, f"{node.op} makes {made} channels")
    axis_of_weight = 1 if node.op == "ConvTranspose" else 0
    scaled = Scaled(weight, weights, factor, view, type_of(node, weight))
    new = _weight(node, 1, scaled)
    if new is None:
        new = scale_dequantize(node, weight, axis_of_weight, affine, weights, groups=groups)
    bias = _bias(node, node.input(2), affine, weights, new_type=type_of(node, node.inputs[0]))
    return rebuilt(node, {1: new, 2: bias})


def _weight(node: Node, position: int, scaled: Scaled) -> Operand:
    """Give the new weight, or the old one where the factor is 1; None where it is quantised."""
    if scaled.is_same:
        return node.inputs[position]
    if behind_dequantize(node.inputs[position]) is not None:
        return None
    scaled.check(node)
    return scaled.constant()


def _bias(
    node: Node, bias: Tensor | None, affine: Affine, weights: Weights, *, new_type: int
) -> Computed | None:
    if bias is None:
        if not affine.has_shift:
            return None
        check_shift(affine.shift, new_type, node)
        return vector(affine.shift, new_type, f"{node.y.name}_bias")
    dtype = type_of(node, bias)
    known = weights.require(bias, node)
    values = affine.scale * weights.vector(known, node) + affine.shift
    check_shift(values, dtype, node)
    return vector(values, dtype, bias.name)


def rebuilt(node: Node, inputs: dict[int, Operand], attrs: dict[str, Any] | None = None) -> NewNode:
    """Give the node with other inputs at some positions."""
    operands: list[Operand] = [tensor if tensor.name else None for tensor in node.inputs]
    for position, operand in inputs.items():
        operands.extend([None] * (position + 1 - len(operands)))
        operands[position] = operand
    while operands and operands[-1] is None:
        operands.pop()
    given = node.attrs if attrs is None else {**node.attrs, **attrs}
    return NewNode(node.op, tuple(operands), given, node, node.domain or "")


def _gemm(node: Node, axis: int, affine: Affine, weights: Weights) -> NewNode | None:
    if has_activation(node):
        return None
    if axis > 1:
        raise moved(node, "Gemm has two axes")
    position = 1 if axis == 1 else 0
    transposed = bool(node.attrs.get("transB" if axis == 1 else "transA", 0))
    weight = _matrix(node, position, weights)
    along = position ^ transposed
    factor = affine.scale.reshape((1, -1) if along == 1 else (-1, 1))
    shape = weights.shape(weight)
    if shape[along] != affine.channels:
        raise Blocked(Reason.BROADCAST, node, f"Gemm makes {shape[along]} channels")
    new = _weight(node, position, Scaled(weight, weights, factor, shape, type_of(node, weight)))
    if new is None:
        new = scale_dequantize(node, weight, along, affine, weights)
    bias, attrs = _gemm_bias(node, axis, affine, weights)
    return rebuilt(node, {position: new, 2: bias}, attrs)


def _matrix(node: Node, position: int, weights: Weights) -> Tensor:
    """Give the operand whose axis the channels are. Raises Blocked."""
    other = node.inputs[1 - position]
    if not weights.constants.is_constant(node.inputs[position]) and weights.constants.is_constant(
        other
    ):
        raise moved(node, f"its channels are not those that the weights of {node.op} make")
    return weights.require(node.input(position), node)


def _gemm_bias(
    node: Node, axis: int, affine: Affine, weights: Weights
) -> tuple[Computed | None, dict[str, Any]]:
    """Give the new C, and the attributes that it needs: y = alpha A B + beta C."""
    shape = (-1,) if axis == 1 else (-1, 1)
    scale, shift = affine.scale.reshape(shape), affine.shift.reshape(shape)
    attrs: dict[str, Any] = {"broadcast": 1} if node.graph.opset < 7 else {}
    beta = float(node.attrs.get("beta", 1.0))
    given = node.input(2)
    if given is None or beta == 0:
        if not affine.has_shift and given is None:
            return None, attrs
        dtype = type_of(node, node.inputs[0])
        check_shift(shift, dtype, node)
        return vector(shift, dtype, f"{node.y.name}_bias"), {**attrs, "beta": 1.0}
    known = weights.require(given, node)
    dtype = type_of(node, known)
    check_shift(shift / beta, dtype, node)

    def compute() -> Array:
        values = weights.values(known)
        return np.asarray(scale * values + shift / beta)

    before = weights.shape(known)
    return computed(
        np.broadcast_shapes(before, scale.shape), dtype, compute, known.name, node
    ), attrs


def _matmul(node: Node, axis: int, affine: Affine, weights: Weights) -> NewNode | None:
    if node.attrs.get("transBatchA") or node.attrs.get("transBatchB"):
        return None
    position, along = _matmul_operand(node, axis)
    weight = _matrix(node, position, weights)
    shape = weights.shape(weight)
    along %= len(shape)
    if shape[along] != affine.channels:
        raise Blocked(Reason.BROADCAST, node, f"{node.op} makes {shape[along]} channels")
    factor = affine.scale.reshape(tuple(-1 if k == along else 1 for k in range(len(shape))))
    new = _weight(node, position, Scaled(weight, weights, factor, shape, type_of(node, weight)))
    if new is None:
        new = scale_dequantize(node, weight, along, affine, weights)
    product = rebuilt(node, {position: new})
    if not affine.has_shift:
        return product
    dtype = type_of(node, weight)
    check_shift(affine.shift, dtype, node)
    last = node.y.rank is not None and axis == node.y.rank - 1
    shift = vector(affine.shift, dtype, f"{node.y.name}_bias", (-1,) if last else (-1, 1))
    return added(node, product, shift)


def added(node: Node, product: NewNode, shift: Computed) -> NewNode:
    """Describe the Add of a shift behind a MatMul. Raises Blocked."""
    if node.graph.opset >= _BROADCASTING_SINCE:
        return NewNode("Add", (product, shift), like=node)
    if len(shift.shape) != 1:
        raise Blocked(Reason.OPSET, node, "the model's opset cannot broadcast the shift")
    return NewNode("Add", (product, shift), {"broadcast": 1}, like=node)


def _matmul_operand(node: Node, axis: int) -> tuple[int, int]:
    """Give the operand, and its axis, that makes an axis of the product. Raises Blocked."""
    rank, (left, right) = node.y.rank, (node.inputs[0].rank, node.inputs[1].rank)
    if rank is None or left is None or right is None:
        raise Blocked(
            Reason.SHAPE_UNKNOWN, node, f"the rank of what {node.op} computes is not known"
        )
    rows = 1 if node.attrs.get("transA") and left > 1 else 2
    columns = 2 if node.attrs.get("transB") and right > 1 else 1
    if right > 1 and axis == rank - 1:
        return 1, -columns
    if left > 1 and axis == (rank - 2 if right > 1 else rank - 1):
        return 0, -rows
    raise moved(node, f"its channels are not those that the weights of {node.op} make")


def _batch_norm(node: Node, axis: int, affine: Affine, weights: Weights) -> NewNode | None:
    """Merge into the BatchNormalization in front: scale' = s * scale, bias' = s * bias + t."""
    if not is_per_channel(node):
        raise Blocked(Reason.BATCH_STATISTICS, node, "the one in front uses batch statistics")
    if axis != 1:
        raise moved(node, "the BatchNormalization in front works along another axis")
    scale, bias = weights.require(node.input(1), node), weights.require(node.input(2), node)
    new_scale = affine.scale * weights.vector(scale, node)
    new_bias = affine.scale * weights.vector(bias, node) + affine.shift
    for values, tensor in ((new_scale, scale), (new_bias, bias)):
        check_shift(values, type_of(node, tensor), node)
    return rebuilt(
        node,
        {
            1: vector(new_scale, type_of(node, scale), scale.name),
            2: vector(new_bias, type_of(node, bias), bias.name),
        },
    )


_MICROSOFT = "com.microsoft"
_BROADCASTING_SINCE = 7
_ABSORBERS: dict[tuple[str, str], Absorber] = {
    ("", "Conv"): _conv,
    ("", "ConvTranspose"): _conv,
    (_MICROSOFT, "FusedConv"): _conv,
    ("", "Gemm"): _gemm,
    (_MICROSOFT, "FusedGemm"): _gemm,
    ("", "MatMul"): _matmul,
    (_MICROSOFT, "FusedMatMul"): _matmul,
    ("", "BatchNormalization"): _batch_norm,
}
