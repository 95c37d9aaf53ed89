"""NL105."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.batch_norms import batch_norm_ops
from normlint.context.linear import INTEGER_LINEAR, LINEAR, QUANTIZERS
from normlint.context.passages import PASSAGES
from normlint.rule import Diagnostic, NotFixed, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.graph import Node, Tensor

_ARITHMETIC = frozenset(("Mul", "Add", "Sub", "Div"))
_EXACT = frozenset(("ConvInteger", "MatMulInteger"))
"""Their sums are integers, and nothing is rounded behind them."""
_FAR = 16


class QuantizedBeforeFolding(Rule):
    """What a linear operator computes is quantised before the BatchNorm.

    ## What it does

    Reports a BatchNorm behind Conv → QuantizeLinear → DequantizeLinear, behind QLinearConv or
    QLinearMatMul, or behind ConvInteger or MatMulInteger with their rescaling.

    ## Why is this bad?

    The two were meant to be one operator. Between them the values are rounded to 256 steps of a
    range that the BatchNorm changes at once, channel by channel; and the BatchNorm itself runs in
    float between integer operators. Behind ConvInteger and MatMulInteger nothing but the weight was
    rounded: there NL104 repairs it without loss.

    ## Example

    Fold the BatchNorms first (`normlint check --select NL1 --apply`), then calibrate and quantise.

    ## Fix safety

    There is no repair: without the quantisation in between the model rounds otherwise, and its
    ranges have to be calibrated again.

    ## References

    - [Jacob et al. 2018: fold, then quantise](https://arxiv.org/abs/1712.05877)
    """

    code = "NL105"

    bad = (
        """
        pair_between (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float s = {0.1}, int8 z = {0},
         float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            c = Conv(x, w)
            q = QuantizeLinear(c, s, z)
            d = DequantizeLinear(q, s, z)
            y = BatchNormalization(d, scale, bias, mean, var)
        }
        """,
        """
        integer_product (float[N,3] x) => (float[N,2] y)
        <int8[3,2] q = {10,20,-30,40,-10,5}, float s = {0.05}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            xq, xs, xz = DynamicQuantizeLinear(x)
            sums = MatMulInteger(xq, q, xz)
            c = Cast<to = 1>(sums)
            scales = Mul(xs, s)
            product = Mul(c, scales)
            y = BatchNormalization(product, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        quantised_input (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float s = {0.1}, int8 z = {0},
         float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            y = BatchNormalization(d, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNorm that a linear operator reaches only through a quantisation."""
        for op in batch_norm_ops(context):
            between = _quantised(op.node.inputs[0], context)
            if not between:
                continue
            cause = between[-1]
            detail = f"{cause.op} stands between the linear operator and the BatchNorm"
            yield Diagnostic(
                f"{_complaint(cause)}: fold first, then quantise",
                op.node,
                (*reversed(between), op.node),
                {"between": [node.op for node in reversed(between)]},
                not_fixed=NotFixed(Reason.QUANTIZED_BETWEEN, cause, detail),
            )


def _complaint(cause: Node) -> str:
    if cause.op in _EXACT:
        return f"the weight of {cause.op} was rounded before a BatchNorm was folded into it"
    return f"{cause.op} rounds what a BatchNorm should have been folded into"


def _quantised(tensor: Tensor, context: Context) -> list[Node]:
    """Give the nodes up to a linear operator, that included, if a quantisation is among them."""
    nodes: list[Node] = []
    for _ in range(_FAR):
        node = tensor.producer
        if node is None:
            return []
        nodes.append(node)
        if node.op in INTEGER_LINEAR:
            return nodes
        if node.op in LINEAR:
            return nodes if any(n.op in QUANTIZERS for n in nodes) else []
        if node.op not in QUANTIZERS | _ARITHMETIC and node.op not in PASSAGES:
            return []
        computed = [t for t in node.inputs if t.name and not context.constants.is_constant(t)]
        if not computed:
            return []
        tensor = computed[0]
    return []
