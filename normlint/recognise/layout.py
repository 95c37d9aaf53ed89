"""Which axis of a value is which axis of x.

The shape of a value counts as much as its numbers: a mean whose axis was not kept broadcasts along
another one. So each axis of a value carries the axes of x that it runs along, several where a
Reshape merged them, none where its extent is 1 because of a reduction or an Unsqueeze.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.algebra import Dims
    from normlint.recognise.extents import Extent

FREE: tuple[int, ...] = ()
"""An axis of extent 1."""


class Clash(Exception):  # noqa: N818 - it says what is wrong with the shapes
    """Two values broadcast along different axes of x; the reason is that of a near norm."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Layout:
    """The axes of one tensor x.

    `split` names an axis that is read as two, groups and what is in a group: two axes of `shape`,
    and one of x.
    """

    def __init__(
        self,
        shape: tuple[Extent, ...],
        kept: frozenset[int] = frozenset(),
        split: int | None = None,
    ) -> None:
        self.shape = shape
        self.split = split
        dims: list[tuple[int, ...]] = [
            FREE if extent == 1 and axis not in kept else (axis,)
            for axis, extent in enumerate(shape)
        ]
        if split is not None:
            dims[split : split + 2] = [(split, split + 1)]
        self.dims: Dims = tuple(dims)

    def extent(self, entry: tuple[int, ...]) -> Extent:
        """Give the extent of an axis of a value."""
        if len(entry) == 1:
            return self.shape[entry[0]]
        extents = [self.shape[axis] for axis in entry]
        whole = [extent for extent in extents if isinstance(extent, int)]
        return prod(whole) if len(whole) == len(extents) else None

    def broadcast(self, left: Dims, right: Dims) -> Dims:
        """Give the layout of an elementwise operation. Raises Clash."""
        if left == right:
            return left
        if len(left) < len(right):
            left, right = right, left
        right = (FREE,) * (len(left) - len(right)) + right
        result = []
        for mine, other in zip(left, right, strict=True):
            if mine and other and mine != other:
                raise Clash("keepdims")
            result.append(mine or other)
        taken = [axis for entry in result for axis in entry]
        if len(taken) != len(set(taken)):
            raise Clash("keepdims")
        return tuple(result)

    def place(self, shape: tuple[Extent, ...], dims: Dims) -> Dims:
        """Give the layout of a tensor that x has no part in, beside a value. Raises Clash."""
        width = max(len(shape), len(dims))
        padded = (FREE,) * (width - len(dims)) + dims
        taken = {axis for entry in dims for axis in entry}
        result = []
        for position, extent in enumerate(shape, width - len(shape)):
            entry = FREE
            if extent != 1:
                entry = padded[position] or self._missing(position, width, extent, taken)
                known = self.extent(entry)
                if entry == FREE or not _may_equal(known, extent):
                    raise Clash("broadcast")
                taken.update(entry)
            result.append(entry)
        return tuple(result)

    def _missing(
        self, position: int, width: int, extent: Extent, taken: set[int]
    ) -> tuple[int, ...]:
        """Give the axis of x that an axis runs along which the value does not have (any more).

        A wrong guess is harmless: it clashes where the value meets x.
        """
        if width == len(self.dims) and taken.isdisjoint(self.dims[position]):
            own = self.dims[position]
            if own and _may_equal(self.extent(own), extent):
                return own
            if self.split is None:
                return FREE
        inner = -1 if self.split is None else self.split + 1
        if inner > 0 and inner not in taken and self.shape[inner] == extent:
            return (inner,)
        fitting = [
            axis
            for axis, own in enumerate(self.shape)
            if axis not in taken and own == extent and own is not None
        ]
        return (fitting[0],) if len(fitting) == 1 else FREE

    def reshaped(self, dims: Dims, target: Sequence[Extent]) -> Dims | None:
        """Give the layout after a Reshape to these extents, of which one may be unknown."""
        atoms = [axis for entry in dims for axis in entry]
        result: list[tuple[int, ...]] = [FREE] * len(target)
        front = 0
        position = 0
        while position < len(target):
            used = self._used(atoms, front, target[position])
            if used is None:
                break
            result[position] = tuple(atoms[front : front + used])
            front += used
            position += 1
        back = len(atoms)
        last = len(target) - 1
        while last > position:
            used = self._used(atoms[front:back][::-1], 0, target[last])
            if used is None:
                return None
            result[last] = tuple(atoms[back - used : back])
            back -= used
            last -= 1
        if position < len(target):
            if isinstance(target[position], int) and target[position] != -1:
                return None
            result[position] = tuple(atoms[front:back])
        elif front != back:
            return None
        return tuple(result)

    def _used(self, atoms: list[int], start: int, extent: Extent) -> int | None:
        """Give how many axes in a row make up an extent, None where that is not known."""
        if extent == 1:
            return 0
        if extent is not None and not isinstance(extent, int):
            return 1 if start < len(atoms) and self.shape[atoms[start]] == extent else None
        total = 1
        for used, axis in enumerate(atoms[start:], 1):
            own = self.shape[axis]
            if not isinstance(own, int) or extent is None or total >= extent:
                break
            total *= own
            if total == extent:
                return used
        return None

    def permutation(self, dims: Dims) -> tuple[int, ...] | None:
        """Give the axes of x in a value's order; None where it does not have them all."""
        if self.split is not None:
            return tuple(range(len(dims))) if dims == self.dims else None
        if len(dims) != len(self.shape):
            return None
        ones = [axis for axis, entry in enumerate(self.dims) if entry == FREE]
        natural = all(
            entry == (axis,) or (entry == FREE and self.dims[axis] == FREE)
            for axis, entry in enumerate(dims)
        )
        if natural:
            return tuple(range(len(dims)))
        order = []
        for entry in dims:
            if len(entry) > 1 or (entry == FREE and not ones):
                return None
            order.append(entry[0] if entry else ones.pop(0))
        return tuple(order) if sorted(order) == list(range(len(dims))) else None


def _may_equal(left: Extent, right: Extent) -> bool:
    """Whether two extents are equal as far as the file says; a named one may have any value."""
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return True
