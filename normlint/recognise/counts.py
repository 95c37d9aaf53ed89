"""Numbers that the graph computes from shapes: how many elements a sum runs over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.algebra import HALF, ONE
from normlint.recognise.extents import numbers

if TYPE_CHECKING:
    from normlint.algebra import Polynomial
    from normlint.graph import Tensor
    from normlint.recognise.extents import Extent
    from normlint.recognise.reading import Reading

_DEEPEST = 8
_SAME_NUMBER = frozenset(("Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape"))
_COMPUTED = _SAME_NUMBER | {"Sqrt", "Mul", "Div", "Add", "Sub"}


def count(reading: Reading, tensor: Tensor, depth: int = 0) -> Polynomial | None:
    """Give a number that follows from the extents of x; None where a tensor is no such number."""
    known = reading.scope.number(tensor)
    if known is not None:
        return {ONE: known}
    node = tensor.producer
    if node is None or depth > _DEEPEST or not node.is_standard or not node.inputs:
        return None
    of = node.inputs[0] if node.op == "ReduceProd" else tensor
    extents = numbers(of, reading.constants)
    if extents is not None:
        return _product(reading, extents) if of is not tensor or len(extents) == 1 else None
    first = count(reading, node.inputs[0], depth + 1) if node.op in _COMPUTED else None
    if first is None or node.op in _SAME_NUMBER:
        return first
    if node.op == "Sqrt":
        return reading.algebra.power(first, HALF)
    return _of_two(reading, node.op, first, count(reading, node.inputs[1], depth + 1))


def _of_two(
    reading: Reading, op: str, left: Polynomial, right: Polynomial | None
) -> Polynomial | None:
    if right is None:
        return None
    algebra = reading.algebra
    if op in {"Add", "Sub"}:
        return algebra.add(left, right, 1.0 if op == "Add" else -1.0)
    factor = right if op == "Mul" else algebra.power(right, -1)
    return None if factor is None else algebra.multiply(left, factor)


def _product(reading: Reading, extents: tuple[Extent, ...]) -> Polynomial | None:
    """Multiply extents, of which a symbolic one must be that of an axis of x."""
    result: Polynomial | None = {ONE: 1.0}
    shape = reading.layout.shape
    for extent in extents:
        if isinstance(extent, int):
            factor: Polynomial = {ONE: float(extent)}
        elif extent is not None and extent in shape:
            factor = reading.algebra.count([shape.index(extent)])
        else:
            return None
        result = None if result is None else reading.algebra.multiply(result, factor)
    return result
