"""NL101."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.batch_norms import batch_norm_ops
from normlint.rule import Applicability, Diagnostic, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.graph import Node
    from normlint.rewrite.fold import Fold
    from normlint.rule import Rewrite

_LARGE_RANGE = 16
"""A weight of 8 bits keeps 4 of them for the usual channel beyond this."""


class UnfoldedBatchNorm(Rule):
    """A BatchNorm stands behind a linear operator that could do its work.

    ## What it does

    Reports a `BatchNormalization` on running statistics behind a Conv, ConvTranspose, Gemm or
    MatMul (with or without the Add of a bias), also through operators that change the layout only,
    through Concat, pooling and Resize, behind a sum of several of them, or behind another
    BatchNorm.

    ## Why is this bad?

    At inference a BatchNorm is a factor and a shift for each channel, and so is part of what the
    linear operator does already. Left in the graph it reads and writes the whole activation once
    more, and a quantiser that comes later gives it a range of its own, which costs accuracy.

    ## Example

    `Conv(x, W, b)`, `BatchNormalization` becomes `Conv(x, s·W, s·b + t)` with
    s = scale / √(var + ε) and t = bias − s · mean. A weight that is read elsewhere too
    is copied. Of a sum every part takes the factor, and one of them the shift.

    ## Fix safety

    Safe: the same function up to rounding. The new weights are computed in double and rounded once.

    ## When not to follow it

    Where the file is trained further, or its statistics are still to be calibrated.

    ## References

    - [Jacob et al. 2018: batch normalisation folding](https://arxiv.org/abs/1712.05877)
    - [ONNX Runtime: BatchNorm after MatMul is left](https://github.com/microsoft/onnxruntime/issues/12522)
    """

    code = "NL101"
    applicability = Applicability.SAFE

    bad = (
        """
        after_convolution (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] b = {1,-1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w, b)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        after_transposed_convolution (float[1,2,3,3] x) => (float[1,2,6,6] y)
        <float[2,2,2,2] w = {1,2,3,4,-1,0.5,2,1,0,1,2,-1,1,1,3,2}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = ConvTranspose<strides = [2,2]>(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        after_gemm (float[N,3] x) => (float[N,2] y)
        <float[2,3] w = {1,2,3,4,-1,0.5}, float b = {0.25}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            g = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, w, b)
            y = BatchNormalization<epsilon = 0.001>(g, scale, bias, mean, var)
        }
        """,
        """
        columns_of_a_product_as_channels (float[N,T,3] x) => (float[N,2,T] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] b = {0.25,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            product = MatMul(x, w)
            sum = Add(product, b)
            turned = Transpose<perm = [0,2,1]>(sum)
            y = BatchNormalization(turned, scale, bias, mean, var)
        }
        """,
        """
        each_part_of_a_concat (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[1,1,2,2] v = {1,2,3,4}, float[1,1,2,2] w = {-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, v)
            d = Conv(x, w)
            joined = Concat<axis = 1>(c, d)
            y = BatchNormalization(joined, scale, bias, mean, var)
        }
        """,
        """
        sum_of_two_convolutions (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] v = {1,2,3,4,-1,0.5,2,1}, float[2,1,2,2] w = {-1,0.5,2,1,1,2,3,4},
         float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            c = Conv(x, v)
            d = Conv(x, w)
            sum = Add(c, d)
            y = BatchNormalization(sum, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        activation_between (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            r = Relu(c)
            y = BatchNormalization(r, scale, bias, mean, var)
        }
        """,
        """
        another_reader (float[1,1,4,4] x) => (float[1,2,3,3] y, float[1,2,3,3] z)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            z = Sigmoid(c)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        rows_of_a_square_product (float[2,3] x) => (float[2,2] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            product = MatMul(x, w)
            turned = Transpose<perm = [1,0]>(product)
            y = BatchNormalization(turned, scale, bias, mean, var)
        }
        """,
        """
        statistics_of_the_batch (float[4,1,4,4] x) => (float[4,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            y, m, v = BatchNormalization<training_mode = 1>(c, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNorm that can go backward into float weights."""
        zeroed = _zeroed(context) if context.settings.unsafe_fixes else {}
        for fold in context.folds.batch_norms:
            if not fold.is_backward or fold.quantized or fold.refusal:
                continue
            yield Diagnostic(
                f"a BatchNorm can go into the {fold.into} in front of it{_range(fold, context)}",
                fold.node,
                (*fold.linear, *fold.nodes),
                fold.evidence,
                rewrite=zeroed.get(fold.node) or fold.rewrite,
                output=fold.node.y,
            )


def _range(fold: Fold, context: Context) -> str:
    """Say by how much the range of the weight grows, where one scale for all would suffer."""
    if fold.evidence.get("range_factor", 1.0) < _LARGE_RANGE:
        return ""
    widening = rewrite.fold_rows.range_widening(fold, context.constants)
    if widening is None or widening < _LARGE_RANGE:
        return ""
    return f"; that widens the range of its weight {widening:.0f} times: quantise it per channel"


def _zeroed(context: Context) -> dict[Node, Rewrite]:
    """Give the folds that make constant channels exactly so (NL108)."""
    folds = {fold.node: fold for fold in context.folds.batch_norms}
    found: dict[Node, Rewrite] = {}
    for op in batch_norm_ops(context):
        dead = rewrite.fold_dead.dead_channels(op, folds.get(op.node)) if op.node in folds else None
        if dead is not None and dead.rewrite is not None:
            found[op.node] = dead.rewrite
    return found
