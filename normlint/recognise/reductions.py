"""Means, sums and sums of squares over axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.algebra import HALF
from normlint.recognise.layout import FREE
from normlint.recognise.reading import made

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Node
    from normlint.recognise.reading import Reading, Value


def axes_of(
    node: Node, rank: int, constants: Constants, *, is_open: bool = False
) -> tuple[int, ...] | None:
    """Give the axes of a reduction, Squeeze or Unsqueeze from the front, empty where none is given.

    None where they are not known, or with `is_open` counted from the front of an unknown rank.
    """
    axes = node.attrs.get("axes")
    if axes is None and node.input(1) is not None:
        axes = constants.integers(node.inputs[1])
        if axes is None:
            return None
    if axes is None:
        return ()
    if not isinstance(axes, (list, tuple)):
        return None
    if any(not -rank <= axis < rank or (axis >= 0 and is_open) for axis in axes):
        return None
    return tuple(sorted({axis % rank for axis in axes}))


def axes_in(reading: Reading, node: Node, rank: int) -> tuple[int, ...] | None:
    """Give the axes of a node that reads a value of this rank, as `axes_of` does."""
    return axes_of(node, rank, reading.constants, is_open=reading.is_open)


def reduced(
    reading: Reading, node: Node, *, power: float = 1, total: bool, root: bool = False
) -> Value | None:
    """Read a reduction: the mean or the sum of a power, or the root of it."""
    value = reading.values.get(node.inputs[0])
    if value is None:
        return None
    rank = len(value.dims)
    axes = axes_in(reading, node, rank)
    if axes is None or (
        not axes and (reading.is_open or node.attrs.get("noop_with_empty_axes", 0))
    ):
        return None
    axes = axes or tuple(range(rank))
    kept = bool(node.attrs.get("keepdims", 1))
    return over(reading, value, axes, kept=kept, power=power, total=total, root=root)


def over(
    reading: Reading,
    value: Value,
    axes: tuple[int, ...],
    *,
    kept: bool = True,
    power: float = 1,
    total: bool = False,
    root: bool = False,
) -> Value | None:
    """Reduce a value over its axes at these positions."""
    algebra = reading.algebra
    over = frozenset(axis for position in axes for axis in value.dims[position])
    reading.note_axes(value.dims, axes, over)
    polynomial = algebra.power(value.polynomial, power)
    polynomial = None if polynomial is None else algebra.mean(polynomial, over)
    if polynomial is not None and total:
        polynomial = algebra.multiply(polynomial, algebra.count(over))
    if polynomial is not None and root:
        polynomial = algebra.power(polynomial, HALF)
    dims = tuple(
        FREE if position in axes else entry
        for position, entry in enumerate(value.dims)
        if kept or position not in axes
    )
    return made(polynomial, dims, value.flaw, value.depth + 1)


def pooled(reading: Reading, node: Node) -> Value | None:
    """Read a GlobalAveragePool: the mean over all axes from the third on."""
    value = reading.values[node.inputs[0]]
    if len(value.dims) < 3 or reading.is_open:
        return None
    return over(reading, value, tuple(range(2, len(value.dims))))


def contracted(reading: Reading, node: Node) -> Value | None:
    """Read an Einsum such as `bsd,bsd->bs`: a sum of products over the axes that are gone."""
    values = [reading.values.get(tensor) for tensor in node.inputs]
    left, right = (values[0], values[-1]) if len(values) == 2 else (None, None)
    operands, arrow, kept = str(node.attrs.get("equation", "")).replace(" ", "").partition("->")
    names, _, again = operands.partition(",")
    if left is None or right is None or left.dims != right.dims or not arrow or names != again:
        return None
    if not names.isalpha() or len(set(names)) != len(names) or len(names) != len(left.dims):
        return None
    if kept != "".join(name for name in names if name in kept):
        return None
    product = made(
        reading.algebra.multiply(left.polynomial, right.polynomial),
        left.dims,
        left.flaw or right.flaw,
        max(left.depth, right.depth),
    )
    gone = tuple(position for position, name in enumerate(names) if name not in kept)
    return None if product is None else over(reading, product, gone, kept=False, total=True)
