"""Types and shapes of what com.microsoft's integer operators make, which inference passes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.graph import Variable

if TYPE_CHECKING:
    from normlint.graph import Node, Shape, Tensor

_TWO_OPERANDS = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3)}
_ONE_OPERAND = {"QLinearSigmoid": (0,), "QLinearLeakyRelu": (0,), "QLinearSoftmax": (0,)}
OPERANDS = _TWO_OPERANDS | _ONE_OPERAND
"""Positions of the integers that an operator reads; scale and zero point follow each of them."""
ZERO_POINT = {"QLinearAdd": 7, "QLinearMul": 7} | dict.fromkeys(_ONE_OPERAND, 4)
"""Position of the zero point of its result."""


def complete_integers(node: Node) -> None:
    """Give the result of an integer operator its zero point's type, and its operands' shape."""
    y = node.outputs[0]
    if not isinstance(y, Variable):
        return
    zero = node.input(ZERO_POINT[node.op])
    sources = [node.inputs[at] for at in OPERANDS[node.op] if at < len(node.inputs)]
    if not y.dtype:
        y.dtype = next((t.dtype for t in (zero, *sources) if t is not None and t.dtype), 0)
    if y.shape is None:
        y.shape = _shape(sources)


def _shape(sources: list[Tensor]) -> Shape | None:
    from normlint.context.shapes import broadcast

    shapes = [source.shape for source in sources if source.shape is not None]
    if not shapes or len(shapes) != len(sources):
        return None
    return broadcast(shapes)
