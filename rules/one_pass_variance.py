"""NL208."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.normalization import Form, Kind
from normlint.rule import Applicability, NotFixed, Reason, Rewrite, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic


class OnePassVariance(Rule):
    """The variance is computed as mean(x²) - mean(x)².

    ## What it does

    Reports a spelled-out normalisation whose variance is the difference of two large numbers.

    ## Why is this bad?

    Where the mean is large against the deviation the difference cancels. In float32, with a mean of
    100 deviations, the variance keeps three digits; with 4000, none, and it may come out negative,
    so that the root is NaN. In half precision a mean of 20 deviations is enough.

    ## Example

    `mean(x * x) - mean(x) * mean(x)` becomes the mean of `(x - mean(x))²`: the operator where there
    is one, else the same in elementary operators.

    ## Fix safety

    Unsafe: the function is the same, but the numbers move where the old ones had lost digits. They
    move for the better.

    ## When not to follow it

    Where the inputs are known to have a small mean, and one pass over the data is worth it.

    ## References

    - [Algorithms for calculating variance](https://en.wikipedia.org/wiki/Algorithms_for_calculating_variance)
    """

    code = "NL208"
    applicability = Applicability.UNSAFE

    bad = (
        """
        last_axis (float[2,8] x) => (float[2,8] y)
        <float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1]>(x)
            square = Mul(x, x)
            moment = ReduceMean<axes = [-1]>(square)
            square_of_mean = Mul(mean, mean)
            variance = Sub(moment, square_of_mean)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            centred = Sub(x, mean)
            y = Div(centred, root)
        }
        """,
        """
        <ir_version: 7, opset_import: ["" : 13]>
        no_operator_at_this_opset (float[2,8] x) => (float[2,8] y)
        <float epsilon = {1e-5}, float[8] scale = {1,2,3,4,5,6,7,8}> {
            mean = ReduceMean<axes = [-1]>(x)
            square = Mul(x, x)
            moment = ReduceMean<axes = [-1]>(square)
            square_of_mean = Mul(mean, mean)
            variance = Sub(moment, square_of_mean)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            centred = Sub(x, mean)
            normalised = Div(centred, root)
            y = Mul(normalised, scale)
        }
        """,
    )
    good = (
        """
        mean_of_squared_differences (float[2,8] x) => (float[2,8] y)
        <float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each spelled-out variance that is a difference of moments."""
        for norm in context.norms:
            if norm.one_pass and norm.form is Form.DECOMPOSED:
                message = (
                    "the variance is computed as mean(x²) - mean(x)²: it cancels where the mean "
                    "is large against the deviation"
                )
                yield diagnose(norm, message, _rewrite(context, norm))


def _rewrite(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Make the operator, or where that cannot be the elementary operators."""
    if norm.kind is Kind.GROUP:
        detail = "the definition of GroupNormalization has its variance so too"
        return NotFixed(Reason.TARGET, norm.anchor, detail)
    operators = {
        Kind.LAYER: rewrite.norm_ops.layer_norm,
        Kind.INSTANCE: rewrite.norm_ops.instance_norm,
    }
    make = operators.get(norm.kind)
    outcome = None if make is None else make(context, norm)
    return outcome if isinstance(outcome, Rewrite) else rewrite.two_pass.two_pass(context, norm)
