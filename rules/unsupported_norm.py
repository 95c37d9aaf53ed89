"""NL605."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.rule import Applicability, Rule
from normlint.support import gap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class UnsupportedNorm(Rule):
    """A runtime that the model is for cannot run a normalisation operator.

    ## What it does

    Reports normalisation operators that one of the runtimes given with `--targets` has no
    implementation of, as far as public sources say. Without `--targets` the rule is silent.

    ## Why is this bad?

    The model does not load there, or falls back to another device.

    ## Example

    RMSNormalization for OpenVINO becomes `Pow, ReduceMean, Add, Sqrt, Div, Mul`, which OpenVINO
    fuses itself; `com.microsoft::SkipLayerNormalization` becomes Add and LayerNormalization.

    ## Fix safety

    Safe: it is the same function up to rounding. In half precision the statistics stay in float32,
    between Casts.

    ## When not to follow it

    Where your version of the runtime is newer than what the message names.

    ## References

    - onnxruntime: [RMSNormalization](https://github.com/microsoft/onnxruntime/pull/24875), and
      [what only it knows](https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md)
    - OpenVINO: [RMSNormalization](https://github.com/openvinotoolkit/openvino/issues/36694),
      [LayerNormalization](https://github.com/openvinotoolkit/openvino/issues/22189),
      [GroupNormalization](https://github.com/openvinotoolkit/openvino/pull/20694)
    - TensorRT: [RMSNormalization](https://github.com/onnx/onnx-tensorrt/issues/1046),
      [LayerNormalization](https://github.com/NVIDIA/TensorRT/issues/3642),
      [GroupNormalization 21](https://github.com/NVIDIA/TensorRT/issues/4336)
    - onnx2tf: [com.microsoft::GroupNorm](https://github.com/PINTO0309/onnx2tf/issues/401)
    """

    code = "NL605"
    applicability = Applicability.SAFE

    bad = (
        (
            """
            <ir_version: 10, opset_import: ["" : 23]>
            mean_square_for_openvino (float[2,8] x) => (float[2,8] y)
            <float[8] scale = {1,2,3,4,5,6,7,8}> {
                y = RMSNormalization(x, scale)
            }
            """,
            {"targets": frozenset({"openvino"})},
        ),
        (
            """
            <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
            sum_for_standard_runtimes (float[2,3,8] x, float[2,3,8] skip)
                => (float[2,3,8] y, float[2,3,8] sum)
            <float[8] scale = {1,2,3,4,5,6,7,8}, float[8] bias = {0,1,0,1,0,1,0,1}> {
                y, mean, deviation, sum = com.microsoft.SkipLayerNormalization
                    <epsilon = 1e-5>(x, skip, scale, bias)
            }
            """,
            {"targets": frozenset({"onnx"})},
        ),
        (
            """
            <ir_version: 10, opset_import: ["" : 21]>
            groups_for_tensorrt (float[1,4,2,2] x) => (float[1,4,2,2] y)
            <float[4] scale = {1,2,3,4}, float[4] bias = {0,1,2,3}> {
                y = GroupNormalization<num_groups = 2>(x, scale, bias)
            }
            """,
            {"targets": frozenset({"tensorrt"})},
        ),
    )
    good = (
        """
        <ir_version: 10, opset_import: ["" : 23]>
        without_targets (float[2,8] x) => (float[2,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = RMSNormalization(x, scale)
        }
        """,
        (
            """
            <ir_version: 10, opset_import: ["" : 23]>
            known_there (float[2,8] x) => (float[2,8] y)
            <float[8] scale = {1,2,3,4,5,6,7,8}> {
                y = RMSNormalization(x, scale)
            }
            """,
            {"targets": frozenset({"onnxruntime"})},
        ),
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each operator that a target lacks."""
        targets = context.settings.targets
        if not targets:
            return
        for norm in context.norms:
            lacking = gap(targets, norm.op_type or "", context.opset)
            if lacking is not None:
                yield diagnose(
                    norm,
                    str(lacking),
                    rewrite.standard.standard_form(context, norm),
                    runtime=lacking.runtime,
                    missing=lacking.missing,
                    source=lacking.source,
                )
