"""NL501."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from normlint import rewrite
from normlint.context.precision import HEADROOM, LARGEST_HALF, LARGEST_ROOT
from normlint.diagnosing import diagnose, named, over, type_name
from normlint.rule import Applicability, NotFixed, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from normlint.context import Context
    from normlint.context.precision import HalfStatistics
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_FAR = 6
"""The power of two for values that overflowed: how large they are is not known."""


class Fp16NormOverflow(Rule):
    """The statistics of a norm are computed in half precision.

    ## What it does

    Reports a norm whose mean, squares or variance are float16 or bfloat16: spelled out without
    Casts to float, or an operator whose `stash_type` says so. As an info it reports
    InstanceNormalization and GroupNormalization 18 in half precision, whose definition leaves the
    type open, and a norm in float that reads squared activations in float16 (squared ReLU and the
    like). With `--data`, or where a table says so, it reports a norm that reads values in float16
    which overflow (a warning) or come near (an info).

    ## Why is this bad?

    A square overflows float16 above 255. The variance is Inf then, the quotient 0, and the row
    becomes the bias of the norm: no NaN appears anywhere, and the model is merely wrong. A sum in
    bfloat16 keeps eight bits. ONNX Runtime's CPU computes half precision in float and hides it;
    other backends do not.

    ## Example

    `Sub → Pow → ReduceMean → Add → Sqrt → Div` in float16 becomes LayerNormalization, which
    computes in float (`stash_type` 1), or the same nodes between a Cast to float and one back.

    ## Fix safety

    Safe: the same function, computed more exactly. One operator takes the place of the norm where
    the opset has it; else Casts to float stand around the nodes up to the quotient. For operators
    that leave the type open the repair is unsafe: it costs time where the runtime computes in float
    anyway. The repair for large values scales what the norm reads by a power of two, and its
    epsilon by the square of it, which is exact: in the weights that write it, and so along the
    whole residual stream with all norms that read it. It is unsafe since small values may become
    subnormal.

    ## References

    - [A speech model wrong in float16 on one backend](https://github.com/microsoft/onnxruntime/issues/31626)
    - [Squared ReLU in front of a LayerNorm](https://github.com/microsoft/onnxruntime/issues/17692)
    - [SLaNC: static scaling of the input of a LayerNorm](https://arxiv.org/abs/2410.10553)
    """

    code = "NL501"
    applicability = Applicability.SAFE

    bad = (
        """
        spelled_out (float16[2,3,16] x) => (float16[2,3,16] y)
        <float16 two = {16384}, float16 epsilon = {1045}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
        """
        <ir_version: 8, opset_import: ["" : 14]>
        opset_without_the_operator (float16[2,3,16] x) => (float16[2,3,16] y)
        <float16 two = {16384}, float16 epsilon = {1045}, float[16] g =
         {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            scale = Cast<to = 10>(g)
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            quotient = Div(centred, root)
            y = Mul(quotient, scale)
        }
        """,
        """
        type_left_open (float16[2,3,8] x) => (float16[2,3,8] y)
        <float[3] g = {1,2,3}, float[3] b = {0,1,2}> {
            scale = Cast<to = 10>(g)
            bias = Cast<to = 10>(b)
            y = InstanceNormalization(x, scale, bias)
        }
        """,
        """
        squared_activations (float16[2,3,4] x) => (float16[2,3,4] y)
        <float[4,4] w = {1,2,3,4,5,6,7,8,-1,2,-3,4,5,-6,7,8}, float[4] g = {1,2,3,4}> {
            weight = Cast<to = 10>(w)
            scale = Cast<to = 10>(g)
            up = MatMul(x, weight)
            h = Relu(up)
            square = Mul(h, h)
            down = MatMul(square, weight)
            y = LayerNormalization(down, scale)
        }
        """,
    )
    good = (
        """
        operator_that_computes_in_float (float16[2,3,4] x) => (float16[2,3,4] y)
        <float[4] g = {1,2,3,4}> {
            scale = Cast<to = 10>(g)
            y = LayerNormalization<stash_type = 1>(x, scale)
        }
        """,
        """
        cast_to_float (float16[2,3,16] x) => (float16[2,3,16] y)
        <float two = {2}, float epsilon = {1e-5}> {
            wide = Cast<to = 1>(x)
            square = Pow(wide, two)
            moment = ReduceMean<axes = [-1]>(square)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            quotient = Div(wide, root)
            y = Cast<to = 10>(quotient)
        }
        """,
        """
        in_float (float[2,3,16] x) => (float[2,3,16] y)
        <float two = {2}, float epsilon = {1e-5}> {
            square = Pow(x, two)
            moment = ReduceMean<axes = [-1]>(square)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            y = Div(x, root)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm with statistics in half precision, or that reads squares in float16."""
        for found in context.precision.half_statistics():
            yield _of_statistics(found, context)
        served: set[Normalization] = set()
        yield from _of_range(context, served)
        yield from _of_squares(context, served)


def _of_statistics(found: HalfStatistics, context: Context) -> Diagnostic:
    norm = found.norm
    outcome = rewrite.islands.float_statistics(context, norm)
    if found.left_open and not isinstance(outcome, NotFixed):
        outcome = replace(outcome, applicability=Applicability.UNSAFE)
    return diagnose(
        norm,
        _message(found),
        outcome,
        severity=Severity.INFO if found.left_open else None,
        **_evidence(found),
    )


def _message(found: HalfStatistics) -> str:
    what = f"the statistics of {named(found.norm)} over {over(found.norm)}"
    kind = type_name(found.dtype)
    if found.left_open:
        return f"{what} may be computed in {kind}: the operator leaves it open"
    if not found.is_float16:
        return f"{what} are computed in {kind}, whose sums keep eight bits"
    if not found.squares:
        return f"the mean of {named(found.norm)} over {over(found.norm)} is computed in {kind}"
    return f"{what} are computed in {kind}: squares overflow above {LARGEST_ROOT:.0f}, silently"


def _evidence(found: HalfStatistics) -> dict[str, Any]:
    steps = {
        name: type_name(node.y.dtype)
        for name, node in found.norm.steps.items()
        if name in {"mean", "difference", "square", "variance", "root"} and node.y.dtype
    }
    facts: dict[str, Any] = {"steps": steps} if steps else {}
    if found.is_float16 and found.squares:
        facts["overflows_above"] = float(f"{LARGEST_ROOT:.4g}")
    return facts


def _of_range(context: Context, served: set[Normalization]) -> Iterator[Diagnostic]:
    """Report each stream of large values once, at the first norm that reads them."""
    for norm in context.precision.norms:
        largest = context.precision.largest_read(norm, context.measured)
        if norm in served or largest < LARGEST_HALF / HEADROOM:
            continue
        overflowed = not math.isfinite(largest)
        exponent = _FAR if overflowed else math.ceil(math.log2(largest * HEADROOM / LARGEST_HALF))
        found = rewrite.rescale.rescaled_stream(context, norm, max(exponent, 1))
        served.update(found.norms)
        reads = "infinite values" if overflowed else f"values up to {largest:.0f}"
        yield diagnose(
            norm,
            f"{named(norm)} reads {reads} in float16, which ends at 65504",
            found.outcome,
            severity=Severity.WARNING if overflowed else Severity.INFO,
            norms=len(found.norms),
            **({} if overflowed else {"largest": float(f"{largest:.6g}")}),
        )


def _of_squares(context: Context, served: set[Normalization]) -> Iterator[Diagnostic]:
    for norm in context.precision.norms:
        if norm in served:
            continue
        if norm.dtype != TensorProto.FLOAT16 or norm.statistics_dtype != TensorProto.FLOAT:
            continue
        square = context.precision.squared_in_front(norm)
        if square is None:
            continue
        found = rewrite.rescale.rescaled_stream(context, norm, rewrite.rescale.EXPONENT)
        served.update(found.norms)
        yield diagnose(
            norm,
            f"{named(norm)} reads weighted sums of squared activations in float16, "
            "which may be infinite already",
            found.outcome,
            severity=Severity.INFO,
            square=square.name or square.op,
        )
