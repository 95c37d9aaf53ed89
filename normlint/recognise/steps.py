"""Which node of a spelled-out normalisation plays which part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.algebra import ONE, Leaf, Root, Statistic, X

if TYPE_CHECKING:
    from normlint.algebra import Algebra, Polynomial
    from normlint.graph import Node
    from normlint.recognise.reading import Reading

_HANDED_ON = frozenset(
    [
        "Identity",
        "Dropout",
        "Cast",
        "CastLike",
        "QuantizeLinear",
        "DequantizeLinear",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Expand",
        "Where",
        "Clip",
        "Max",
        "Relu",
    ]
)
REDUCTIONS = frozenset(
    ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "GlobalAveragePool", "Einsum")
)


def steps_of(reading: Reading, nodes: list[Node]) -> dict[str, Node]:
    """Name the first node of each part.

    mean, difference, square, variance (or mean square), epsilon, root, quotient, scale, bias.
    """
    steps: dict[str, Node] = {}
    rest: Polynomial = {}
    for node in nodes:
        value = reading.values.get(node.outputs[0])
        if value is None or node.op in _HANDED_ON:
            continue
        part = _part(reading.algebra, value.polynomial, steps)
        if part == "scale":
            own = _without_x(reading.algebra, value.polynomial)
            part = "bias" if own and own != rest else "scale"
            rest = own
        if part and part not in steps:
            steps[part] = node
    return steps


def is_one_pass(reading: Reading, nodes: list[Node]) -> bool:
    """Whether the variance is first met as a difference: mean(x²) - mean(x)²."""
    for node in nodes:
        value = reading.values.get(node.outputs[0])
        if value is not None and _is_variance(reading, value.polynomial):
            return node.op not in REDUCTIONS and node.is_standard and node.op in {"Sub", "Add"}
    return False


def _is_variance(reading: Reading, polynomial: Polynomial) -> bool:
    if len(polynomial) < 2 or not reading.is_plain(polynomial):
        return False
    generators = reading.algebra.generators
    powers = set()
    for monomial in polynomial:
        for number, exponent in monomial:
            generator = generators[number]
            if isinstance(generator, Statistic):
                powers.add((generator.power, exponent))
    return {(1, 2), (2, 1)} <= powers


def _part(algebra: Algebra, polynomial: Polynomial, steps: dict[str, Node]) -> str:
    degree = max((m[0][1] for m in polynomial if m and m[0][0] == X), default=0)
    has_root = any(_is_root(algebra, n, e) for m in polynomial for n, e in m)
    if degree >= 2:
        return "square"
    if degree == 1:
        if has_root:
            return "scale" if "quotient" in steps else "quotient"
        return "difference"
    if has_root:
        return "root"
    squares = any(_power(algebra, number) == 2 for m in polynomial for number, _ in m)
    if not squares:
        return "mean"
    return "epsilon" if ONE in polynomial else "variance"


def _power(algebra: Algebra, number: int) -> int:
    generator = algebra.generators[number]
    return generator.power if isinstance(generator, Statistic) else 0


def _is_root(algebra: Algebra, number: int, exponent: float) -> bool:
    generator = algebra.generators[number]
    return isinstance(generator, Root) or (exponent not in {1, 2} and _power(algebra, number) == 2)


def _without_x(algebra: Algebra, polynomial: Polynomial) -> Polynomial:
    """Give the terms in constants only: the bias."""
    return {
        monomial: value
        for monomial, value in polynomial.items()
        if all(isinstance(algebra.generators[number], Leaf) for number, _ in monomial)
    }
