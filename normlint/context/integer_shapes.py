"""Types and shapes of what integer operators make.

Inference passes over those of com.microsoft, and stops at those of ai.onnx behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.graph import Variable

if TYPE_CHECKING:
    from normlint.graph import Node, Shape, Tensor

_TWO_OPERANDS = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3)}
_ONE_OPERAND = {"QLinearSigmoid": (0,), "QLinearLeakyRelu": (0,), "QLinearSoftmax": (0,)}
_PRODUCT = {"QGemm": (0, 3), "QLinearMatMul": (0, 3), "QLinearConv": (0, 3)}
_POOLED = {"QLinearAveragePool": (0,), "QLinearGlobalAveragePool": (0,)}
_JOINED = {"QLinearConcat": (2,)}
OPERANDS = _TWO_OPERANDS | _ONE_OPERAND | _PRODUCT | _POOLED | _JOINED
"""Positions of the integers that an operator reads; scale and zero point follow each of them."""
ZERO_POINT = {
    **dict.fromkeys((*_TWO_OPERANDS, "QLinearMatMul", "QLinearConv"), 7),
    **dict.fromkeys((*_ONE_OPERAND, *_POOLED), 4),
    "QGemm": 8,
    "QLinearConcat": 1,
}
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
    if y.shape is None and node.op in _JOINED:
        y.shape = _joined(node)
    elif y.shape is None and node.op in _POOLED:
        y.shape = _of_pool(node, sources[0])
    elif y.shape is None:
        y.shape = _of_product(node, sources) if node.op in _PRODUCT else _shape(sources)


def _shape(sources: list[Tensor]) -> Shape | None:
    from normlint.context.shapes import broadcast

    shapes = [source.shape for source in sources if source.shape is not None]
    if not shapes or len(shapes) != len(sources):
        return None
    return broadcast(shapes)


def _joined(node: Node) -> Shape | None:
    """Give the shape of a Concat: its terms stand at every third place behind the result's grid."""
    shapes = [tensor.shape for tensor in node.inputs[2::3]]
    known = [shape for shape in shapes if shape is not None]
    axis = int(node.attrs.get("axis", 0))
    if len(known) != len(shapes) or any(len(shape) != len(known[0]) for shape in known):
        return None
    extents = [shape[axis] for shape in known]
    whole = [extent for extent in extents if isinstance(extent, int)]
    result = list(known[0])
    result[axis] = sum(whole) if len(whole) == len(extents) else None
    return tuple(result)


def _of_product(node: Node, sources: list[Tensor]) -> Shape | None:
    left, right = (source.shape for source in sources)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    if node.op == "QLinearConv":
        return _of_convolution(node, left, right)
    if node.op == "QLinearMatMul":
        from normlint.context.shapes import broadcast

        return (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])
    rows, columns = int(node.attrs.get("transA", 0)), 1 - int(node.attrs.get("transB", 0))
    return (left[rows], right[columns]) if len(left) == len(right) == 2 else None


def _of_pool(node: Node, x: Tensor) -> Shape | None:
    if x.shape is None or node.attrs.get("channels_last") or node.attrs.get("ceil_mode"):
        return None
    if node.op == "QLinearGlobalAveragePool":
        return (*x.shape[:2], *(1 for _ in x.shape[2:]))
    kernel = tuple(node.attrs.get("kernel_shape", ()))
    if len(kernel) != len(x.shape) - 2:
        return None
    found = _of_convolution(node, x.shape, (None, None, *kernel))
    return None if found is None else (*x.shape[:2], *found[2:])


def _of_convolution(node: Node, x: Shape, weight: Shape) -> Shape | None:
    width = len(x) - 2
    if len(weight) != len(x) or node.attrs.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return None
    pads = node.attrs.get("pads") or [0] * (2 * width)
    steps = node.attrs.get("strides") or [1] * width
    spread = node.attrs.get("dilations") or [1] * width
    extents: list[int | str | None] = []
    for at, (size, kernel) in enumerate(zip(x[2:], weight[2:], strict=True)):
        if not isinstance(size, int) or not isinstance(kernel, int):
            extents.append(None)
            continue
        padded = size + pads[at] + pads[at + width]
        extents.append((padded - spread[at] * (kernel - 1) - 1) // steps[at] + 1)
    return (x[0], weight[0], *extents)
