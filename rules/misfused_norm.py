"""NL602."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.normalization import Kind
from normlint.recognise.runtime_fusion import misfusions
from normlint.rule import Applicability, Diagnostic, NotFixed, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.recognise.runtime_fusion import Misfusion
    from normlint.rule import Rewrite


class MisfusedNorm(Rule):
    """A runtime fuses this graph into a normalisation that computes something else.

    ## What it does

    Reports chains that onnxruntime's own fusion takes for a LayerNorm or an RMSNorm although they
    are none, or that it fuses to a model that does not load or run: another exponent than 2, mean
    minus value, root divided by value, statistics without kept axes, a scale longer than the axis,
    one axis with the scale on the left, float32 scale behind a Cast from half precision; and a
    LayerNorm over another axis, which the optimiser for transformers takes for the last one.

    ## Why is this bad?

    The model computes one thing with optimisation and another without, and optimisation is the
    default. Nothing is reported at run time.

    ## Example

    A LayerNorm with `Sub(mean, x)` in place of `Sub(x, mean)` comes out of onnxruntime 1.32 with
    every sign turned. As LayerNormalization with the scale negated it is safe from fusions.

    ## Fix safety

    Safe where the chain is a normalisation after all: it becomes the operator, which no fusion
    touches. Where it is none there is nothing to write it as, and no repair.

    ## When not to follow it

    Where the model never meets onnxruntime: with `--targets` that leave it out the rule is silent.

    ## References

    - [Statistics without kept axes](https://github.com/microsoft/onnxruntime/issues/30513)
    - [The same, seen again](https://github.com/microsoft/onnxruntime/issues/31144)
    - [A scale that broadcasts outwards](https://github.com/microsoft/onnxruntime/issues/31980)
    """

    code = "NL602"
    severity = Severity.ERROR
    applicability = Applicability.SAFE

    bad = (
        """
        mean_minus_value (float[2,8] x) => (float[2,8] y)
        <float two = {2}, float epsilon = {1e-5}, float[8] scale = {1,2,3,4,5,6,7,8},
         float[8] bias = {0,1,0,1,0,1,0,1}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(mean, x)
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
        statistics_without_kept_axes (float[4,4] x) => (float[4,4] y)
        <float two = {2}, float epsilon = {1e-5}, float[4] scale = {1,2,3,4},
         float[4] bias = {0,1,0,1}> {
            mean = ReduceMean<axes = [-1], keepdims = 0>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1], keepdims = 0>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            scaled = Mul(quotient, scale)
            y = Add(scaled, bias)
        }
        """,
        """
        one_axis_with_the_scale_on_the_left (float[8] x) => (float[8] y)
        <float two = {2}, float epsilon = {1e-5}, float[8] scale = {1,2,3,4,5,6,7,8},
         float[8] bias = {0,1,0,1,0,1,0,1}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            scaled = Mul(scale, quotient)
            y = Add(scaled, bias)
        }
        """,
    )
    good = (
        """
        fused_rightly (float[2,8] x) => (float[2,8] y)
        <float two = {2}, float epsilon = {1e-5}, float[8] scale = {1,2,3,4,5,6,7,8},
         float[8] bias = {0,1,0,1,0,1,0,1}> {
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
        (
            """
            for_another_runtime (float[4,4] x) => (float[4,4] y)
            <float two = {2}, float epsilon = {1e-5}, float[4] scale = {1,2,3,4},
             float[4] bias = {0,1,0,1}> {
                mean = ReduceMean<axes = [-1], keepdims = 0>(x)
                centred = Sub(x, mean)
                square = Pow(centred, two)
                variance = ReduceMean<axes = [-1], keepdims = 0>(square)
                shifted = Add(variance, epsilon)
                root = Sqrt(shifted)
                quotient = Div(centred, root)
                scaled = Mul(quotient, scale)
                y = Add(scaled, bias)
            }
            """,
            {"targets": frozenset({"openvino"})},
        ),
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each chain that onnxruntime fuses wrongly."""
        targets = context.settings.targets
        if targets and "onnxruntime" not in targets:
            return
        norms = {node: norm for norm in context.norms for node in norm.nodes}
        for found in misfusions(context.graph, context.constants):
            yield _diagnostic(context, found, norms.get(found.chain.power))


def _diagnostic(context: Context, found: Misfusion, norm: Normalization | None) -> Diagnostic:
    chain = found.chain
    kind = "LayerNorm" if chain.is_centred else "RMSNorm"
    outcome = None if norm is None else _rewrite(context, norm)
    return Diagnostic(
        f"{found.tool} fuses this to a {kind} that it is not: {found.detail}",
        chain.nodes[0],
        chain.nodes,
        {"reason": found.reason, "seen_on": found.tool},
        rewrite=None if isinstance(outcome, NotFixed) else outcome,
        not_fixed=outcome if isinstance(outcome, NotFixed) else None,
        output=chain.y,
    )


def _rewrite(context: Context, norm: Normalization) -> Rewrite | NotFixed | None:
    """Make the operator of a chain that is a normalisation after all."""
    if norm.kind is Kind.LAYER:
        return rewrite.norm_ops.layer_norm(context, norm)
    return rewrite.norm_ops.rms_norm(context, norm) if norm.kind is Kind.RMS else None
