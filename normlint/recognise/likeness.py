"""Whether a normal form is a normalisation: scale * (x - mean) / root + bias, or without mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from normlint.algebra import HALF, ONE, Algebra, Count, Leaf, Root, Statistic, X, same
from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.algebra import Axes, Monomial, Polynomial

_TOLERANCE = {1: 2e-6, 11: 2e-6, 10: 1e-3, 16: 8e-3}
"""By element type: how far constants such as 1/N may be from what they stand for."""


@dataclass(frozen=True, eq=False)
class Like:
    """A value that is a normalisation of x."""

    axes: Axes
    centred: bool
    epsilon: float
    clipped: bool
    scale: Polynomial
    """In leaves only."""
    bias: Polynomial
    static: bool
    """Whether scale and bias are constants."""
    varying: Axes
    """The axes of x along which scale and bias vary."""

    @property
    def is_affine(self) -> bool:
        """Whether there is a scale or a bias of its own, not only a number."""
        return bool(self.bias) or list(self.scale) != [ONE]


class Radicand(NamedTuple):
    """What stands under the root, in normal form: a variance or a mean square, plus epsilon."""

    axes: Axes
    centred: bool
    epsilon: float
    clipped: bool


class Parts(NamedTuple):
    """The terms of a value by what they multiply."""

    of_x: Polynomial
    of_mean: Polynomial
    rest: Polynomial
    mean: int | None
    denominator: int
    exponent: float


def norm_like(
    algebra: Algebra,
    polynomial: Polynomial,
    dtype: int,
    are_equal: Callable[[Polynomial, Polynomial], bool],
) -> Like | None:
    """Tell whether a value is a normalisation, and which.

    `are_equal` compares the values of two polynomials in constants that differ as symbols.
    """
    tolerance = _TOLERANCE.get(dtype, 2e-6)
    parts = take_apart(algebra, polynomial)
    if parts is None:
        return None
    radicand = read_denominator(algebra, parts.denominator, parts.exponent, tolerance)
    if radicand is None or radicand.centred != (parts.mean is not None):
        return None
    if radicand.centred and not _has_mean_over(algebra, parts, radicand.axes):
        return None
    if radicand.centred:
        negative = algebra.scale(parts.of_mean, -1.0)
        if not same(parts.of_x, negative, tolerance) and not are_equal(parts.of_x, negative):
            return None
    leaves = [
        generator
        for part in (parts.of_x, parts.rest)
        for monomial in part
        for number, _ in monomial
        if isinstance(generator := algebra.generators[number], Leaf)
    ]
    return Like(
        radicand.axes,
        radicand.centred,
        radicand.epsilon,
        radicand.clipped,
        parts.of_x,
        parts.rest,
        all(leaf.constant for leaf in leaves),
        frozenset().union(*(leaf.axes for leaf in leaves)),
    )


def _has_mean_over(algebra: Algebra, parts: Parts, axes: Axes) -> bool:
    mean = None if parts.mean is None else algebra.generators[parts.mean]
    return isinstance(mean, Statistic) and mean.axes == axes


def take_apart(algebra: Algebra, polynomial: Polynomial) -> Parts | None:
    """Sort the terms into multiples of x/root, of mean/root, and the rest; None for all others."""
    of_x: Polynomial = {}
    of_mean: Polynomial = {}
    rest: Polynomial = {}
    means: set[int] = set()
    denominators: set[tuple[int, float]] = set()
    for monomial, coefficient in polynomial.items():
        statistics, leaves = _split(algebra, monomial)
        if not statistics:
            rest[leaves] = coefficient
            continue
        if len(statistics) != 2:
            return None
        below = [factor for factor in statistics if factor[1] < 0]
        above = [factor for factor in statistics if factor[1] == 1]
        if len(below) != 1 or len(above) != 1:
            return None
        denominators.add(below[0])
        number = above[0][0]
        if number == X:
            of_x[leaves] = coefficient
            continue
        means.add(number)
        of_mean[leaves] = coefficient
    if not of_x or len(denominators) != 1 or len(means) > 1:
        return None
    ((denominator, exponent),) = denominators
    return Parts(of_x, of_mean, rest, next(iter(means), None), denominator, exponent)


def _split(algebra: Algebra, monomial: Monomial) -> tuple[Monomial, Monomial]:
    statistics: list[tuple[int, float]] = []
    leaves: list[tuple[int, float]] = []
    for factor in monomial:
        is_leaf = isinstance(algebra.generators[factor[0]], Leaf | Count)
        (leaves if is_leaf else statistics).append(factor)
    return tuple(statistics), tuple(leaves)


def read_denominator(
    algebra: Algebra, number: int, exponent: float, tolerance: float
) -> Radicand | None:
    """Read 1/root: the root of a variance or mean square, or such a root clipped from below."""
    generator = algebra.generators[number]
    if isinstance(generator, Root) and generator.clip is not None:
        return _read_clipped(algebra, generator, exponent, tolerance)
    if exponent != -HALF:
        return None
    alone: Polynomial = {((number, 1),): 1.0}
    polynomial = generator.polynomial if isinstance(generator, Root) else alone
    return _read_radicand(algebra, polynomial, tolerance)


def _read_clipped(
    algebra: Algebra, root: Root, exponent: float, tolerance: float
) -> Radicand | None:
    if exponent == -HALF:
        monic = _monic(algebra, root.polynomial)
        inner = None if monic is None else _read_radicand(algebra, monic, tolerance)
    elif exponent == -1 and len(root.polynomial) == 1:
        ((monomial, _),) = root.polynomial.items()
        statistics, _ = _split(algebra, monomial)
        if len(statistics) != 1 or statistics[0][1] != HALF:
            return None
        inner = read_denominator(algebra, statistics[0][0], -HALF, tolerance)
    else:
        return None
    if inner is None or root.clip is None:
        return None
    return Radicand(inner.axes, inner.centred, root.clip, clipped=True)


def _monic(algebra: Algebra, polynomial: Polynomial) -> Polynomial | None:
    """Divide by the factor of the mean square, which may hold symbolic extents."""
    lead = next(
        (
            (monomial, value)
            for monomial, value in polynomial.items()
            if any(_is_square(algebra, number) for number, _ in monomial)
        ),
        None,
    )
    if lead is None:
        return None
    _, leaves = _split(algebra, lead[0])
    inverse = algebra.power({leaves: lead[1]}, -1)
    return None if inverse is None else algebra.multiply(polynomial, inverse)


def _is_square(algebra: Algebra, number: int) -> bool:
    generator = algebra.generators[number]
    return isinstance(generator, Statistic) and generator.power == 2


def _read_radicand(algebra: Algebra, polynomial: Polynomial, tolerance: float) -> Radicand | None:
    """Read mean(x²) - mean(x)² + epsilon, or mean(x²) + epsilon, of factor 1.

    Epsilon may be negative: it is a normalisation all the same, and NL502 complains of it.
    """
    axes: Axes | None = None
    mean_axes: Axes | None = None
    epsilon = 0.0
    for monomial, coefficient in polynomial.items():
        if monomial == ONE:
            epsilon = coefficient
            continue
        if len(monomial) != 1:
            return None
        ((number, exponent),) = monomial
        generator = algebra.generators[number]
        if not isinstance(generator, Statistic):
            return None
        if (generator.power, exponent) == (2, 1) and abs(coefficient - 1) <= tolerance:
            axes = generator.axes
        elif (generator.power, exponent) == (1, 2) and abs(coefficient + 1) <= tolerance:
            mean_axes = generator.axes
        else:
            return None
    if axes is None or mean_axes not in {None, axes}:
        return None
    return Radicand(axes, mean_axes is not None, epsilon, clipped=False)
