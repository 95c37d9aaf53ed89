"""What looks like a normalisation and is none, and why.

A root of a variance or of a mean square divides the very tensor that it was computed from, but an
axis, an exponent, an operand or a term is not as it must be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from normlint.algebra import HALF, ONE, Leaf, Root, Statistic, X
from normlint.normalization import Kind, NearNorm
from normlint.recognise.likeness import read_denominator, take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from normlint.algebra import Algebra, Axes, Polynomial
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.recognise.reading import Reading, Value

DETAILS = {
    "keepdims": "the statistics do not keep the axis that they were taken over, so they broadcast "
    "along another one",
    "exponent": "the differences are raised to another power than 2, or the result is divided by "
    "another power than the root",
    "epsilon-outside": "epsilon is added to the root instead of standing inside it",
    "operand-order": "the root is divided by the value instead of the value by the root",
    "numerator": "what is divided is not what the root was computed from: the mean is subtracted "
    "in one of the two only",
    "axes": "the statistics are taken over different axes",
}
_TOLERANCE = 1e-4


class Flaw(NamedTuple):
    """Why a value is no normalisation."""

    reason: str
    centred: bool
    axes: Axes


def near_norm(reading: Reading, nodes_to: Callable[[Tensor], list[Node]]) -> NearNorm | None:
    """Give the first value that is nearly a normalisation of x."""
    for tensor, value in reading.values.items():
        flaw = _flaw(reading.algebra, value)
        if flaw is None:
            continue
        rank = len(reading.layout.shape)
        axes = reading.raw_axes.get(flaw.axes, flaw.axes)
        return NearNorm(
            flaw.reason,
            Kind.LAYER if flaw.centred else Kind.RMS,
            tuple(nodes_to(tensor)),
            reading.x,
            tensor,
            DETAILS[flaw.reason],
            {"axes": [axis - rank for axis in sorted(axes)]},
        )
    return None


class Difference(NamedTuple):
    """A multiple of x - mean(x)."""

    x: Tensor
    axes: tuple[int, ...]
    """Over which the mean is taken, negative."""


def differences(reading: Reading) -> Iterator[tuple[Tensor, Difference]]:
    """Give the values that are a multiple of x - mean(x)."""
    generators = reading.algebra.generators
    rank = len(reading.layout.shape)
    for tensor, value in reading.values.items():
        factor = value.polynomial.get(((X, 1),))
        if factor is None or len(value.polynomial) != 2:
            continue
        (mean,) = (monomial for monomial in value.polynomial if monomial != ((X, 1),))
        opposite = abs(value.polynomial[mean] + factor) <= _TOLERANCE * abs(factor)
        if len(mean) == 1 and mean[0][1] == 1 and opposite:
            generator = generators[mean[0][0]]
            if isinstance(generator, Statistic) and generator.power == 1:
                axes = reading.raw_axes.get(generator.axes, generator.axes)
                negative = tuple(sorted(axis - rank for axis in axes))
                yield tensor, Difference(reading.x, negative)


def unequal_axes(norm: Normalization, x: Tensor) -> NearNorm:
    """Make a near norm of an RMSNorm of the difference of x from its mean over other axes."""
    return NearNorm(
        "axes",
        Kind.LAYER,
        norm.nodes,
        x,
        norm.y,
        DETAILS["axes"],
        {"axes": list(norm.axes or ())},
    )


def _flaw(algebra: Algebra, value: Value) -> Flaw | None:
    if any(
        monomial and monomial[0][0] == X and monomial[0][1] != 1 for monomial in value.polynomial
    ):
        return None  # a square of a normalised value is on its way to something else
    denominators = {
        (number, exponent)
        for monomial in value.polynomial
        if monomial and monomial[0] == (X, 1)
        for number, exponent in monomial
        if exponent < 0 and not isinstance(algebra.generators[number], Leaf)
    }
    if len(denominators) != 1:
        return None
    ((number, exponent),) = denominators
    root = _root(algebra, number, exponent)
    if root is None:
        return None
    reason = value.flaw or root.reason or _reason(algebra, value.polynomial, number, exponent)
    if not reason:
        return None
    centred = root.centred or _has_mean(algebra, value.polynomial)
    return Flaw(reason, centred, root.axes)


def _has_mean(algebra: Algebra, polynomial: Polynomial) -> bool:
    return any(
        number != X and isinstance(g := algebra.generators[number], Statistic) and g.power == 1
        for monomial in polynomial
        for number, _ in monomial
    )


def _root(algebra: Algebra, number: int, exponent: float) -> Flaw | None:
    """Read a denominator loosely, as anything of one mean square; the reason may be empty."""
    generator = algebra.generators[number]
    reason = "" if exponent == -HALF else "exponent"
    if isinstance(generator, Statistic) and generator.power == 2:
        return Flaw(reason, centred=False, axes=generator.axes)
    if not isinstance(generator, Root) or generator.clip is not None:
        return None
    inner = [
        (factor, power)
        for monomial in generator.polynomial
        for factor, power in monomial
        if power > 0 and not isinstance(algebra.generators[factor], Leaf)
    ]
    if exponent == -1 and ONE in generator.polynomial and all(p == HALF for _, p in inner):
        deeper = _root(algebra, inner[0][0], -HALF) if len(inner) == 1 else None
        return None if deeper is None else deeper._replace(reason="epsilon-outside")
    squares = {
        g.axes
        for factor, power in inner
        if isinstance(g := algebra.generators[factor], Statistic) and (g.power, power) == (2, 1)
    }
    if len(squares) != 1:
        return None
    return Flaw(reason, _has_mean(algebra, generator.polynomial), squares.pop())


def _reason(algebra: Algebra, polynomial: Polynomial, number: int, exponent: float) -> str:
    parts = take_apart(algebra, polynomial)
    if parts is None:
        return ""
    axes = {
        g.axes
        for factor in _statistics(algebra, number) | ({parts.mean} - {None})
        if factor is not None and isinstance(g := algebra.generators[factor], Statistic)
    }
    if len(axes) > 1:
        return "axes"
    radicand = read_denominator(algebra, number, exponent, _TOLERANCE)
    if radicand is None or radicand.clipped:
        return ""
    return "numerator" if radicand.centred != (parts.mean is not None) else ""


def _statistics(algebra: Algebra, number: int) -> set[int | None]:
    generator = algebra.generators[number]
    if not isinstance(generator, Root):
        return {number}
    return {factor for monomial in generator.polynomial for factor, _ in monomial}
