"""The normal form of arithmetic on one tensor x: polynomials in x, its statistics and constants.

A polynomial maps monomials to coefficients; a monomial is a product of generators with rational
exponents. The generators are x itself, means of x and of x² over some of its axes, roots and
reciprocals of polynomials in these, and tensors that x has no part in. Every operation is an
identity of real numbers, so a normal form computes what the graph computes:

- the mean is linear, and what does not vary along the averaged axes comes out of it;
- a power is taken apart only where no factor can be negative: the root of x² is |x|, not x.

An operation gives None where its result has no such form.
"""

from normlint.algebra.generators import (
    HALF,
    ONE,
    Axes,
    Count,
    Dims,
    Generator,
    Leaf,
    Monomial,
    Polynomial,
    Root,
    Statistic,
    X,
)
from normlint.algebra.polynomials import Algebra, same

__all__ = [
    "HALF",
    "ONE",
    "Algebra",
    "Axes",
    "Count",
    "Dims",
    "Generator",
    "Leaf",
    "Monomial",
    "Polynomial",
    "Root",
    "Statistic",
    "X",
    "same",
]
