"""Scale and bias of a spelled-out normalisation: polynomials in constants, aligned to x."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.algebra import ONE, Count, Leaf
from normlint.deferred import dataclass
from normlint.model import ValuesUnavailable
from normlint.normalization import Parameter
from normlint.recognise.reading import is_weight

if TYPE_CHECKING:
    from normlint.algebra import Polynomial
    from normlint.context.constants import Constants
    from normlint.recognise.extents import Extent
    from normlint.recognise.reading import Reading

    Array = np.ndarray[Any, Any]

_CLOSE = 1e-6
_LARGEST = 1 << 18
"""Elements of a constant that is read to tell whether it equals another one."""


def parameter(reading: Reading, polynomial: Polynomial, neutral: float) -> Parameter | None:
    """Make a parameter; None where it is the same as none."""
    if _is_number(polynomial, neutral):
        return None
    generators = reading.algebra.generators
    leaves = {
        number: generator
        for monomial in polynomial
        for number, _ in monomial
        if isinstance(generator := generators[number], Leaf)
    }
    counted = any(
        isinstance(generators[number], Count) for monomial in polynomial for number, _ in monomial
    )
    varying = {axis for leaf in leaves.values() for axis in leaf.axes}
    if reading.split is not None and varying:
        varying = {reading.split.axis, reading.split.axis + 1}
    shape = reading.layout.shape
    aligned = tuple(
        _extent(shape, axis, leaves) if axis in varying else 1 for axis in range(len(shape))
    )
    known = tuple(extent for extent in aligned if isinstance(extent, int))
    static = known if len(known) == len(aligned) and not reading.is_open else None
    constant = not counted and not any(
        is_weight(leaf.tensor) or not leaf.constant for leaf in leaves.values()
    )
    alone = _alone(polynomial, leaves)
    own = static
    if reading.split is not None and static is not None:
        own = tuple(prod(static[axis] for axis in entry) for entry in reading.layout.dims)
    return Parameter(
        own,
        tuple(dict.fromkeys(leaf.tensor for leaf in leaves.values())),
        _Values(reading.constants, dict(polynomial), leaves, static, shape, own)
        if constant
        else None,
        None if alone is None else alone.tensor,
    )


def are_equal(reading: Reading, left: Polynomial, right: Polynomial) -> bool:
    """Whether polynomials in small constants have the same values: a scale may be there twice."""
    sides = [parameter(reading, side, neutral=0.0) for side in (left, right)]
    if any(
        side is None or side.compute is None or prod(side.shape or ()) > _LARGEST for side in sides
    ):
        return False
    try:
        one, other = (side.compute() for side in sides if side is not None and side.compute)
    except ValuesUnavailable:
        return False
    if one.shape != other.shape:
        return False
    return bool(np.abs(one - other).max() <= _CLOSE * np.abs(one).max())


def _is_number(polynomial: Polynomial, number: float) -> bool:
    if not polynomial:
        return number == 0
    return list(polynomial) == [ONE] and abs(polynomial[ONE] - number) <= _CLOSE


def _alone(polynomial: Polynomial, leaves: dict[int, Leaf]) -> Leaf | None:
    """Give the leaf that the polynomial is, unchanged."""
    if len(polynomial) != 1 or len(leaves) != 1:
        return None
    ((monomial, coefficient),) = polynomial.items()
    ((number, leaf),) = leaves.items()
    if (
        monomial != ((number, 1),)
        or abs(coefficient - 1) > _CLOSE
        or list(leaf.axes) != sorted(leaf.axes)
    ):
        return None
    return leaf


def _extent(shape: tuple[Extent, ...], axis: int, leaves: dict[int, Leaf]) -> Extent:
    """Give the extent of a parameter along an axis of x, whose own may be symbolic."""
    if isinstance(shape[axis], int):
        return shape[axis]
    for leaf in leaves.values():
        for entry, extent in zip(leaf.dims, leaf.tensor.shape or (), strict=False):
            if entry == (axis,):
                return extent
    return None


def _leading_ones(shape: tuple[int, ...]) -> int:
    return next((position for position, extent in enumerate(shape) if extent != 1), len(shape))


@dataclass(frozen=True)
class _Values:
    constants: Constants
    polynomial: Polynomial
    leaves: dict[int, Leaf]
    aligned: tuple[int, ...] | None
    shape: tuple[Extent, ...]
    own: tuple[int, ...] | None
    """The aligned extents as those of x, where one axis of x is read as two."""

    def __call__(self) -> Array:
        arrays = {number: self._array(leaf) for number, leaf in self.leaves.items()}
        total: Array = np.zeros((), np.float64)
        for monomial, coefficient in self.polynomial.items():
            term: Array = np.asarray(coefficient, np.float64)
            for number, exponent in monomial:
                term = term * arrays[number] ** exponent
            total = total + term
        if self.aligned is not None:
            return np.broadcast_to(total, self.aligned).reshape(self.own or self.aligned)
        return total.reshape(total.shape[_leading_ones(total.shape) :])

    def _array(self, leaf: Leaf) -> Array:
        """Give the values of a leaf in float64, its axes in the order and number of those of x."""
        values = self.constants.values(leaf.tensor).astype(np.float64)
        spread = [
            extent
            for entry, full in zip(leaf.dims, values.shape, strict=True)
            for extent in self._split(entry, full)
        ]
        axes = [axis for entry in leaf.dims for axis in entry]
        order = np.argsort(axes)
        flat = values.reshape(spread).transpose(order)
        full = [1] * len(self.shape)
        for axis, position in zip(sorted(axes), order, strict=True):
            full[axis] = spread[position]
        return flat.reshape(full)

    def _split(self, entry: tuple[int, ...], extent: int) -> list[int]:
        if len(entry) <= 1:
            return [extent] if entry else []
        return [int(own) for axis in entry if isinstance(own := self.shape[axis], int)]
