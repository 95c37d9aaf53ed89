"""Operators that commute with the subtraction of the mean over the channels.

Such an operator is linear in some of its operands, and takes each channel of its output from the
same channel of those (`full`). Centring its output is the same as centring them. What it adds to
all channels alike (`shifts`) vanishes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from normlint.context.zero_mean_sites import Site, known_product, same_extents
from normlint.graph import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor

    Reader = Callable[[Node, Site, Constants], "Step | None"]


@dataclass(frozen=True, eq=False)
class Step:
    """How an output of a node follows from operands that have the same channels."""

    node: Node
    full: tuple[tuple[int, Site], ...]
    """Operands, by their position, with the axes that are their channels."""
    shifts: tuple[int, ...] = ()
    """Positions of operands that are the same for all channels and are added."""

    def reads(self, operand: Site) -> bool:
        """Whether the node reads a tensor in this way only."""
        places = [k for k, tensor in enumerate(self.node.inputs) if tensor is operand.tensor]
        full = {k for k, found in self.full if found == operand}
        return all(place in full for place in places)


def step(node: Node, out: Site, constants: Constants) -> Step | None:
    """Tell how an output of a node follows from its operands; None where it mixes channels."""
    if not node.is_standard or node.op not in _READERS or not out.tensor.is_float:
        return None
    if node.graph.opset < _BROADCASTS:
        return None
    found = _READERS[node.op](node, out, constants)
    return found if found is not None and found.full else None


_FULL, _ONE = "full", "one"
_BROADCASTS = 7
"""The opset from which on the arithmetic operators broadcast as numpy does."""


def _role(tensor: Tensor, out: Site) -> tuple[str, Site] | None:
    """Tell how an operand that is broadcast to the output covers the channels."""
    if tensor.shape is None:
        return None
    offset = len(out.shape) - len(tensor.shape)
    extents = [tensor.shape[axis - offset] if axis >= offset else 1 for axis in out.axes]
    if all(extent == 1 for extent in extents):
        return _ONE, out
    if tuple(extents) != tuple(out.widths):
        return None
    return _FULL, Site(tensor, out.first - offset, out.last - offset)


def _roles(
    node: Node, out: Site, places: Sequence[int]
) -> tuple[list[tuple[int, Site]], list[int]]:
    """Sort operands into full ones and ones without channels. Raises ValueError for others."""
    full: list[tuple[int, Site]] = []
    ones: list[int] = []
    for place in places:
        found = _role(node.inputs[place], out)
        if found is None:
            raise ValueError(place)
        if found[0] == _FULL:
            full.append((place, found[1]))
        else:
            ones.append(place)
    return full, ones


def _sum(node: Node, out: Site, _: Constants) -> Step | None:
    try:
        full, ones = _roles(node, out, range(len(node.inputs)))
    except ValueError:
        return None
    return Step(node, tuple(full), tuple(ones))


def _product(node: Node, out: Site, _: Constants) -> Step | None:
    try:
        full, _ones = _roles(node, out, (0, 1))
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
    return _kept(node, out)


def _is_off(node: Node, constants: Constants) -> bool:
    """Whether a Dropout passes its input through."""
    if node.graph.opset < 12:
        return node.graph.opset >= 7 or bool(node.attrs.get("is_test", 0))
    mode = node.input(2)
    return mode is None or constants.scalar(mode) == 0


def _kept(node: Node, out: Site, place: int = 0) -> Step | None:
    """Read an operand that has the same channels, on the same axes."""
    x = node.inputs[place]
    if x.shape is None or len(x.shape) != len(out.shape):
        return None
    found = Site(x, out.first, out.last)
    return Step(node, ((place, found),)) if found.widths == out.widths else None


def _where(node: Node, out: Site, _: Constants) -> Step | None:
    chosen = _role(node.inputs[0], out)
    if chosen is None or chosen[0] != _ONE:
        return None
    try:
        full, ones = _roles(node, out, (1, 2))
    except ValueError:
        return None
    return Step(node, tuple(full), tuple(ones))


def _transpose(node: Node, out: Site, _: Constants) -> Step | None:
    order = node.attrs.get("perm", list(reversed(range(len(out.shape)))))
    x = node.inputs[0]
    if x.shape is None or not isinstance(order, list) or len(order) != len(out.shape):
        return None
    axes = sorted(order[axis] for axis in out.axes)
    if axes != list(range(axes[0], axes[-1] + 1)):
        return None
    found = Site(x, axes[0], axes[-1])
    return Step(node, ((0, found),)) if found.width == out.width else None


def _reshape(node: Node, out: Site, _: Constants) -> Step | None:
    """Read a change of shape that keeps the channels together, in the same order.

    The elements are in row-major order, so the channels stay where they are if as many elements
    come within them, or as many groups of them come before.
    """
    x = node.inputs[0]
    if x.shape is None:
        return None
    from normlint.context.zero_mean_sites import sites_of_width

    for found in sites_of_width(x, out.width):
        if _same_place(found, out):
            return Step(node, ((0, found),))
    return None


def _same_place(found: Site, out: Site) -> bool:
    inner = known_product(found.shape[found.last + 1 :])
    if inner is not None and inner == known_product(out.shape[out.last + 1 :]):
        return True
    before, after = found.shape[: found.first], out.shape[: out.first]
    outer = known_product(before)
    if outer is not None and outer == known_product(after):
        return True
    return same_extents(before, after)


def _concat(node: Node, out: Site, _: Constants) -> Step | None:
    if node.attrs.get("axis", 1) % len(out.shape) in out.axes:
        return None
    full: list[tuple[int, Site]] = []
    for place, tensor in enumerate(node.inputs):
        found = _kept(node, out, place)
        if found is None or not tensor.name:
            return None
        full.extend(found.full)
    return Step(node, tuple(full))


def _part(node: Node, out: Site, _: Constants) -> Step | None:
    """Read Slice, Split and Expand: where the extents of the channels stay, so do the channels."""
    return _kept(node, out)


def _split(node: Node, out: Site, _: Constants) -> Step | None:
    if node.attrs.get("axis", 0) % len(out.shape) in out.axes:
        return None
    return _kept(node, out)


def _tile(node: Node, out: Site, _: Constants) -> Step | None:
    return _kept(node, out) if node.graph.opset >= 6 else None


def _pad(node: Node, out: Site, constants: Constants) -> Step | None:
    rank = len(out.shape)
    axes = constants.integers(node.input(3)) if node.input(3) is not None else tuple(range(rank))
    pads = constants.integers(node.input(1)) if node.graph.opset >= 11 else _ints(node, "pads")
    if axes is None or pads is None or len(pads) != 2 * len(axes):
        return None
    for place, axis in enumerate(axes):
        if axis % rank in out.axes and (pads[place] or pads[place + len(axes)]):
            return None
    if node.attrs.get("mode", "constant") == "constant":
        value = node.attrs.get("value", 0.0) if node.graph.opset < 11 else 0.0
        if node.input(2) is not None:
            value = constants.scalar(node.input(2))
        if value != 0:
            return None
    return _kept(node, out)


def _ints(node: Node, name: str) -> tuple[int, ...] | None:
    values = node.attrs.get(name)
    return tuple(values) if isinstance(values, list) else None


def _resize(node: Node, out: Site, constants: Constants) -> Step | None:
    if node.graph.opset < 11 or node.attrs.get("axes") is not None:
        return None
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if node.input(2) is not None:
        scales = constants.known(node.input(2))
        if scales is None or scales.size != len(out.shape):
            return None
        if any(float(scales.reshape(-1)[axis]) != 1 for axis in out.axes):
            return None
    return _kept(node, out)


def _pool(node: Node, out: Site, _: Constants) -> Step | None:
    return _kept(node, out) if out.last <= 1 and out.tensor is node.outputs[0] else None


def _gather(node: Node, out: Site, _: Constants) -> Step | None:
    x = node.inputs[0]
    if x.shape is None:
        return None
    axis = node.attrs.get("axis", 0) % len(x.shape)
    more = len(out.shape) - len(x.shape)
    if out.last < axis:
        found = Site(x, out.first, out.last)
    elif out.first > axis + more:
        found = Site(x, out.first - more, out.last - more)
    else:
        return None
    return Step(node, ((0, found),)) if found.widths == out.widths else None


def _reduce(node: Node, out: Site, constants: Constants) -> Step | None:
    x = node.inputs[0]
    given = reduced_axes(node, constants)
    if x.shape is None or not given:
        return None
    rank = len(x.shape)
    reduced = {axis % rank for axis in given}
    left = list(range(rank))
    if not node.attrs.get("keepdims", 1):
        left = [axis for axis in left if axis not in reduced]
    if len(left) != len(out.shape):
        return None
    axes = [left[axis] for axis in out.axes]
    if not reduced.isdisjoint(range(axes[0], axes[-1] + 1)):
        return None
    found = Site(x, axes[0], axes[-1])
    return Step(node, ((0, found),)) if found.widths == out.widths else None


def reduced_axes(node: Node, constants: Constants) -> tuple[int, ...] | None:
    """Give the axes that a reduction names, as an attribute or an input; None where it does not."""
    if node.input(1) is not None:
        return constants.integers(node.input(1))
    return _ints(node, "axes")


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
            more, ones = _roles(node, out, (2,))
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
    **dict.fromkeys(("Add", "Sub", "Sum"), _sum),
    **dict.fromkeys(("Mul", "Div"), _product),
    **dict.fromkeys(("Identity", "Neg", "Cast", "Dropout"), _same),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Slice", "Expand"), _part),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), _reduce),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), _pool),
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    "Where": _where,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Tile": _tile,
    "Pad": _pad,
    "Resize": _resize,
    "Gather": _gather,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
