"""NL202."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose, over
from normlint.normalization import Form, Kind
from normlint.rule import Applicability, NotFixed, Reason, Rule
from normlint.support import gap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic, Rewrite


class DecomposedRmsNorm(Rule):
    """An RMSNorm is spelled out in elementary operators.

    ## What it does

    Reports arithmetic that computes `x / sqrt(mean(x²) + epsilon)` over the last axes, with or
    without a scale (Gemma's `1 + w` too), however it is spelled, also between Casts to float32.

    ## Why is this bad?

    As one operator it is one kernel with float32 statistics. Spelled out it is five to eight
    kernels, each of which reads the whole activation, and a square in half precision overflows
    above 255. Of sixteen common spellings onnxruntime 1.32 fuses two.

    ## Example

    Seven operators become `RMSNormalization(x, scale)`, which exists since opset 23
    (`--target-opset 23` allows the opset to rise). Below, with `--targets onnxruntime`, the chain
    is spelled `Pow, ReduceMean, Add, Sqrt, Div, Mul`, which onnxruntime fuses on loading.

    ## Fix safety

    Safe: it is the same function up to rounding. Values in between that somebody else reads stay.

    ## When not to follow it

    Where the model is for a runtime without the operator: OpenVINO has none so far. Name the
    runtimes with `--targets`, and no operator that they lack is made.

    ## References

    - [RMSNormalization](https://onnx.ai/onnx/operators/onnx__RMSNormalization.html)
    - [The spellings that are missed](https://github.com/microsoft/onnxscript/issues/2491)
    - [OpenVINO has no conversion rule](https://github.com/openvinotoolkit/openvino/issues/36694)
    """

    code = "NL202"
    applicability = Applicability.SAFE

    bad = (
        """
        <ir_version: 10, opset_import: ["" : 23]>
        reciprocal (float[B,T,8] x) => (float[B,T,8] y)
        <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, float epsilon = {1e-6}, int64[1] axes = {-1}> {
            square = Mul(x, x)
            mean = ReduceMean(square, axes)
            shifted = Add(mean, epsilon)
            root = Sqrt(shifted)
            inverse = Reciprocal(root)
            normalised = Mul(x, inverse)
            y = Mul(normalised, scale)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 23]>
        one_plus_weight (float16[2,8] x) => (float16[2,8] y)
        <float[8] weight = {0.5,0.5,0,1,-1,1,0.25,0}, float one = {1}, float two = {2},
         float epsilon = {1e-6}, int64[1] axes = {-1}> {
            wide = Cast<to = 1>(x)
            square = Pow(wide, two)
            mean = ReduceMean(square, axes)
            shifted = Add(mean, epsilon)
            root = Sqrt(shifted)
            normalised = Div(wide, root)
            gain = Add(one, weight)
            scaled = Mul(normalised, gain)
            y = Cast<to = 10>(scaled)
        }
        """,
        (
            """
            <ir_version: 8, opset_import: ["" : 17]>
            opset_may_rise (float[2,8] x) => (float[2,8] y)
            <float epsilon = {1e-6}> {
                square = Mul(x, x)
                mean = ReduceMean<axes = [-1]>(square)
                shifted = Add(mean, epsilon)
                root = Sqrt(shifted)
                y = Div(x, root)
            }
            """,
            {"target_opset": 23},
        ),
        (
            """
            <ir_version: 8, opset_import: ["" : 17]>
            spelled_as_the_target_fuses_it (float[2,8] x) => (float[2,8] y)
            <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, float epsilon = {1e-6}> {
                square = Mul(x, x)
                mean = ReduceMean<axes = [-1]>(square)
                shifted = Add(mean, epsilon)
                root = Sqrt(shifted)
                normalised = Div(x, root)
                y = Mul(normalised, scale)
            }
            """,
            {"targets": frozenset({"onnxruntime"})},
        ),
        """
        <ir_version: 8, opset_import: ["" : 17]>
        opset_too_low (float[2,8] x) => (float[2,8] y)
        <float epsilon = {1e-6}> {
            square = Mul(x, x)
            mean = ReduceMean<axes = [-1]>(square)
            shifted = Add(mean, epsilon)
            root = Sqrt(shifted)
            y = Div(x, root)
        }
        """,
    )
    good = (
        """
        <ir_version: 10, opset_import: ["" : 23]>
        fused (float[B,T,8] x) => (float[B,T,8] y)
        <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}> {
            y = RMSNormalization(x, scale)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 23]>
        epsilon_outside_the_root (float[2,8] x) => (float[2,8] y)
        <float epsilon = {1e-6}, int64[1] axes = {-1}> {
            square = Mul(x, x)
            mean = ReduceMean(square, axes)
            root = Sqrt(mean)
            shifted = Add(root, epsilon)
            y = Div(x, shifted)
        }
        """,
        (
            """
            <ir_version: 8, opset_import: ["" : 17]>
            fused_by_the_target (float[2,8] x) => (float[2,8] y)
            <float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, float two = {2}, float epsilon = {1e-6}> {
                square = Pow(x, two)
                mean = ReduceMean<axes = [-1]>(square)
                shifted = Add(mean, epsilon)
                root = Sqrt(shifted)
                normalised = Div(x, root)
                y = Mul(normalised, scale)
            }
            """,
            {"targets": frozenset({"onnxruntime"})},
        ),
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each RMSNorm over the last axes that several operators compute."""
        for norm in context.norms:
            if norm.kind is not Kind.RMS or norm.form is not Form.DECOMPOSED:
                continue
            if norm.axes != tuple(range(-len(norm.axes or ()), 0)) or norm.quantized == "inside":
                continue
            if not _is_left_to_target(context, norm):
                yield diagnose(norm, _message(norm), _rewrite(context, norm))


def _is_left_to_target(context: Context, norm: Normalization) -> bool:
    """Whether the only target fuses this spelling itself, and the operator cannot be had."""
    targets = context.settings.targets
    below = context.opset_limit < rewrite.demands.OPSETS["RMSNormalization"]
    return below and "onnxruntime" in targets and rewrite.respell.is_fused_by_runtime(norm)


def _rewrite(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    targets = context.settings.targets
    lacking = gap(targets, "RMSNormalization", context.opset_limit)
    below = context.opset_limit < rewrite.demands.OPSETS["RMSNormalization"]
    if "onnxruntime" in targets and (below or lacking is not None):
        return rewrite.respell.respelled_rms_norm(context, norm)
    if lacking is not None:
        return NotFixed(Reason.TARGET, norm.anchor, str(lacking))
    return rewrite.norm_ops.rms_norm(context, norm)


def _message(norm: Normalization) -> str:
    return (
        f"an RMSNorm over {over(norm)} is spelled out in {len(norm.nodes)} operators: "
        "each reads the whole activation where one kernel would do"
    )
