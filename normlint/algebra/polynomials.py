"""Arithmetic of polynomials over one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.algebra.generators import HALF, ONE, Count, Leaf, Root, Statistic, X

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.algebra.generators import Axes, Generator, Monomial, Polynomial

_MOST_TERMS = 48
_HIGHEST_POWER = 8
_NOISE = 1e-7
"""A sum that cancels to less than this part of its terms is zero: constants are floats."""
_SAME = 2e-6


class Algebra:
    """Polynomials over one tensor x whose extents are given."""

    def __init__(self, extents: Sequence[object]) -> None:
        self.extents = tuple(extents)
        first = Statistic(1, frozenset())
        self.generators: list[Generator] = [first]
        self._numbers: dict[Generator, int] = {first: X}
        self._roots: list[tuple[int, Root]] = []

    def number(self, generator: Generator) -> int:
        """Give the number of a generator, a new one where it is new."""
        known = self._numbers.get(generator)
        if known is None:
            known = self._numbers[generator] = len(self.generators)
            self.generators.append(generator)
        return known

    def symbol(self, generator: Generator) -> Polynomial:
        """Give a generator as a polynomial."""
        return {((self.number(generator), 1),): 1.0}

    @staticmethod
    def add(left: Polynomial, right: Polynomial, sign: float = 1.0) -> Polynomial | None:
        """Give left + sign * right."""
        result = dict(left)
        for monomial, coefficient in right.items():
            mine = result.get(monomial, 0.0)
            total = mine + sign * coefficient
            if abs(total) <= _NOISE * abs(coefficient):
                result.pop(monomial, None)
            else:
                result[monomial] = total
        return result if len(result) <= _MOST_TERMS else None

    def multiply(self, left: Polynomial, right: Polynomial) -> Polynomial | None:
        """Give the product, multiplied out."""
        if len(left) * len(right) > 4 * _MOST_TERMS:
            return None
        if len(right) == 1 and ONE in right:
            return self.scale(left, right[ONE])
        if len(left) == 1 and ONE in left:
            return self.scale(right, left[ONE])
        result: Polynomial = {}
        for mine, factor in left.items():
            for other, coefficient in right.items():
                monomial = _times(mine, other)
                result[monomial] = result.get(monomial, 0.0) + factor * coefficient
        for monomial in result:
            if monomial and (monomial[0][1] > _HIGHEST_POWER or len(monomial) > _HIGHEST_POWER):
                return None
        if len(result) > _MOST_TERMS:
            return None
        return self._without_whole_roots(result)

    def scale(self, polynomial: Polynomial, factor: float) -> Polynomial:
        """Give factor * polynomial."""
        if factor == 0:
            return {}
        return {monomial: factor * value for monomial, value in polynomial.items()}

    def _without_whole_roots(self, polynomial: Polynomial) -> Polynomial | None:
        """Put the polynomial back where a root was multiplied with itself."""
        for number, root in self._roots:
            if root.clip is not None:
                continue
            for monomial in polynomial:
                exponent = dict(monomial).get(number, 0)
                if exponent >= 1 and exponent == int(exponent):
                    return self._with_root_put_back(polynomial, monomial, number, exponent)
        return polynomial

    def _with_root_put_back(
        self, polynomial: Polynomial, monomial: Monomial, number: int, exponent: float
    ) -> Polynomial | None:
        root = self.generators[number]
        rest = {other: value for other, value in polynomial.items() if other != monomial}
        others = tuple(factor for factor in monomial if factor[0] != number)
        whole = self.power(root.polynomial, exponent) if isinstance(root, Root) else None
        spread = None if whole is None else self.multiply({others: polynomial[monomial]}, whole)
        return None if spread is None else self.add(rest, spread)

    def power(self, polynomial: Polynomial, exponent: float) -> Polynomial | None:
        """Give the polynomial to a power."""
        if exponent == 1:
            return polynomial
        if exponent == 0 or not polynomial or abs(exponent) > _HIGHEST_POWER:
            return None
        if len(polynomial) == 1:
            return self._power_of_monomial(polynomial, exponent)
        if exponent == int(exponent) and exponent > 0:
            result: Polynomial | None = polynomial
            for _ in range(int(exponent) - 1):
                result = None if result is None else self.multiply(result, polynomial)
            return result
        return self._power_of_sum(polynomial, exponent)

    def _power_of_monomial(self, polynomial: Polynomial, exponent: float) -> Polynomial | None:
        ((monomial, coefficient),) = polynomial.items()
        whole = exponent == int(exponent)
        if not whole and (coefficient < 0 or not self._is_nonnegative(monomial)):
            return None
        raised = tuple((number, power * exponent) for number, power in monomial)
        if any(abs(power) > _HIGHEST_POWER for _, power in raised):
            return None
        try:
            factor = float(coefficient**exponent)
        except (OverflowError, ZeroDivisionError):
            return None
        return self._without_whole_roots({raised: factor})

    def _power_of_sum(self, polynomial: Polynomial, exponent: float) -> Polynomial | None:
        if not all(self._is_of_statistics(monomial) for monomial in polynomial):
            return None
        lead = self._leading(polynomial)
        monic = {monomial: value / lead for monomial, value in polynomial.items()}
        nonnegative = self._is_nonnegative_sum(monic)
        # A variance with a negative epsilon has a root wherever the graph gives a number.
        shown = {m: c for m, c in monic.items() if m != ONE or c > 0}
        if exponent != int(exponent) and (lead < 0 or not self._is_nonnegative_sum(shown)):
            return None
        number = self.root(monic, nonnegative)
        try:
            return {((number, exponent),): float(lead**exponent)}
        except OverflowError:
            return None

    def root(self, monic: Polynomial, nonnegative: bool, clip: float | None = None) -> int:
        """Give the number of the generator that stands for a polynomial under a root."""
        for number, known in self._roots:
            if known.clip == clip and same(known.polynomial, monic):
                return number
        root = Root(monic, nonnegative, clip)
        number = self.number(root)
        self._roots.append((number, root))
        return number

    def mean(self, polynomial: Polynomial, axes: Axes) -> Polynomial | None:
        """Give the mean over some axes of x."""
        result: Polynomial = {}
        for monomial, coefficient in polynomial.items():
            averaged = self._mean_of_monomial(monomial, axes)
            if averaged is None:
                return None
            result[averaged] = result.get(averaged, 0.0) + coefficient
        return {
            monomial: value
            for monomial, value in result.items()
            if abs(value) > _NOISE * max(abs(c) for c in polynomial.values())
        }

    def _mean_of_monomial(self, monomial: Monomial, axes: Axes) -> Monomial | None:
        varying = [factor for factor in monomial if self.varies(factor[0], axes)]
        if not varying:
            return monomial
        ((number, exponent), *others) = varying
        generator = self.generators[number]
        if others or not isinstance(generator, Statistic):
            return None
        if exponent == 1:
            mean = Statistic(generator.power, generator.axes | axes)
        elif exponent == 2 and number == X:
            mean = Statistic(2, axes)
        else:
            return None
        rest = tuple(factor for factor in monomial if factor[0] != number)
        return _times(rest, ((self.number(mean), 1),))

    def count(self, axes: Iterable[int]) -> Polynomial:
        """Give how many elements there are along some axes of x."""
        number = 1.0
        unknown: list[tuple[int, float]] = []
        for axis in sorted(axes):
            extent = self.extents[axis]
            if isinstance(extent, int):
                number *= extent
            else:
                unknown.append((self.number(Count(axis)), 1))
        return {tuple(sorted(unknown)): number}

    def varies(self, number: int, axes: Axes) -> bool:
        """Whether a generator takes different values along some of the axes."""
        generator = self.generators[number]
        if isinstance(generator, Statistic):
            return not axes <= generator.axes
        if isinstance(generator, Leaf):
            return not axes.isdisjoint(generator.axes)
        if isinstance(generator, Count):
            return False
        return any(self.varies(n, axes) for monomial in generator.polynomial for n, _ in monomial)

    def clipped(self, polynomial: Polynomial, bound: float) -> Polynomial | None:
        """Give max(polynomial, bound), for a polynomial in statistics that cannot be negative."""
        if not all(self._is_of_statistics(monomial) for monomial in polynomial):
            return None
        if not polynomial or not self._is_nonnegative_sum(polynomial):
            return None
        if bound <= 0 and not self._is_length(polynomial):
            return polynomial
        clip = max(bound, 0.0)
        return {((self.root(polynomial, nonnegative=True, clip=clip), 1),): 1.0}

    def _is_length(self, polynomial: Polynomial) -> bool:
        """Whether it is the length of x; a bound that its type rounded to zero still tells that."""
        ((monomial, _), *others) = polynomial.items()
        return not others and any(
            exponent == HALF and isinstance(self.generators[number], Statistic)
            for number, exponent in monomial
        )

    def _is_nonnegative(self, monomial: Monomial) -> bool:
        return all(self.generators[number].is_nonnegative for number, _ in monomial)

    def _is_of_statistics(self, monomial: Monomial) -> bool:
        return all(
            number != X and not isinstance(self.generators[number], Leaf) for number, _ in monomial
        )

    def _is_nonnegative_sum(self, polynomial: Polynomial) -> bool:
        """Whether all terms are at least zero, after mean(x²) - mean(x)² is counted as one."""
        for monomial, coefficient in polynomial.items():
            if coefficient > 0:
                if not all(
                    self.generators[number].is_nonnegative or exponent % 2 == 0
                    for number, exponent in monomial
                ):
                    return False
                continue
            square = self._square_of(monomial)
            if square is None or polynomial.get(square, 0.0) < -coefficient * (1 - 1e-2):
                return False
        return True

    def _square_of(self, monomial: Monomial) -> Monomial | None:
        """Give the mean of squares that is at least this square of a mean."""
        for position, (number, exponent) in enumerate(monomial):
            generator = self.generators[number]
            if isinstance(generator, Statistic) and generator.power == 1 and exponent == 2:
                square = self.number(Statistic(2, generator.axes))
                rest = monomial[:position] + monomial[position + 1 :]
                return _times(rest, ((square, 1),))
        return None

    def _leading(self, polynomial: Polynomial) -> float:
        """Give the coefficient of the mean square, else of the largest term."""
        for monomial, coefficient in polynomial.items():
            if len(monomial) == 1 and monomial[0][1] == 1:
                generator = self.generators[monomial[0][0]]
                if isinstance(generator, Statistic) and generator.power == 2:
                    return coefficient
        return max(
            (value for monomial, value in polynomial.items() if monomial), key=abs, default=1.0
        )


def same(left: Polynomial, right: Polynomial, tolerance: float = _SAME) -> bool:
    """Whether two polynomials are equal up to the rounding of their coefficients."""
    if left.keys() != right.keys():
        return False
    return all(
        abs(value - right[monomial]) <= tolerance * max(abs(value), abs(right[monomial]))
        for monomial, value in left.items()
    )


def _times(left: Monomial, right: Monomial) -> Monomial:
    if not left:
        return right
    if not right:
        return left
    if len(left) == 1 and len(right) == 1 and left[0][0] != right[0][0]:
        return left + right if left[0][0] < right[0][0] else right + left
    powers = dict(left)
    for number, exponent in right:
        powers[number] = powers.get(number, 0) + exponent
    return tuple(sorted((number, power) for number, power in powers.items() if power))
