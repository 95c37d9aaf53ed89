"""The result of an integer operator in float, as it is before it is rounded.

Linear operators keep their integers: MatMulInteger and ConvInteger give sums of 32 bits, which are
exact, and these times both scales are the result. Others compute on dequantised operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.rule import Computed, NewNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor

    Array = np.ndarray[Any, Any]
    Maker = Callable[[Node, Constants], NewNode | None]

_MOVES = frozenset(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather"))
_LARGEST = 1 << 20


def in_float(node: Node, constants: Constants) -> NewNode | None:
    """Give the result of an integer operator before it is rounded; None where none is known.

    A linear operator is not computed twice: None where others read its integers.
    """
    maker = _MAKERS.get(node.op)
    if maker is None or any(t.dtype != TensorProto.FLOAT for t in _scales(node)):
        return None
    return maker(node, constants)


def _scales(node: Node) -> list[Tensor]:
    first = 3 if node.op == "QLinearConcat" else 1
    return [node.inputs[first]] if len(node.inputs) > first else []


def _dequantized(node: Node, at: int) -> NewNode:
    operands = (node.inputs[at], node.inputs[at + 1], node.input(at + 2))
    return NewNode("DequantizeLinear", operands, like=node)


def _of_two(node: Node, _: Constants) -> NewNode:
    op = node.op.removeprefix("QLinear")
    return NewNode(op, (_dequantized(node, 0), _dequantized(node, 3)), like=node)


def _of_one(node: Node, _: Constants) -> NewNode | None:
    attrs = {name: value for name, value in node.attrs.items() if name != "channels_last"}
    if node.attrs.get("channels_last"):
        return None
    return NewNode(node.op.removeprefix("QLinear"), (_dequantized(node, 0),), attrs, like=node)


def _concat(node: Node, _: Constants) -> NewNode:
    terms = tuple(_dequantized(node, at) for at in range(2, len(node.inputs), 3))
    return NewNode("Concat", terms, dict(node.attrs), like=node)


def _matmul(node: Node, constants: Constants) -> NewNode | None:
    scale = _product_of_scales(node, constants, ())
    if scale is None or not _is_private(node):
        return None
    return _scaled(node, "MatMulInteger", node.inputs[3], scale)


def _gemm(node: Node, constants: Constants) -> NewNode | None:
    scale = _product_of_scales(node, constants, ())
    plain = not node.attrs.get("transA") and node.attrs.get("alpha", 1.0) == 1.0
    if scale is None or not plain or not _is_private(node):
        return None
    weight: Tensor | NewNode = node.inputs[3]
    if node.attrs.get("transB"):
        weight = NewNode("Transpose", (node.inputs[3],), {"perm": [1, 0]}, like=node)
    product = _scaled(node, "MatMulInteger", weight, scale)
    bias = node.input(6)
    return product if bias is None else _plus(node, product, bias, scale, constants)


def _conv(node: Node, constants: Constants) -> NewNode | None:
    rank = node.inputs[3].rank
    if rank is None or not _is_private(node):
        return None
    scale = _product_of_scales(node, constants, (1,) * (rank - 2))
    if scale is None:
        return None
    product = _scaled(node, "ConvInteger", node.inputs[3], scale)
    bias = node.input(8)
    return product if bias is None else _plus(node, product, bias, scale, constants)


def _scaled(node: Node, op: str, weight: Tensor | NewNode, scale: Computed) -> NewNode:
    operands = (node.inputs[0], weight, node.input(2), None)
    attrs = dict(node.attrs) if op == "ConvInteger" else {}
    total = NewNode(op, operands, attrs, like=node)
    wide = NewNode("Cast", (total,), {"to": int(TensorProto.FLOAT)}, like=node)
    return NewNode("Mul", (wide, scale), like=node)


def _plus(
    node: Node, product: NewNode, bias: Tensor, scale: Computed, constants: Constants
) -> NewNode | None:
    """Add a bias of 32 bits, whose step is the product of both scales."""
    integers = constants.known(bias, _LARGEST)
    if integers is None or integers.ndim != 1:
        return None
    shape = (len(integers), *scale.shape[1:])

    def values() -> Array:
        return np.asarray(integers.astype(np.float64).reshape(shape) * scale.compute())

    made = Computed(shape, TensorProto.FLOAT, values, bias.name)
    return NewNode("Add", (product, made), like=node)


def _product_of_scales(
    node: Node, constants: Constants, behind: tuple[int, ...]
) -> Computed | None:
    """Give the scale of the input times that of the weight, for each column or channel.

    None where the weight has a zero point other than 0: not all operators take one per channel.
    """
    left, right = (constants.known(node.inputs[at], _LARGEST) for at in (1, 4))
    zero = node.input(5)
    offset = None if zero is None else constants.known(zero, _LARGEST)
    if left is None or right is None or left.size != 1 or right.ndim > 1:
        return None
    if zero is not None and (offset is None or offset.any()):
        return None
    product = float(left.reshape(())) * right.astype(np.float64)
    shape = (right.size, *behind) if right.size > 1 or behind else ()
    values = product.reshape(shape)
    return Computed(shape, TensorProto.FLOAT, lambda: values, f"{node.outputs[0].name}_scale")


def _is_private(node: Node) -> bool:
    """Whether nothing but dequantisation, of it or of pieces of it, reads the integers."""
    pending = list(node.y.consumers)
    while pending:
        reader = pending.pop()
        if reader.op in _MOVES:
            pending.extend(reader.y.consumers)
        elif reader.op not in {"DequantizeLinear", "Shape", "QLinearAdd"}:
            return False
    return not node.y.is_output


_MAKERS: dict[str, Maker] = {
    "QLinearAdd": _of_two,
    "QLinearMul": _of_two,
    "QLinearSigmoid": _of_one,
    "QLinearLeakyRelu": _of_one,
    "QLinearAveragePool": _of_one,
    "QLinearGlobalAveragePool": _of_one,
    "QLinearConcat": _concat,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearConv": _conv,
}
