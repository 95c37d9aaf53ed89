"""NL601."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.diagnosing import with_article
from normlint.rule import Diagnostic, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context


class NearNorm(Rule):
    """A graph looks like a normalisation and is none.

    ## What it does

    Reports arithmetic that has the parts of a LayerNorm or an RMSNorm and yet computes something
    else: statistics without kept axes, an epsilon outside of the root, another exponent than 2,
    operands the other way round, statistics over unequal axes, a scale that broadcasts outwards.

    ## Why is this bad?

    Mostly it is a mistake in a model written by hand, or a tool damaged an export. Where it is
    meant, runtimes and converters that recognise normalisations by their operators may fuse it to
    what it is not (NL602).

    ## Example

    `ReduceMean(keepdims=0)` on a square matrix: the mean of row i is subtracted from column i.

    ## What to do

    Compare with the source of the model. normlint never fuses such a graph.

    ## When not to follow it

    Where the function is meant, as in normalisations that put epsilon beside the deviation.

    ## References

    - [Statistics without kept axes, fused](https://github.com/microsoft/onnxruntime/issues/30513)
    """

    code = "NL601"

    bad = (
        """
        statistics_without_kept_axes (float[4,4] x) => (float[4,4] y)
        <float two = {2}, float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1], keepdims = 0>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1], keepdims = 0>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
        """
        fourth_power (float[2,8] x) => (float[2,8] y)
        <float four = {4}, float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            power = Pow(centred, four)
            moment = ReduceMean<axes = [-1]>(power)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )
    good = (
        """
        unbiased_variance (float[2,8] x) => (float[2,8] y)
        <float epsilon = {1e-5}, float less = {7}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            sum = ReduceSumSquare<axes = [-1]>(centred)
            variance = Div(sum, less)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each look-alike."""
        for near in context.near_norms:
            detail = f": {near.detail}" if near.detail else ""
            yield Diagnostic(
                f"looks like {with_article(near.like)} and is none ({near.reason}){detail}",
                near.nodes[0],
                near.nodes,
                {"reason": near.reason, "like": near.like.value, **near.evidence},
                output=near.y,
            )
