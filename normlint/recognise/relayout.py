"""Operators that move axes and change no number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.recognise.extents import numbers, reshaped
from normlint.recognise.layout import FREE
from normlint.recognise.reading import Value
from normlint.recognise.reductions import axes_in

if TYPE_CHECKING:
    from normlint.graph import Node
    from normlint.recognise.extents import Extent
    from normlint.recognise.reading import Reading


def reshape(reading: Reading, node: Node) -> Value | None:
    """Follow a Reshape that merges axes, or adds or drops some of extent 1."""
    value = reading.values.get(node.inputs[0])
    if value is None or reading.is_open:
        return None
    target = _target(reading, node, value)
    if target is None:
        return None
    dims = reading.layout.reshaped(value.dims, target)
    return None if dims is None else Value(value.polynomial, dims, value.flaw, value.depth + 1)


def _target(reading: Reading, node: Node, value: Value) -> tuple[Extent, ...] | None:
    """Give the extents that a Reshape makes, as far as they are known."""
    wished = reading.constants.integers(node.input(1))
    shape = node.outputs[0].shape
    if wished is None:
        return reshaped(node, reading.constants)
    extents: list[Extent] = list(wished)
    if not node.attrs.get("allowzero", 0):
        for position, extent in enumerate(wished):
            if extent == 0 and position < len(value.dims):
                entry = value.dims[position]
                extents[position] = reading.layout.extent(entry) if entry else 1
    if shape is not None and len(shape) == len(extents):
        for position, known in enumerate(shape):
            if extents[position] in {-1, None} and known is not None:
                extents[position] = known
    return tuple(None if extent == -1 else extent for extent in extents)


def flatten(reading: Reading, node: Node) -> Value | None:
    """Follow a Flatten."""
    value = reading.values[node.inputs[0]]
    if reading.is_open:
        return None
    axis = node.attrs.get("axis", 1)
    axis = axis + len(value.dims) if axis < 0 else axis
    dims = tuple(
        tuple(axis for entry in part for axis in entry)
        for part in (value.dims[:axis], value.dims[axis:])
    )
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def squeeze(reading: Reading, node: Node) -> Value | None:
    """Follow a Squeeze."""
    value = reading.values.get(node.inputs[0])
    if value is None:
        return None
    axes = axes_in(reading, node, len(value.dims))
    if axes is None or (not axes and reading.is_open):
        return None
    axes = axes or tuple(p for p, entry in enumerate(value.dims) if entry == FREE)
    if any(value.dims[position] for position in axes):
        return None
    dims = tuple(entry for position, entry in enumerate(value.dims) if position not in axes)
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def unsqueeze(reading: Reading, node: Node) -> Value | None:
    """Follow an Unsqueeze."""
    value = reading.values.get(node.inputs[0])
    given = node.attrs.get("axes") or reading.constants.integers(node.input(1))
    if value is None or not given:
        return None
    axes = axes_in(reading, node, len(value.dims) + len(given))
    if axes is None:
        return None
    entries = list(value.dims)
    for position in axes:
        entries.insert(position, FREE)
    return Value(value.polynomial, tuple(entries), value.flaw, value.depth + 1)


def transpose(reading: Reading, node: Node) -> Value | None:
    """Follow a Transpose."""
    value = reading.values[node.inputs[0]]
    rank = len(value.dims)
    if reading.is_open:
        return None
    order = node.attrs.get("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        return None
    dims = tuple(value.dims[position] for position in order)
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def expand(reading: Reading, node: Node) -> Value | None:
    """Follow an Expand: the value does not vary along what it adds."""
    value = reading.values.get(node.inputs[0])
    if value is None or reading.is_open:
        return None
    shape = numbers(node.inputs[1], reading.constants) or node.outputs[0].shape
    if shape is None:
        return None
    dims = reading.layout.broadcast(value.dims, reading.layout.place(shape, value.dims))
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def tile(reading: Reading, node: Node) -> Value | None:
    """Follow a Tile that repeats along axes of extent 1, as an Expand does."""
    value = reading.values.get(node.inputs[0])
    repeats = reading.constants.integers(node.input(1))
    if value is None or repeats is None or reading.is_open or len(repeats) != len(value.dims):
        return None
    if any(entry and times != 1 for entry, times in zip(value.dims, repeats, strict=True)):
        return None
    dims = reading.layout.broadcast(value.dims, reading.layout.place(repeats, value.dims))
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def gather(reading: Reading, node: Node) -> Value | None:
    """Follow a Gather that repeats each group's statistic once for each channel of the group."""
    value = reading.values.get(node.inputs[0])
    split = reading.split
    if value is None or split is None:
        return None
    axis = node.attrs.get("axis", 0)
    if not isinstance(axis, int) or not -len(value.dims) <= axis < len(value.dims):
        return None
    axis %= len(value.dims)
    wanted = tuple(group for group in range(split.groups) for _ in range(split.size))
    if value.dims[axis] != (split.axis,) or reading.constants.integers(node.input(1)) != wanted:
        return None
    dims = (*value.dims[:axis], (split.axis, split.axis + 1), *value.dims[axis + 1 :])
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)
