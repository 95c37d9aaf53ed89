"""NL401."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.quantized_risk import (
    HARMLESS,
    SERIOUS,
    error_by_peak,
    expected_error,
    grid_facts,
    steps_at_risk,
)
from normlint.diagnosing import diagnose, named, over
from normlint.rule import Applicability, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.quantized import QuantizedNorm
    from normlint.rule import Diagnostic

_EIGHT_BITS = 8


class QuantizedNormalization(Rule):
    """A norm works on values that were rounded to eight bits or so.

    ## What it does

    Reports a LayerNorm, RMSNorm, GroupNorm or InstanceNorm whose input comes from a
    DequantizeLinear (QuantizeLinear in front of it, or an integer operator such as QLinearAdd),
    with the step and the range of the quantisation and each step of the norm at risk. A norm in
    float whose *result* is quantised for linear operators is as it should be, and so are weights
    that are dequantised, and inputs of linear operators that are quantised when the model runs.

    ## Why is this bad?

    A norm divides by the deviation of each token, so a rounding of step Δ leaves a relative error
    of Δ/(√12·σ). One range serves all tokens and channels: where a few channels reach 52 deviations
    of an ordinary token, it is 11 %, at 91 it is 20 %. ONNX Runtime's `quantize_static` quantises
    LayerNormalization and InstanceNormalization by default.

    ## Example

    `Add → QuantizeLinear → DequantizeLinear → LayerNormalization` becomes
    `Add → LayerNormalization`; the pair on its output, for the linear operators, stays.

    ## Fix safety

    Unsafe: the numbers of the quantised model move, towards those of the float model. On a small
    model with outlier channels it helps little by itself, and much together with the residual
    additions (NL403): relative error of the outputs 0.119 as it was, 0.112 without the norms, 0.069
    without norms and additions. Show it with `--data` and `--reference float.onnx`.

    ## When not to follow it

    Where the hardware has no float at all: name it with `--targets qnn`, and quantise to 16 bits.

    ## References

    - [TensorRT: normalisation layers run in float](https://github.com/NVIDIA/TensorRT/issues/4084)
    - wyoming-whisper-trt#1052: a speech model in INT8, cosine 0.61 with everything quantised
    """

    code = "NL401"
    applicability = Applicability.UNSAFE

    bad = (
        """
        between_pairs (float[2,8] x) => (float[2,4] y)
        <float s = {0.05}, int8 z = {0}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1},
         int8[8,4] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            n = LayerNormalization(d, scale)
            qn = QuantizeLinear(n, s, z)
            dn = DequantizeLinear(qn, s, z)
            dw = DequantizeLinear(w, s, z)
            y = MatMul(dn, dw)
        }
        """,
        """
        through_a_transpose (float[1,8,4] x) => (float[1,4,8] y)
        <float s = {0.05}, uint8 z = {128}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            t = Transpose<perm = [0,2,1]>(d)
            y = LayerNormalization(t, scale)
        }
        """,
        """
        spelled_out (float[2,8] x) => (float[2,8] y)
        <float s = {0.05}, uint8 z = {128}, float two = {2}, float epsilon = {1e-5}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            square = Pow(d, two)
            moment = ReduceMean<axes = [-1]>(square)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            y = Div(d, root)
        }
        """,
    )
    good = (
        """
        in_float_for_a_quantised_product (float[2,8] x) => (float[2,4] y)
        <float s = {0.05}, int8 z = {0}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1},
         int8[8,4] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}> {
            n = LayerNormalization(x, scale)
            qn = QuantizeLinear(n, s, z)
            dn = DequantizeLinear(qn, s, z)
            dw = DequantizeLinear(w, s, z)
            y = MatMul(dn, dw)
        }
        """,
        """
        weights_only (int64[2,3] ids) => (float[2,3,4] y)
        <float s = {0.05}, int8 z = {0}, float[4] scale = {1.5,0.5,1,2},
         int8[3,4] w = {1,2,3,4,5,6,7,8,9,8,7,6}> {
            table = DequantizeLinear(w, s, z)
            x = Gather(table, ids)
            y = LayerNormalization(x, scale)
        }
        """,
        (
            """
            for_hardware_without_float (float[2,8] x) => (float[2,8] y)
            <float s = {0.05}, uint8 z = {128}, float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}> {
                q = QuantizeLinear(x, s, z)
                d = DequantizeLinear(q, s, z)
                y = LayerNormalization(d, scale)
            }
            """,
            {"targets": frozenset(("qnn",))},
        ),
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm whose input is rounded."""
        if "qnn" in context.settings.targets:
            return
        for found in context.quantized.norms:
            if found.before is not None and not found.inside:
                yield _diagnosis(found, context)


def _diagnosis(found: QuantizedNorm, context: Context) -> Diagnostic:
    before = found.before
    assert before is not None  # noqa: S101 - for the type checker
    norm, step = found.norm, before.step
    grid = f"{before.bits} bits"
    if step is not None:
        grid = f"steps of {step.size:.3g} over a range of {step.range:.3g} ({step.type_name})"
    measured = _measured_error(found, context)
    error = expected_error(found, context.constants) if measured is None else measured
    message = f"{named(norm)} over {over(norm)} reads values in {grid}"
    if error is not None:
        least = " or more" if measured is None else ""
        message += f": off by {error:.1%}{least} of what it computes"
    return diagnose(
        norm,
        message,
        rewrite.unquantize.norm_on_floats(context, found),
        severity=_severity(before.bits, error, measured),
        quantized="both" if found.after else "input",
        input=grid_facts(before),
        expected_relative_error=None if error is None else float(f"{error:.4g}"),
        error_by_peak_over_deviation=error_by_peak(before),
        steps_at_risk=steps_at_risk(found),
    )


def _measured_error(found: QuantizedNorm, context: Context) -> float | None:
    """Give the relative error of a token of median deviation, where data was measured."""
    seen = None if context.measured is None else context.measured.of(found.norm)
    if seen is None or found.before is None or found.before.step is None:
        return None
    return found.before.step.relative_error(seen.deviation.quantile(0.5))


def _severity(bits: int, error: float | None, measured: float | None) -> Severity | None:
    """Judge by bits and error; only a measured one makes it harmless."""
    if bits > _EIGHT_BITS or (measured is not None and measured < HARMLESS):
        return Severity.INFO
    return Severity.ERROR if error is not None and error > SERIOUS else None
