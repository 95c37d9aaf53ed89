"""NL207."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.normalization import Form, Kind
from normlint.rule import Applicability, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic


class ChannelsFirstLayerNorm(Rule):
    """A LayerNorm over axis 1, for which there is no operator, is spelled out.

    ## What it does

    Reports a LayerNorm over the channels of [N, C, ...] that several operators compute.

    ## Why is this bad?

    LayerNormalization knows the last axes only, so this spelling is never fused: of ten spellings
    tried onnxruntime fuses one, and that over the last axis. It stays at nine passes over the
    activation.

    ## Example

    `Transpose, LayerNormalization, Transpose`, without the Transposes that cancel with those that
    stand there already. On onnxruntime 1.32 and a CPU both Transposes cost less than the nine
    operators in three of four image sizes tried (up to 3.9 times less), and a little more in one.

    ## Fix safety

    Unsafe, though the numbers stay: whether the Transposes pay depends on runtime and layout. A
    runtime that keeps images channels-last anyway drops them, others copy the image twice.

    ## When not to follow it

    Where the image is large and has few channels. Best is to have the model export channels-last.

    ## References

    - [TensorRT on such a LayerNorm](https://github.com/NVIDIA/TensorRT/issues/3748)
    """

    code = "NL207"
    severity = Severity.INFO
    applicability = Applicability.UNSAFE

    bad = (
        """
        image (float[1,3,4,5] x) => (float[1,3,4,5] y)
        <float epsilon = {1e-5}, float[3,1,1] scale = {1,2,-3}, float[3,1,1] bias = {0,1,-1}> {
            mean = ReduceMean<axes = [1]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            scaled = Mul(quotient, scale)
            y = Add(scaled, bias)
        }
        """,
        """
        transposes_cancel (float[1,4,5,3] image) => (float[1,4,5,3] y, float[1,3,4,5] z)
        <float epsilon = {1e-5}, float[3,1,1] scale = {1,2,-3}> {
            x = Transpose<perm = [0, 3, 1, 2]>(image)
            mean = ReduceMean<axes = [1]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            normalised = Mul(quotient, scale)
            y = Transpose<perm = [0, 2, 3, 1]>(normalised)
            z = Relu(normalised)
        }
        """,
    )
    good = (
        """
        channels_last (float[1,4,5,3] x) => (float[1,4,5,3] y)
        <float[3] scale = {1,2,-3}> {
            y = LayerNormalization(x, scale)
        }
        """,
        """
        every_channel_alone (float[1,3,4,5] x) => (float[1,3,4,5] y)
        <float[3] scale = {1,2,-3}, float[3] bias = {0,1,-1}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each spelled-out LayerNorm over axis 1 of three or more."""
        for norm in context.norms:
            if norm.kind is Kind.LAYER and norm.form is Form.DECOMPOSED and _is_over_axis_1(norm):
                message = (
                    f"a LayerNorm over axis 1 is spelled out in {len(norm.nodes)} operators, "
                    "and no operator computes it without Transposes"
                )
                outcome = rewrite.channels_first.channels_first_layer_norm(context, norm)
                yield diagnose(
                    norm,
                    message,
                    outcome,
                    cancelling_transposes=rewrite.channels_first.cancelling(norm),
                )


def _is_over_axis_1(norm: Normalization) -> bool:
    rank = norm.x.rank
    if rank is None or rank < 3 or norm.quantized == "inside":
        return False
    return norm.axes == (1 - rank,)
