"""NL504."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.precision import LARGEST_HALF
from normlint.diagnosing import diagnose, named
from normlint.rule import Applicability, NotFixed, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.precision import HalfStatistics
    from normlint.rule import Diagnostic

_SUBNORMAL_INVERSE = 1 << 14
"""Elements above which 1/N is subnormal in float16."""


class LongFp16Reduction(Rule):
    """A norm adds up more elements in float16 than that can count.

    ## What it does

    Reports a norm with statistics in float16 over more than 65504 elements, and one that takes a
    sum of more than 16384 before it divides.

    ## Why is this bad?

    The largest number of float16 is 65504: the sum of more squares of unit variance is Inf, and so
    is the count itself. 1/N is subnormal from 16384 on. Before that, an addition to a sum of 2048
    rounds to a whole number.

    ## Example

    InstanceNormalization of a [1, 64, 512, 512] image takes each mean over 262144 elements.

    ## Fix safety

    Safe: the same function, computed in float. Around an operator that leaves its type open, such
    as InstanceNormalization, it is unsafe: it costs time where the runtime computes in float
    anyway.

    ## References

    - [Micikevicius et al. 2018: reductions in float32](https://arxiv.org/abs/1710.03740)
    """

    code = "NL504"
    applicability = Applicability.SAFE

    bad = (
        """
        image (float16[1,2,512,256] x) => (float16[1,2,512,256] y)
        <float[2] g = {1,2}, float[2] b = {0,1}> {
            scale = Cast<to = 10>(g)
            bias = Cast<to = 10>(b)
            y = InstanceNormalization(x, scale, bias)
        }
        """,
        """
        <ir_version: 8, opset_import: ["" : 14]>
        sum_before_division (float16[1,20000] x) => (float16[1,20000] y)
        <float16 two = {16384}, float16 part = {839}, float16 epsilon = {1045},
         int64[1] axes = {1}> {
            square = Pow(x, two)
            total = ReduceSum(square, axes)
            moment = Mul(total, part)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            y = Div(x, root)
        }
        """,
    )
    good = (
        """
        short (float16[1,2,16,16] x) => (float16[1,2,16,16] y)
        <float[2] g = {1,2}, float[2] b = {0,1}> {
            scale = Cast<to = 10>(g)
            bias = Cast<to = 10>(b)
            y = InstanceNormalization(x, scale, bias)
        }
        """,
        """
        long_in_float (float[1,2,512,256] x) => (float[1,2,512,256] y)
        <float[2] g = {1,2}, float[2] b = {0,1}> {
            y = InstanceNormalization(x, g, b)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm whose statistics are of more elements than float16 counts."""
        for found in context.precision.half_statistics():
            limit = _SUBNORMAL_INVERSE if found.adds_up else LARGEST_HALF
            if found.is_float16 and found.count is not None and found.count > limit:
                yield _diagnosis(found, found.count, context)


def _diagnosis(found: HalfStatistics, count: int, context: Context) -> Diagnostic:
    outcome = rewrite.islands.float_statistics(context, found.norm)
    if found.left_open and not isinstance(outcome, NotFixed):
        outcome = replace(outcome, applicability=Applicability.UNSAFE)
    verb = "adds up" if found.adds_up else "averages"
    return diagnose(
        found.norm,
        f"{named(found.norm)} {verb} {count} elements in float16, which counts to 65504",
        outcome,
        elements=count,
    )
