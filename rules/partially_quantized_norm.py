"""NL402."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.quantized_integer import integer_norms
from normlint.context.quantized_risk import grid_facts, steps_at_risk
from normlint.context.quantized_steps import step_of
from normlint.diagnosing import diagnose, named, over
from normlint.rule import Applicability, Diagnostic, NotFixed, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.quantized import QuantizedNorm
    from normlint.context.quantized_integer import IntegerNorm

_EIGHT_BITS = 8


class PartiallyQuantizedNorm(Rule):
    """A norm that is spelled out is rounded between its steps.

    ## What it does

    Reports a norm in several operators with QuantizeLinear and DequantizeLinear between them: on
    the difference, its square, the variance, epsilon, the root, the quotient or the scaled value.
    The finding lists each of them with its step and range.

    ## Why is this bad?

    The variance of the tokens of one model spans orders of magnitude, and eight bits hold two and a
    half. A variance below half a step becomes 0, epsilon vanishes beside it, and the root is
    divided by. Quantisers put pairs there because they see an Add and a Mul and not the norm.

    ## Example

    `… ReduceMean → Q → DQ → Add(epsilon) → Q → DQ → Sqrt → Div → Q → DQ → Mul …` becomes
    `LayerNormalization` on the value before it was quantised.

    ## Fix safety

    Unsafe: the numbers move, towards those of the float model. The pair on the result stays. Where
    the opset has no operator for the norm, the pairs inside go and the operators stay.

    ## When not to follow it

    Quantise again rather, from a float model whose norms are operators (NL201, NL202), and leave
    them out of quantisation: the scales around the norm were calibrated with the pairs in place.

    ## References

    - [Accuracy lost to quantised pieces of LayerNorm](https://github.com/microsoft/onnxruntime/issues/16219)
    """

    code = "NL402"
    severity = Severity.ERROR
    applicability = Applicability.UNSAFE

    bad = (
        """
        every_step (float[2,8] x) => (float[2,8] y)
        <float s = {0.05}, float t = {0.02}, uint8 z = {128}, uint8 o = {0}, float two = {2},
         float epsilon = {1e-5}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}> {
            q0 = QuantizeLinear(x, s, z)
            d0 = DequantizeLinear(q0, s, z)
            mean = ReduceMean<axes = [-1]>(d0)
            centred = Sub(d0, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            q1 = QuantizeLinear(variance, t, o)
            d1 = DequantizeLinear(q1, t, o)
            shifted = Add(d1, epsilon)
            q2 = QuantizeLinear(shifted, t, o)
            d2 = DequantizeLinear(q2, t, o)
            root = Sqrt(d2)
            quotient = Div(centred, root)
            q3 = QuantizeLinear(quotient, s, z)
            d3 = DequantizeLinear(q3, s, z)
            y = Mul(d3, scale)
        }
        """,
        """
        <ir_version: 7, opset_import: ["" : 13]>
        opset_without_the_operator (float[2,8] x) => (float[2,8] y)
        <float t = {0.02}, uint8 o = {0}, float two = {2}, float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            q1 = QuantizeLinear(variance, t, o)
            d1 = DequantizeLinear(q1, t, o)
            shifted = Add(d1, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )
    good = (
        """
        only_the_result (float[2,8] x) => (float[2,8] y)
        <float s = {0.05}, uint8 z = {128}, float two = {2}, float epsilon = {1e-5}> {
            square = Pow(x, two)
            moment = ReduceMean<axes = [-1]>(square)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            n = Div(x, root)
            q = QuantizeLinear(n, s, z)
            y = DequantizeLinear(q, s, z)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm with roundings between its steps."""
        for found in context.quantized.norms:
            if found.inside:
                yield _diagnosis(found, context)
        for of_integers in integer_norms(context.graph, context.constants):
            yield _of_integers(of_integers, context)


def _of_integers(found: IntegerNorm, context: Context) -> Diagnostic:
    outcome = rewrite.unquantize.integer_norm_in_float(context, found)
    step = step_of(found.dequantize, context.constants)
    size = 0.0 if step is None else step.size
    return Diagnostic(
        f"a norm that is spelled out adds its epsilon in {found.epsilon.op}, in front of the root: "
        f"a variance below {size / 2:.3g} becomes 0, and epsilon with it",
        found.epsilon,
        found.nodes,
        {"steps_at_risk": [{"step": node.op} for node in found.nodes]},
        rewrite=None if isinstance(outcome, NotFixed) else outcome,
        not_fixed=outcome if isinstance(outcome, NotFixed) else None,
    )


def _diagnosis(found: QuantizedNorm, context: Context) -> Diagnostic:
    norm = found.norm
    names = list(dict.fromkeys(name for name, _ in found.inside))
    bits = min(rounding.bits for _, rounding in found.inside)
    message = (
        f"{named(norm)} over {over(norm)} is rounded to {bits} bits between its steps: "
        f"{', '.join(names)}"
    )
    return diagnose(
        norm,
        message,
        rewrite.unquantize.whole_norm_on_floats(context, found),
        severity=Severity.INFO if bits > _EIGHT_BITS else None,
        quantized="inside",
        input=None if found.before is None else grid_facts(found.before),
        steps_at_risk=steps_at_risk(found),
    )
