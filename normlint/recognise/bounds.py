"""Operators that bound a value, or choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.recognise.reading import Value, made

if TYPE_CHECKING:
    from normlint.graph import Node
    from normlint.recognise.reading import Reading

_HUGE = 1e30
"""An upper bound from here on is no bound: exporters write the largest number of the type."""


def absolute(reading: Reading, node: Node) -> Value | None:
    """Read Abs or Relu of what cannot be negative."""
    return _clip(reading, node, 0.0)


def _clip(reading: Reading, node: Node, bound: float) -> Value | None:
    value = reading.values.get(node.inputs[0])
    if value is None:
        return None
    polynomial = reading.algebra.clipped(value.polynomial, bound)
    return made(polynomial, value.dims, value.flaw, value.depth + 1)


def clip(reading: Reading, node: Node) -> Value | None:
    """Read a Clip from below; a bound from above only where nothing can reach it."""
    constants = reading.constants
    low: float | None = node.attrs.get("min")
    high: float | None = node.attrs.get("max")
    for position in (1, 2):
        tensor = node.input(position)
        if tensor is None:
            continue
        number = constants.uniform(tensor)
        if number is None:
            return None
        low, high = (number, high) if position == 1 else (low, number)
    if high is not None and high < _HUGE and not _is_largest(high, node.inputs[0].dtype):
        return None
    if low is None:
        return reading.values.get(node.inputs[0])
    return _clip(reading, node, low)


def _is_largest(bound: float, dtype: int) -> bool:
    """Whether it is the largest number of half precision."""
    return dtype == 10 and bound >= 65504


def maximum(reading: Reading, node: Node) -> Value | None:
    """Read the maximum of a value and numbers."""
    known = [tensor for tensor in node.inputs if tensor in reading.values]
    if len(known) != 1:
        return None
    value = reading.values[known[0]]
    dims = value.dims
    bound = None
    for tensor in node.inputs:
        if tensor is known[0]:
            continue
        number = reading.constants.uniform(tensor)
        if number is None:
            return None
        shape = reading.constants.values(tensor).shape
        dims = reading.layout.broadcast(dims, reading.layout.place(shape, dims))
        bound = number if bound is None else max(bound, number)
    polynomial = value.polynomial
    clipped = polynomial if bound is None else reading.algebra.clipped(polynomial, bound)
    return made(clipped, dims, value.flaw, value.depth + 1)


def where(reading: Reading, node: Node) -> Value | None:
    """Read a choice that constants make."""
    condition = reading.constants.uniform(node.inputs[0])
    if condition is None:
        return None
    value = reading.values.get(node.inputs[1 if condition else 2])
    other = node.inputs[2 if condition else 1]
    if value is None or other in reading.values:
        return None
    dims = value.dims
    for tensor in (node.inputs[0], other):
        if tensor.shape is None:
            return None
        dims = reading.layout.broadcast(dims, reading.layout.place(tensor.shape, dims))
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)
