"""NL204."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.normalization import Form, Kind
from normlint.rule import Applicability, NotFixed, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic


class FoldableNormAffine(Rule):
    """The bias of a LayerNorm or RMSNorm could move into the linear operators that read it.

    ## What it does

    Reports a norm whose bias every reader can take up: each is a Gemm, a Conv without padding, or a
    MatMul with an Add of a constant behind it, perhaps behind operators that only change the
    layout.
    Then `bias_of_reader + weightᵀ · bias_of_norm` is added there, at no cost.

    ## Why is this bad?

    The bias is one more parameter to load and one more addition for each element. Above all it
    stands in the way of other repairs: RMSNormalization has no bias, so a LayerNorm that could be
    an RMSNorm (NL203) would need an Add behind it, which costs what the RMSNorm saves.

    ## Example

    `LayerNormalization(x, scale, bias)` that three MatMul + Add read becomes
    `LayerNormalization(x, scale)`, and the constants of the three Adds change.

    The scale stays: the operators demand one, so that to move it gains nothing. NL203 moves the
    biases of the norms that it converts; whichever of the two comes first, the result is the same.

    ## Fix safety

    Safe: it is the same function up to rounding. The new biases are computed in float64.

    ## When not to follow it

    Where the bias of the norm is to be trained or looked at separately.

    ## References

    - [SliceGPT](https://arxiv.org/abs/2401.15024), which folds norms in the same way
    """

    code = "NL204"
    severity = Severity.INFO
    applicability = Applicability.SAFE

    bad = (
        """
        matmul_and_add (float[B,T,4] x) => (float[B,T,3] y)
        <float[4] scale = {1,2,-1,0.5}, float[4] bias = {1,0,2,1},
         float[4,3] head = {1,0,2,0,1,1,2,2,1,0,0,1}, float[3] head_bias = {1,2,3}> {
            normed = LayerNormalization(x, scale, bias)
            logits = MatMul(normed, head)
            y = Add(logits, head_bias)
        }
        """,
        """
        two_readers (float[2,4] x) => (float[2,3] y, float[2,2] z)
        <float[4] scale = {1,2,-1,0.5}, float[4] bias = {1,0,2,1},
         float[3,4] one = {1,0,2,0,1,1,2,2,1,0,0,1}, float[3] one_bias = {1,2,3},
         float[4,2] other = {1,0,2,0,1,1,2,2}> {
            normed = LayerNormalization(x, scale, bias)
            y = Gemm<alpha = 2.0, transB = 1>(normed, one, one_bias)
            z = Gemm(normed, other)
        }
        """,
    )
    good = (
        """
        a_residual_sum_reads_it (float[B,T,4] x) => (float[B,T,4] y)
        <float[4] scale = {1,2,-1,0.5}, float[4] bias = {1,0,2,1}> {
            normed = LayerNormalization(x, scale, bias)
            y = Add(normed, x)
        }
        """,
        """
        product_without_bias (float[B,T,4] x) => (float[B,T,3] y)
        <float[4] scale = {1,2,-1,0.5}, float[4] bias = {1,0,2,1},
         float[4,3] head = {1,0,2,0,1,1,2,2,1,0,0,1}> {
            normed = LayerNormalization(x, scale, bias)
            y = MatMul(normed, head)
        }
        """,
        """
        the_result_is_an_output (float[2,4] x) => (float[2,4] normed, float[2,3] y)
        <float[4] scale = {1,2,-1,0.5}, float[4] bias = {1,0,2,1},
         float[4,3] head = {1,0,2,0,1,1,2,2,1,0,0,1}, float[3] head_bias = {1,2,3}> {
            normed = LayerNormalization(x, scale, bias)
            y = Gemm(normed, head, head_bias)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm whose bias all its readers can take up."""
        for norm in context.norms:
            if not _has_bias_of_its_own(norm):
                continue
            outcome = rewrite.norm_bias.fold_bias(context, norm)
            if outcome is None or isinstance(outcome, NotFixed):
                continue
            message = f"the bias of this {norm.kind} can be added by what reads it, at no cost"
            yield diagnose(norm, message, outcome)


def _has_bias_of_its_own(norm: Normalization) -> bool:
    """Whether nothing is lost by taking the bias away: runtimes fuse a LayerNorm only with one."""
    if norm.bias is None or norm.quantized not in {"none", "input"}:
        return False
    if norm.kind is Kind.RMS:
        return True
    return norm.kind is Kind.LAYER and norm.form is Form.OP
