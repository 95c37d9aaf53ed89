"""NL201."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose, over
from normlint.normalization import Form, Kind
from normlint.rule import Applicability, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic


class DecomposedLayerNorm(Rule):
    """A LayerNorm is spelled out in elementary operators.

    ## What it does

    Reports arithmetic that computes `(x - mean(x)) / sqrt(var(x) + epsilon)` over the last axes,
    with or without scale and bias, however it is spelled: squares by Pow or Mul, Div or Mul by a
    reciprocal, sums over N, an unbiased variance, factors folded into constants, Casts between.

    ## Why is this bad?

    Runtimes run `LayerNormalization` as one kernel that reads the activation once and keeps the
    statistics in float32. Spelled out it is five to ten kernels, and each of them reads and writes
    the whole activation; in half precision the square overflows above 255. Runtimes fuse a few
    spellings on their own and miss the others.

    ## Example

    Nine operators become `LayerNormalization(x, scale, bias)`, which exists since opset 17. Where
    the model is older, `--target-opset 17` allows the opset to rise.

    ## Fix safety

    Safe: it is the same function up to rounding. Values in between that somebody else reads stay.
    A variance that is computed as mean(x²) - mean(x)² makes it unsafe, for the operator does not
    cancel where that spelling does, so the numbers move (see NL208).

    ## When not to follow it

    Where the model is for a runtime that has no LayerNormalization: name it with `--targets`.

    ## References

    - [LayerNormalization](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html)
    - [TensorRT: layer normalisation in half precision](https://github.com/NVIDIA/TensorRT/issues/3748)
    """

    code = "NL201"
    applicability = Applicability.SAFE

    bad = (
        """
        exporter (float[B,T,8] x) => (float[B,T,8] y)
        <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, float[8] bias = {0,1,2,3,4,5,6,7},
         float two = {2}, float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            scaled = Mul(quotient, scale)
            y = Add(scaled, bias)
        }
        """,
        """
        reciprocal_without_bias (float[2,8] x) => (float[2,8] y)
        <float[1,8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, float epsilon = {1e-3}> {
            mean = ReduceMean<axes = [1]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [1]>(square)
            shifted = Add(epsilon, variance)
            root = Sqrt(shifted)
            inverse = Reciprocal(root)
            gain = Mul(inverse, scale)
            y = Mul(centred, gain)
        }
        """,
        (
            """
            <ir_version: 7, opset_import: ["" : 11]>
            old (float[2,8] x) => (float[2,8] y)
            <float two = {2}, float epsilon = {1e-5}> {
                mean = ReduceMean<axes = [-1]>(x)
                centred = Sub(x, mean)
                square = Pow(centred, two)
                variance = ReduceMean<axes = [-1]>(square)
                shifted = Add(variance, epsilon)
                root = Sqrt(shifted)
                y = Div(centred, root)
            }
            """,
            {"target_opset": 17},
        ),
        """
        one_pass (float[2,8] x) => (float[2,8] y)
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
        <ir_version: 8, opset_import: ["" : 16]>
        opset_too_low (float16[2,8] x) => (float16[2,8] y)
        <float16 two = {16384}, float16 epsilon = {5145}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )
    good = (
        """
        fused (float[B,T,8] x) => (float[B,T,8] y)
        <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}> {
            y = LayerNormalization(x, scale)
        }
        """,
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
        """
        <ir_version: 10, opset_import: ["" : 23]>
        centred_once_for_several_readers (float[2,8] x) => (float[2,8] y, float[2,8] z)
        <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, int64[1] axes = {-1}> {
            mean = ReduceMean(x, axes)
            centred = Sub(x, mean)
            y = RMSNormalization(centred, scale)
            z = Relu(centred)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each LayerNorm over the last axes that several operators compute."""
        for norm in context.norms:
            if norm.kind is Kind.LAYER and norm.form is Form.DECOMPOSED and _is_to_fuse(norm):
                yield diagnose(norm, _message(norm), rewrite.norm_ops.layer_norm(context, norm))


def _is_to_fuse(norm: Normalization) -> bool:
    """Whether it is over the last axes, in float throughout, and not split on purpose."""
    if norm.axes is None or norm.axes != tuple(range(-len(norm.axes), 0)):
        return False
    return norm.quantized != "inside" and not rewrite.demands.is_half_fused(norm)


def _message(norm: Normalization) -> str:
    return (
        f"a LayerNorm over {over(norm)} is spelled out in {len(norm.nodes)} operators: "
        "each reads the whole activation where one kernel would do"
    )
