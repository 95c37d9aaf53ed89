"""NL205."""

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


class DecomposedGroupNorm(Rule):
    """A GroupNorm is spelled out around Reshapes.

    ## What it does

    Reports channels that are reshaped into groups, normalised (by InstanceNormalization or in
    arithmetic) and reshaped back, with the scale and bias for each channel that follow.

    ## Why is this bad?

    Exporters write it so because the operator came late. It costs two Reshapes, often with a
    subgraph of Shape operators, and two passes over the activation for scale and bias; and in half
    precision an InstanceNormalization takes its statistics in half precision too.

    ## Example

    `Reshape, InstanceNormalization, Reshape, Mul, Add` becomes
    `GroupNormalization(x, scale, bias, num_groups)`. It exists in its present form since opset 21;
    `--target-opset 21` allows the opset to rise.

    ## Fix safety

    Safe: it is the same function up to rounding. A runtime without a kernel for the operator runs
    its definition, which has the variance as mean(x²) - mean(x)²: where the mean is 100 times the
    deviation, onnxruntime 1.32 on a CPU is then off by up to 1e-2 in float32. Where the channels
    are the last axis, as Keras has them, the operator needs Transposes around it, and whether
    these pay is for you to say: unsafe.

    ## When not to follow it

    Where the model is for a runtime that knows the operator of opset 18 only, as TensorRT 10.7.

    ## References

    - [GroupNormalization](https://onnx.ai/onnx/operators/onnx__GroupNormalization.html)
    - [Its change of meaning between opsets 18 and 21](https://github.com/onnx/onnx/issues/5466)
    """

    code = "NL205"
    applicability = Applicability.SAFE

    bad = (
        """
        <ir_version: 10, opset_import: ["" : 21]>
        exporter (float[N,4,6,6] x) => (float[N,4,6,6] y)
        <int64[3] split = {0,2,-1}, float[2] ones = {1,1}, float[2] zeros = {0,0},
         float[4,1,1] scale = {1,2,3,4}, float[4,1,1] bias = {0,1,-1,2}> {
            grouped = Reshape(x, split)
            normalised = InstanceNormalization<epsilon = 1e-5>(grouped, ones, zeros)
            shape = Shape(x)
            joined = Reshape(normalised, shape)
            scaled = Mul(joined, scale)
            y = Add(scaled, bias)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 21]>
        arithmetic (float[2,4,6,6] x) => (float[2,4,6,6] y)
        <int64[3] split = {2,2,-1}, int64[4] shape = {2,4,6,6}, int64[1] axes = {-1},
         float epsilon = {1e-3}, float[1,4,1,1] scale = {1,2,3,4}> {
            grouped = Reshape(x, split)
            mean = ReduceMean(grouped, axes)
            centred = Sub(grouped, mean)
            square = Mul(centred, centred)
            variance = ReduceMean(square, axes)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            normalised = Div(centred, root)
            joined = Reshape(normalised, shape)
            y = Mul(joined, scale)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 21]>
        channels_last (float[2,6,8] x) => (float[2,6,8] y)
        <int64[4] split = {2,6,4,2}, int64[3] shape = {2,6,8}, float epsilon = {1e-3},
         float[1,1,4,2] scale = {1,2,3,4,5,6,7,8}, int64[2] axes = {1,3}> {
            grouped = Reshape(x, split)
            mean = ReduceMean(grouped, axes)
            centred = Sub(grouped, mean)
            square = Mul(centred, centred)
            variance = ReduceMean(square, axes)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            normalised = Div(centred, root)
            scaled = Mul(normalised, scale)
            y = Reshape(scaled, shape)
        }
        """,
    )
    good = (
        """
        <ir_version: 10, opset_import: ["" : 21]>
        fused (float[N,4,6,6] x) => (float[N,4,6,6] y)
        <float[4] scale = {1,2,3,4}, float[4] bias = {0,1,-1,2}> {
            y = GroupNormalization<num_groups = 2>(x, scale, bias)
        }
        """,
        """
        heads_of_attention (float[2,6,8] x) => (float[2,6,8] y)
        <int64[4] split = {2,6,4,2}, int64[3] shape = {2,6,8}, float[2] scale = {1,2}> {
            heads = Reshape(x, split)
            normalised = LayerNormalization(heads, scale)
            y = Reshape(normalised, shape)
        }
        """,
        """
        not_reshaped_back (float[2,4,6,6] x) => (float[2,2,72] y)
        <int64[3] split = {2,2,-1}, float[2] ones = {1,1}, float[2] zeros = {0,0}> {
            grouped = Reshape(x, split)
            y = InstanceNormalization(grouped, ones, zeros)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each GroupNorm that several operators compute."""
        for norm in context.norms:
            if norm.kind is not Kind.GROUP or norm.form is not Form.DECOMPOSED:
                continue
            if norm.quantized == "inside" or norm.elements == 1:
                continue
            message = (
                f"a GroupNorm of {norm.groups} groups is spelled out in {len(norm.nodes)} "
                "operators: Reshapes and passes over the activation that one operator saves"
            )
            yield diagnose(norm, message, rewrite.norm_ops.group_norm(context, norm))
