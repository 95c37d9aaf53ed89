"""NL403."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.quantized_risk import grid_facts
from normlint.rule import Applicability, Diagnostic, NotFixed, Reason, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.quantized import QuantizedSum

_EIGHT_BITS = 8


class QuantizedResidual(Rule):
    """A residual addition adds rounded values, on a stream that norms read.

    ## What it does

    Reports a residual addition with a DequantizeLinear on an operand, or done by QLinearAdd, on a
    stream with norms. The finding gives the step and the range of each rounding.

    ## Why is this bad?

    The residual stream grows with depth, and a few of its channels grow much more: its range spans
    hundreds of deviations of an ordinary token. Each addition rounds the whole stream to 256 steps
    of that range, and each norm divides by the small deviation. Lifting the norms out of the
    quantised region alone hardly helps, for what they read was rounded at the addition.

    ## Example

    `Q → DQ → Add ← DQ ← Q` becomes `Add` of the values before they were quantised.

    ## Fix safety

    Unsafe: the numbers move, towards those of the float model. The cost is a float addition in
    place of an integer one. Set `quantized-repair = "norm"` to leave the additions quantised.

    ## When not to follow it

    Where the hardware has no float at all: name it with `--targets qnn`, and quantise to 16 bits.

    ## References

    - [Leaving residual additions out](https://github.com/huggingface/optimum/issues/151)
    - wyoming-whisper-trt#1052: cosine 0.61 with everything in INT8, 0.91 without the additions,
      0.98 without additions and norms
    """

    code = "NL403"
    applicability = Applicability.UNSAFE

    bad = (
        """
        both_operands (float[1,4,8] x) => (float[1,4,8] y)
        <float s = {4.35}, int8 z = {0}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1},
         float[8,8] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,
                         1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            b = MatMul(x, w)
            qb = QuantizeLinear(b, s, z)
            db = DequantizeLinear(qb, s, z)
            qx = QuantizeLinear(x, s, z)
            dx = DequantizeLinear(qx, s, z)
            r = Add(db, dx)
            y = LayerNormalization(r, scale)
        }
        """,
    )
    good = (
        """
        in_float (float[1,4,8] x) => (float[1,4,8] y)
        <float s = {4.35}, int8 z = {0}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1},
         float[8,8] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,
                         1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            qx = QuantizeLinear(x, s, z)
            dx = DequantizeLinear(qx, s, z)
            b = MatMul(dx, w)
            r = Add(b, x)
            y = LayerNormalization(r, scale)
        }
        """,
        """
        no_norm_on_the_stream (float[1,4,8] x) => (float[1,4,8] y)
        <float s = {4.35}, int8 z = {0},
         float[8,8] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,
                         1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            b = MatMul(x, w)
            qb = QuantizeLinear(b, s, z)
            db = DequantizeLinear(qb, s, z)
            y = Add(db, x)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each residual addition of rounded values."""
        if "qnn" in context.settings.targets:
            return
        for found in context.quantized.sums:
            yield _diagnosis(found, context)


def _diagnosis(found: QuantizedSum, context: Context) -> Diagnostic:
    node = found.node
    widest = max((r.step.range for r in found.roundings if r.step is not None), default=0.0)
    bits = min((rounding.bits for rounding in found.roundings), default=_EIGHT_BITS)
    span = f", over a range of {widest:.3g}" if widest else ""
    outcome = (
        NotFixed(Reason.TARGET, node, "quantized-repair leaves residual additions quantised")
        if context.settings.quantized_repair == "norm"
        else rewrite.unquantize.sum_on_floats(context, found)
    )
    return Diagnostic(
        f"a residual addition works in {bits} bits{span}, and norms read the sum",
        node,
        (node, *(n for r in found.roundings for n in r.nodes)),
        {
            "operands": {str(index): grid_facts(r) for index, r in found.operands},
            "result": grid_facts(found.after[0]) if found.after else None,
        },
        rewrite=None if isinstance(outcome, NotFixed) else outcome,
        not_fixed=outcome if isinstance(outcome, NotFixed) else None,
        severity=Severity.INFO if bits > _EIGHT_BITS else None,
    )
