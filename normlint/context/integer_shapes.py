"""Types and shapes of what com.microsoft's integer operators make, which inference passes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.graph import Variable

if TYPE_CHECKING:
    from normlint.graph import Node, Shape, Tensor

_TWO_OPERANDS = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3)}
_ONE_OPERAND = {"QLinearSigmoid": (0,), "QLinearLeakyRelu": (0,), "QLinearSoftmax": (0,)}
_PRODUCT = {"QGemm": (0, 3)}
OPERANDS = _TWO_OPERANDS | _ONE_OPERAND | _PRODUCT
"""Positions of the integers that an operator reads; scale and zero point follow each of them."""
ZERO_POINT = {"QLinearAdd": 7, "QLinearMul": 7, "QGemm": 8} | dict.fromkeys(_ONE_OPERAND, 4)
"""Position of the zero point of its result."""


def complete_integers(node: Node) -> None:
    """Give the result of an integer operator its zero point's type, and its operands' shape."""
    y = node.outputs[0]
    if not isinstance(y, Variable):
        return
    zero = node.input(ZERO_POINT[node.op])
    sources = [node.inputs[at] for at in OPERANDS[node.op] if at < len(node.inputs)]
    if not y.dtype and not (node.op in _PRODUCT and zero is None):  # then its result is float
        y.dtype = next((t.dtype for t in (zero, *sources) if t is not None and t.dtype), 0)
    if y.shape is None:
        y.shape = _of_product(node, sources) if node.op in _PRODUCT else _shape(sources)


def _shape(sources: list[Tensor]) -> Shape | None:
    from normlint.context.shapes import broadcast

    shapes = [source.shape for source in sources if source.shape is not None]
    if not shapes or len(shapes) != len(sources):
        return None
    return broadcast(shapes)


def _of_product(node: Node, sources: list[Tensor]) -> Shape | None:
    shapes = [source.shape for source in sources]
    if len(shapes) != 2 or any(shape is None or len(shape) != 2 for shape in shapes):
        return None
    rows, columns = (shape for shape in shapes if shape is not None)
    across = 1 if node.attrs.get("transA", 0) else 0
    return rows[across], columns[0 if node.attrs.get("transB", 0) else 1]
