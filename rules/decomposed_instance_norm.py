"""NL206."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.normalization import Form, Kind
from normlint.rule import Applicability, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class DecomposedInstanceNorm(Rule):
    """An InstanceNorm is spelled out in elementary operators.

    ## What it does

    Reports arithmetic that normalises each channel over the axes behind it, and an
    InstanceNormalization of ones and zeros whose scale and bias follow as Mul and Add.

    ## Why is this bad?

    `InstanceNormalization` has existed since the first opset and is one kernel everywhere. Spelled
    out it reads and writes the whole image seven times and more.

    ## Example

    Mean, difference, square, variance, root, quotient, scale and bias become
    `InstanceNormalization(x, scale, bias)`.

    ## Fix safety

    Safe: it is the same function up to rounding. Half precision with statistics in float32 stays
    so, between Casts, for the operator has no such setting. In double precision nothing is made,
    since onnxruntime has no such kernel. Where the channels are the last axis, the operator needs
    Transposes around it, and whether these pay is for you to say: unsafe.

    ## When not to follow it

    Where scale and bias are computed at run time (style transfer with one network for many styles),
    only the part without them is replaced.

    ## References

    - [InstanceNormalization](https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html)
    """

    code = "NL206"
    applicability = Applicability.SAFE

    bad = (
        """
        arithmetic (float[N,3,5,5] x) => (float[N,3,5,5] y)
        <float epsilon = {1e-5}, float two = {2},
         float[1,3,1,1] scale = {1,2,-3}, float[1,3,1,1] bias = {0,1,-1}> {
            mean = ReduceMean<axes = [2, 3]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [2, 3]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            scaled = Mul(quotient, scale)
            y = Add(scaled, bias)
        }
        """,
        """
        channels_last (float[N,5,4,3] x) => (float[N,5,4,3] y)
        <float epsilon = {1e-5}, float[3] scale = {1,2,-3}> {
            mean = ReduceMean<axes = [1, 2]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [1, 2]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            y = Mul(quotient, scale)
        }
        """,
        """
        affine_behind_it (float[N,3,5] x) => (float[N,3,5] y)
        <float[3] ones = {1,1,1}, float[3] zeros = {0,0,0},
         float[3,1] scale = {1,2,-3}, float[3,1] bias = {0,1,-1}> {
            normalised = InstanceNormalization(x, ones, zeros)
            scaled = Mul(normalised, scale)
            y = Add(scaled, bias)
        }
        """,
    )
    good = (
        """
        fused (float[N,3,5,5] x) => (float[N,3,5,5] y)
        <float[3] scale = {1,2,-3}, float[3] bias = {0,1,-1}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
        """
        one_axis_only (float[2,3,5,5] x) => (float[2,3,5,5] y)
        <float epsilon = {1e-5}, float two = {2}> {
            mean = ReduceMean<axes = [2]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [2]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each InstanceNorm that several operators compute."""
        for norm in context.norms:
            if norm.kind is not Kind.INSTANCE or norm.form is not Form.DECOMPOSED:
                continue
            if norm.training or norm.quantized == "inside":
                continue
            if norm.elements == 1:  # constant-norm says what there is to say
                continue
            message = (
                f"an InstanceNorm is spelled out in {len(norm.nodes)} operators: "
                "each reads the whole activation where one kernel would do"
            )
            yield diagnose(norm, message, rewrite.norm_ops.instance_norm(context, norm))
