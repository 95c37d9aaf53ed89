"""NL103."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Applicability, Diagnostic, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context


class UnfoldedAffine(Rule):
    """Arithmetic with constants per channel stands beside a linear operator that could do its work.

    ## What it does

    Reports a chain of Mul, Add, Sub and Div by constants that vary along one axis, as a BatchNorm
    that is spelled out or a scaled and shifted input, where the weights of a linear operator in
    front of it or behind it can take it up. The bias of a MatMul is not reported; nor is a factor
    of a single value that belongs to something larger, as the scale of an attention, or whose
    weights are read elsewhere.

    ## Why is this bad?

    Each of these operators reads and writes the whole activation. Exporters leave them where a
    frozen BatchNorm, a learned scale of a residual branch or the normalisation of the input was
    traced as arithmetic.

    ## Example

    `Conv(x, W)`, `Mul(·, s)`, `Add(·, t)` becomes `Conv(x, s·W, t)`.

    ## Fix safety

    Safe: the same function up to rounding, and made only where it is exact and leaves fewer
    operators.

    ## When not to follow it

    Where the file is trained further.
    """

    code = "NL103"
    applicability = Applicability.SAFE

    bad = (
        """
        scale_and_shift_after_convolution (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2,1,1] s = {2,-3},
         float[1,2,1,1] t = {1,5}> {
            c = Conv(x, w)
            m = Mul(c, s)
            y = Add(m, t)
        }
        """,
        """
        frozen_batch_norm (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2,1,1] mean = {2,-3},
         float[2,1,1] deviation = {1,5}, float[2,1,1] scale = {2,3}, float[2,1,1] bias = {1,-1}> {
            c = Conv(x, w)
            d = Sub(c, mean)
            q = Div(d, deviation)
            m = Mul(q, scale)
            y = Add(m, bias)
        }
        """,
        """
        scaled_columns (float[N,3] x) => (float[N,2] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] s = {2,-3}, float[2] t = {1,5}> {
            p = MatMul(x, w)
            m = Mul(p, s)
            y = Add(m, t)
        }
        """,
        """
        scaled_input (float[1,2,4,4] x) => (float[1,1,3,3] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[1,2,1,1] mean = {2,-3},
         float[1,2,1,1] s = {1,5}> {
            d = Sub(x, mean)
            q = Div(d, s)
            y = Conv(q, w)
        }
        """,
        """
        one_factor_for_all (float[N,3] x) => (float[N,2] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] b = {1,2}, float s = {2}> {
            p = MatMul(x, w)
            q = Add(p, b)
            y = Div(q, s)
        }
        """,
    )
    good = (
        """
        along_the_width (float[1,1,3,3] x) => (float[1,2,2,2] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] s = {2,-3}> {
            c = Conv(x, w)
            y = Mul(c, s)
        }
        """,
        """
        bias_of_a_product (float[N,3] x) => (float[N,2] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] t = {1,5}> {
            p = MatMul(x, w)
            y = Add(p, t)
        }
        """,
        """
        shift_before_zero_padding (float[1,2,4,4] x) => (float[1,1,5,5] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[1,2,1,1] mean = {2,-3},
         float[1,2,1,1] s = {1,5}> {
            d = Sub(x, mean)
            q = Div(d, s)
            y = Conv<pads = [1,1,1,1]>(q, w)
        }
        """,
        """
        scale_of_an_attention (float[N,3,3] x, float[N,2,3] k) => (float[N,3,3] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float s = {2}> {
            p = MatMul(x, w)
            q = Mul(p, s)
            y = MatMul(q, k)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each chain that can go."""
        for fold in context.folds.affines:
            ops = ", ".join(node.op for node in fold.nodes[:4])
            yield Diagnostic(
                f"{ops} by constants per channel can go into the {fold.into} {fold.where} it"
                f"{fold.cost}",
                fold.node,
                (*fold.nodes, *fold.linear),
                fold.evidence,
                rewrite=fold.rewrite,
                output=fold.node.y,
            )
