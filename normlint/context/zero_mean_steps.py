"""Operators that commute with the subtraction of the mean over the channels.

Such an operator is linear in some of its operands, and takes each channel of its output from the
same channel of those (`full`). Centring its output is the same as centring them. What it adds to
all channels alike (`shifts`) vanishes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from normlint.context.zero_mean_fused import FUSED
from normlint.context.zero_mean_moves import MOVES, reduced_axes
from normlint.context.zero_mean_sites import ONE, Site, Step, kept, role, roles
from normlint.graph import FLOATS

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.context.zero_mean_moves import Reader
    from normlint.graph import Node

__all__ = ["Step", "reduced_axes", "step"]


def step(node: Node, out: Site, constants: Constants) -> Step | None:
    """Tell how an output of a node follows from its operands; None where it mixes channels."""
    if node.domain == "com.microsoft" and node.op in FUSED and out.tensor.is_float:
        return FUSED[node.op](node, out)
    if not node.is_standard or node.op not in _READERS or not out.tensor.is_float:
        return None
    if node.graph.opset < _BROADCASTS:
        return None
    found = _READERS[node.op](node, out, constants)
    return found if found is not None and found.full else None


_BROADCASTS = 7
"""The opset from which on the arithmetic operators broadcast as numpy does."""


def _sum(node: Node, out: Site, _: Constants) -> Step | None:
    try:
        full, ones = roles(node, out, range(len(node.inputs)))
    except ValueError:
        return None
    return Step(node, tuple(full), tuple(ones))


def _product(node: Node, out: Site, _: Constants) -> Step | None:
    try:
        full, _ones = roles(node, out, (0, 1))
    except ValueError:
        return None
    if len(full) != 1 or (node.op == "Div" and full[0][0] != 0):
        return None
    return Step(node, tuple(full))


def _same(node: Node, out: Site, constants: Constants) -> Step | None:
    """Read an operator that keeps the shape: it acts on each element alone, and linearly."""
    x = node.inputs[0]
    if out.tensor is not node.outputs[0] or x.shape is None or len(x.shape) != len(out.shape):
        return None
    if node.op == "Cast" and x.dtype not in FLOATS:
        return None
    if node.op == "Dropout" and not _is_off(node, constants):
        return None
    return kept(node, out)


def _is_off(node: Node, constants: Constants) -> bool:
    """Whether a Dropout passes its input through."""
    if node.graph.opset < 12:
        return node.graph.opset >= 7 or bool(node.attrs.get("is_test", 0))
    mode = node.input(2)
    return mode is None or constants.scalar(mode) == 0


def _where(node: Node, out: Site, _: Constants) -> Step | None:
    chosen = role(node.inputs[0], out)
    if chosen is None or chosen[0] != ONE:
        return None
    try:
        full, ones = roles(node, out, (1, 2))
    except ValueError:
        return None
    return Step(node, tuple(full), tuple(ones))


def _matmul(node: Node, out: Site, _: Constants) -> Step | None:
    left, right = node.inputs[0], node.inputs[1]
    if out.first != out.last or left.shape is None or right.shape is None:
        return None
    rank = len(out.shape)
    if out.last == rank - 1 and len(right.shape) >= 2:
        place, found = 1, Site(right, len(right.shape) - 1, len(right.shape) - 1)
    elif out.last == rank - 2 and len(right.shape) >= 2 and len(left.shape) >= 2:
        place, found = 0, Site(left, len(left.shape) - 2, len(left.shape) - 2)
    else:
        return None
    return Step(node, ((place, found),)) if found.widths == out.widths else None


def _gemm(node: Node, out: Site, _: Constants) -> Step | None:
    if out.first != out.last:
        return None
    place = 1 if out.last == 1 else 0
    transposed = bool(node.attrs.get("transB" if place else "transA", 0))
    axis = place if not transposed else 1 - place
    x = node.inputs[place]
    if x.shape is None or len(x.shape) != 2 or x.shape[axis] != out.width:
        return None
    full, ones = [(place, Site(x, axis, axis))], list[int]()
    if node.input(2) is not None:
        try:
            more, ones = roles(node, out, (2,))
        except ValueError:
            return None
        full.extend(more)
    return Step(node, tuple(full), tuple(ones))


def _conv(node: Node, out: Site, _: Constants) -> Step | None:
    weight = node.inputs[1]
    if (out.first, out.last) != (1, 1) or node.attrs.get("group", 1) != 1 or not weight.shape:
        return None
    axis = 1 if node.op == "ConvTranspose" else 0
    if len(weight.shape) < 3 or weight.shape[axis] != out.width:
        return None
    full = [(1, Site(weight, axis, axis))]
    bias = node.input(2)
    if bias is not None:
        if bias.shape is None or tuple(bias.shape) != (out.width,):
            return None
        full.append((2, Site(bias, 0, 0)))
    return Step(node, tuple(full))


def _einsum(node: Node, out: Site, _: Constants) -> Step | None:
    equation = str(node.attrs.get("equation", "")).replace(" ", "")
    if not re.fullmatch(r"[A-Za-z,]+->[A-Za-z]+", equation) or out.first != out.last:
        return None
    terms, result = equation.split("->")
    operands = terms.split(",")
    if len(result) != len(out.shape) or len(operands) != len(node.inputs):
        return None
    letter = result[out.first]
    if terms.count(letter) != 1:
        return None
    place = next(k for k, term in enumerate(operands) if letter in term)
    x, axis = node.inputs[place], operands[place].index(letter)
    if x.shape is None or len(x.shape) != len(operands[place]) or x.shape[axis] != out.width:
        return None
    return Step(node, ((place, Site(x, axis, axis)),))


_READERS: dict[str, Reader] = {
    **MOVES,
    **dict.fromkeys(("Add", "Sub", "Sum"), _sum),
    **dict.fromkeys(("Mul", "Div"), _product),
    **dict.fromkeys(("Identity", "Neg", "Cast", "Dropout"), _same),
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    "Where": _where,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
