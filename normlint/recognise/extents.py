"""Extents of tensors that Reshape makes, traced through Shape subgraphs.

Shape inference gives up at most of these; yet that a Reshape brings back the very shape that
another one took away is what proves a group normalisation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from normlint.graph import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor

Extent: TypeAlias = "int | str | tuple[Tensor, int] | None"
"""A number, the name of a symbolic extent, an axis of a tensor, or None where nothing is known."""

_SAME = frozenset(("Identity", "Dropout", "Cast", "CastLike"))
_SAME_VALUES = frozenset(("Unsqueeze", "Squeeze", "Cast", "Identity", "Reshape"))
_DEEPEST = 16
_FARTHEST = 64
"""Nodes to look back along a chain: files may hold cycles."""


def source_of(tensor: Tensor) -> Tensor:
    """Walk back through what changes no value: Identity, float Casts, Q/DQ pairs."""
    for node in above(tensor):
        if node.input(0) is None or not passes(node):
            break
        tensor = node.inputs[0]
    return tensor


def above(tensor: Tensor) -> Iterator[Node]:
    """Give the producer of a tensor, that of its first input and so on, as far as is reasonable."""
    for _ in range(_FARTHEST):
        node = tensor.producer
        if node is None:
            return
        yield node
        if not node.inputs:
            return
        tensor = node.inputs[0]


def passes(node: Node) -> bool:
    """Whether the first output is the first input up to rounding, with all its extents."""
    if node.op in {"QuantizeLinear", "DequantizeLinear"}:
        return not node.inputs[0].is_constant
    if node.op not in _SAME or not node.is_standard:
        return False
    if node.op in {"Cast", "CastLike"}:
        return {node.inputs[0].dtype, node.y.dtype} <= FLOATS | {0}
    return True


def extents_of(tensor: Tensor, constants: Constants) -> tuple[Extent, ...] | None:
    """Give the extents of a tensor; an unknown one is named by its place."""
    root = source_of(tensor)
    shape = tensor.shape if root.shape is None else root.shape
    if shape is None:
        shape = constants.shapes.of(root)
    if shape is None:
        return None
    return tuple((root, axis) if extent is None else extent for axis, extent in enumerate(shape))


def numbers(tensor: Tensor, constants: Constants, depth: int = 0) -> tuple[Extent, ...] | None:
    """Give the elements of a tensor of extents, such as the second input of Reshape."""
    known = constants.integers(tensor)
    node = tensor.producer
    if known is not None or node is None or depth > _DEEPEST or not node.is_standard:
        return known
    if node.op in _SAME_VALUES:
        return numbers(node.inputs[0], constants, depth + 1)
    reader = _READERS.get(node.op)
    return None if reader is None else reader(node, constants, depth + 1)


def _shape(node: Node, constants: Constants, depth: int) -> tuple[Extent, ...] | None:  # noqa: ARG001
    extents = extents_of(node.inputs[0], constants)
    return None if extents is None else extents[node.attrs.get("start", 0) : node.attrs.get("end")]


def _concat(node: Node, constants: Constants, depth: int) -> tuple[Extent, ...] | None:
    joined: list[Extent] = []
    for source in node.inputs:
        part = numbers(source, constants, depth)
        if part is None:
            if source.shape != (1,):
                return None
            part = (None,)
        joined.extend(part)
    return tuple(joined)


def _gather(node: Node, constants: Constants, depth: int) -> tuple[Extent, ...] | None:
    indices = constants.integers(node.inputs[1])
    if indices is None:
        return None
    of = node.inputs[0].producer
    values = numbers(node.inputs[0], constants, depth)
    if values is None:
        # The rank is not known, but an axis counted from the front is an axis all the same.
        if of is None or of.op != "Shape" or of.attrs.get("start", 0) or min(indices) < 0:
            return None
        root = source_of(of.inputs[0])
        return tuple((root, index) for index in indices)
    if any(not -len(values) <= index < len(values) for index in indices):
        return None
    return tuple(values[index] for index in indices)


def _slice(node: Node, constants: Constants, depth: int) -> tuple[Extent, ...] | None:
    values = numbers(node.inputs[0], constants, depth)
    starts = node.attrs.get("starts")
    ends = node.attrs.get("ends")
    if len(node.inputs) > 2:
        starts = constants.integers(node.inputs[1])
        ends = constants.integers(node.inputs[2])
    steps = constants.integers(node.inputs[4]) if len(node.inputs) > 4 else (1,)
    if values is None or not starts or not ends or not steps or steps[0] == 0:
        return None
    return values[starts[0] : ends[0] : steps[0]]


def _where(node: Node, constants: Constants, depth: int) -> tuple[Extent, ...] | None:
    """Read Where(v == -1, 1, v): what -1 asks of an Expand, of extents that are never -1."""
    condition = node.inputs[0].producer
    if condition is None or condition.op != "Equal" or node.inputs[2] not in condition.inputs:
        return None
    values = numbers(node.inputs[2], constants, depth)
    known = [constants.integers(source) for source in condition.inputs]
    asked = any(integers is not None and set(integers) == {-1} for integers in known)
    return values if asked and values is not None and -1 not in values else None


_READERS: dict[str, Callable[[Node, Constants, int], tuple[Extent, ...] | None]] = {
    "Shape": _shape,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Where": _where,
}


def reshaped(
    node: Node, constants: Constants, before: tuple[Extent, ...] | None = None
) -> tuple[Extent, ...] | None:
    """Give the extents of what a Reshape makes; None where not even the rank is known.

    `before` are the extents of its input where more is known of them than the file says.
    """
    known = node.y.shape
    wished = numbers(node.inputs[1], constants) if len(node.inputs) > 1 else None
    if wished is None:
        return extents_of(node.y, constants) if known is not None else None
    if known is None or len(known) != len(wished):
        known = (None,) * len(wished)
    if before is None:
        before = extents_of(node.inputs[0], constants)
    made = list(wished)
    if not node.attrs.get("allowzero", 0):
        made = [_copied(node, before, a) if e == 0 else e for a, e in enumerate(wished)]
    made = [_rest(made, before) if extent == -1 else extent for extent in made]
    return tuple(
        given if isinstance(given, int) or extent is None else extent
        for extent, given in zip(made, known, strict=True)
    )


def _copied(node: Node, before: tuple[Extent, ...] | None, axis: int) -> Extent:
    if before is None:
        return (source_of(node.inputs[0]), axis)
    return before[axis] if axis < len(before) else None


def _rest(made: list[Extent], before: tuple[Extent, ...] | None) -> Extent:
    """Give the extent that -1 stands for: what the others leave of all elements."""
    if before is None:
        return None
    others = [extent for extent in made if extent != -1]
    symbols = [extent for extent in before if not isinstance(extent, int)]
    for extent in others:
        if not isinstance(extent, int):
            if extent not in symbols:
                return None
            symbols.remove(extent)
    elements = math.prod(extent for extent in before if isinstance(extent, int))
    taken = math.prod(extent for extent in others if isinstance(extent, int))
    if not symbols:
        return elements // taken if taken and elements % taken == 0 else None
    return symbols[0] if len(symbols) == 1 and elements == taken else None


def brings_back(node: Node, shape_of: Tensor, constants: Constants) -> bool:
    """Whether a Reshape gives its input, of as many elements, the shape of another tensor."""
    operand = node.input(1)
    maker = None if operand is None else source_of(operand).producer
    root = source_of(shape_of)
    if maker is not None and maker.op == "Shape" and not maker.attrs.get("start", 0):
        return "end" not in maker.attrs and source_of(maker.inputs[0]) is root
    wanted = extents_of(shape_of, constants)
    made = reshaped(node, constants)
    if made is None:
        return False
    if wanted is None:
        wanted = tuple((root, axis) for axis in range(len(made)))
    if len(made) != len(wanted):
        return False
    # Where nothing is known of what came in, take the numbers for what they are meant to be.
    wanted = tuple(
        extent if isinstance(extent, int) and known == (root, axis) else known
        for axis, (extent, known) in enumerate(zip(made, wanted, strict=True))
    )
    # With as many elements, all extents but one determine the last one.
    return sum(a is None or a != b for a, b in zip(made, wanted, strict=True)) <= 1 and not any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(made, wanted, strict=True)
    )
