"""NL104."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Applicability, Diagnostic, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context


class BatchNormOnQuantizedWeights(Rule):
    """A BatchNorm stands behind a linear operator with quantised weights.

    ## What it does

    Reports a BatchNorm behind a Conv, ConvTranspose, Gemm or MatMul whose weight comes from a
    `DequantizeLinear`, where its factor can go into the scale of that; and one behind the
    ConvInteger or MatMulInteger of dynamic quantisation, where it can go into the scale that their
    sums are multiplied by.

    ## Why is this bad?

    The model was quantised before it was folded. The BatchNorm runs in float between integer
    operators, and keeps a runtime from making one integer kernel of convolution and quantisation.

    ## Example

    The scale of the weight is multiplied by s for each channel and becomes a vector where it was
    one value; the integers keep their bytes. The bias takes up the shift in float.

    ## Fix safety

    Safe: a factor in a scale is exact up to rounding. A channel with a negative factor has its
    integers negated; where one of them has no opposite (−128), it is not made.

    ## When not to follow it

    Where the runtime takes one scale for a whole weight only.

    ## References

    - [Jacob et al. 2018: batch normalisation folding](https://arxiv.org/abs/1712.05877)
    """

    code = "NL104"
    applicability = Applicability.SAFE

    bad = (
        """
        one_scale_for_the_weight (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <int8[2,1,2,2] q = {10,20,-30,40,-10,5,127,1}, float s = {0.05}, int8 z = {0},
         float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            w = DequantizeLinear(q, s, z)
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        a_scale_for_each_column (float[N,3] x) => (float[N,2] y)
        <int8[3,2] q = {10,20,-30,40,-10,5}, float[2] s = {0.05,0.1},
         float[2] scale = {1.5,2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            w = DequantizeLinear<axis = 1>(q, s)
            c = MatMul(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        dynamically_quantised (float[N,3] x) => (float[N,2] y)
        <int8[3,2] q = {10,20,-30,40,-10,5}, float s = {0.05}, float[2] b = {0.25,1},
         float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            xq, xs, xz = DynamicQuantizeLinear(x)
            sums = MatMulInteger(xq, q, xz)
            rounded = Cast<to = 1>(sums)
            scales = Mul(xs, s)
            product = Mul(rounded, scales)
            c = Add(product, b)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        float_weight (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        no_opposite (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <int8[2,1,2,2] q = {10,20,-30,40,-10,5,-128,1}, float s = {0.05}, int8 z = {0},
         float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            w = DequantizeLinear(q, s, z)
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNorm that can go into the scale of a quantised weight."""
        for fold in context.folds.batch_norms:
            if not fold.quantized or fold.refusal:
                continue
            yield Diagnostic(
                f"a BatchNorm can go into the scale of the quantised weight of {fold.into}",
                fold.node,
                (*fold.linear, *fold.nodes),
                fold.evidence,
                rewrite=fold.rewrite,
                output=fold.node.y,
            )
