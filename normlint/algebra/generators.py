"""What polynomials are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from normlint.graph import Tensor

Monomial: TypeAlias = tuple[tuple[int, float], ...]
"""Generators by number, ascending, with exponents that are not zero."""
Polynomial: TypeAlias = dict[Monomial, float]
Axes: TypeAlias = frozenset[int]
"""Axes of x, counted from the front."""
Dims: TypeAlias = tuple[tuple[int, ...], ...]
"""The layout of a value: for each of its axes the axes of x that it runs along, often one.

None where its extent is 1.
"""


ONE: Monomial = ()
X = 0
"""The number of the generator x."""
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Statistic:
    """The mean of x to a power (1 or 2) over some axes; x itself where there is no axis."""

    power: int
    axes: Axes

    @property
    def is_nonnegative(self) -> bool:
        """Whether it cannot be negative."""
        return self.power == 2


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that x has no part in, as it lies against the axes of x."""

    tensor: Tensor
    dims: Dims
    axes: Axes
    """The axes of x along which it varies."""
    constant: bool
    is_nonnegative: bool = False

    @classmethod
    def of(cls, tensor: Tensor, dims: Dims, *, constant: bool) -> Leaf:
        """Make one from its layout."""
        return cls(tensor, dims, frozenset(axis for entry in dims for axis in entry), constant)


@dataclass(frozen=True, slots=True)
class Count:
    """How many elements an axis of x has, where the file does not say."""

    axis: int
    is_nonnegative: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """A polynomial in statistics that stands under a root or in a denominator.

    `clip` is the bound from below, where there is one: max(polynomial, clip).
    """

    polynomial: Polynomial
    is_nonnegative: bool
    clip: float | None = None


Generator: TypeAlias = Statistic | Leaf | Count | Root
