"""NL502."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint import rewrite
from normlint.context.precision import least_normal
from normlint.diagnosing import diagnose, named, over, type_name
from normlint.normalization import Kind
from normlint.rule import Applicability, NotFixed, Reason, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.precision import Vanishing
    from normlint.rule import Diagnostic, Rewrite

_RAISED: dict[int, float] = {TensorProto.FLOAT16: 1e-7, TensorProto.BFLOAT16: 1e-12}
"""Epsilons that an operator or an island in float can hold, and that float16 models meant."""
_USUAL = 1e-12
_WHY = {
    "missing": "has no epsilon under its root",
    "negative": "has a negative epsilon",
    "zero": "has an epsilon of 0",
}


class EpsilonUnderflow(Rule):
    """The epsilon of a norm is 0 in its type, or missing.

    ## What it does

    Reports a norm whose epsilon is 0, negative or missing, or whose length is bounded by 0 in half
    precision; and, as a warning, one whose epsilon is subnormal in the type in which it is added,
    so that hardware may take it for 0.

    ## Why is this bad?

    Epsilon keeps the root away from 0. Without it a row of equal values, such as padding, is 0/0 =
    NaN, and attention spreads that over the whole sequence. Two ways lead there: in float16 an
    epsilon below 3e-8 is 0, and the newer PyTorch exporter deletes an added constant of 1e-8 or
    less when it optimises.

    ## Example

    `Add(variance, 1e-8)` in float16 adds 0. LayerNormalization keeps its epsilon in float.

    ## Fix safety

    Safe for a subnormal epsilon: the same function, computed in float. Unsafe for one that is 0 or
    missing, for what the model computes changes: it becomes 1e-7 in a model of float16, 1e-12 in
    others, which is less than any epsilon in use.

    ## When not to follow it

    Where no row can be constant. Export again rather, with the epsilon that the model had.

    ## References

    - [NaN in float16 from an epsilon of 1e-8](https://github.com/pytorch/pytorch/issues/86580)
    """

    code = "NL502"
    severity = Severity.ERROR
    applicability = Applicability.UNSAFE

    bad = (
        """
        zero_in_float16 (float16[2,3,16] x) => (float16[2,3,16] y)
        <float16 two = {16384}, float16 epsilon = {0}> {
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
        missing (float[2,3,16] x) => (float[2,3,16] y)
        <float two = {2}> {
            mean = ReduceMean<axes = [-1]>(x)
            centred = Sub(x, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            root = Sqrt(variance)
            y = Div(centred, root)
        }
        """,
        """
        of_an_operator (float[2,3,4] x) => (float[2,3,4] y)
        <float[4] scale = {1,2,3,4}> {
            y = LayerNormalization<epsilon = 0.0>(x, scale)
        }
        """,
        """
        <ir_version: 8, opset_import: ["" : 14]>
        subnormal_in_float16 (float16[2,3,16] x) => (float16[2,3,16] y)
        <float16 two = {16384}, float16 epsilon = {168}> {
            square = Pow(x, two)
            moment = ReduceMean<axes = [-1]>(square)
            shifted = Add(moment, epsilon)
            root = Sqrt(shifted)
            y = Div(x, root)
        }
        """,
        """
        bound_of_a_length (float16[2,3,4] x) => (float16[2,3,4] y)
        <float least = {1e-12}> {
            bound = Cast<to = 10>(least)
            length = ReduceL2<axes = [-1]>(x)
            root = Clip(length, bound)
            y = Div(x, root)
        }
        """,
    )
    good = (
        """
        small_in_float (float[2,3,4] x) => (float[2,3,4] y)
        <float[4] scale = {1,2,3,4}> {
            y = LayerNormalization<epsilon = 1e-12>(x, scale)
        }
        """,
        """
        operator_of_a_float16_model (float16[2,3,4] x) => (float16[2,3,4] y)
        <float[4] g = {1,2,3,4}> {
            scale = Cast<to = 10>(g)
            y = LayerNormalization<epsilon = 1e-5>(x, scale)
        }
        """,
        """
        clipped_instead (float[2,3,4] x) => (float[2,3,4] y)
        <float least = {1e-12}> {
            length = ReduceL2<axes = [-1]>(x)
            root = Clip(length, least)
            y = Div(x, root)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm whose epsilon does not do its work."""
        for found in context.precision.vanishing():
            yield _diagnosis(found, context)


def _diagnosis(found: Vanishing, context: Context) -> Diagnostic:
    norm, kind = found.norm, type_name(found.dtype)
    subject = f"{named(norm)} over {over(norm)}"
    outcome: Rewrite | NotFixed
    if norm.kind is Kind.L2:
        message = f"the bound of {subject} is 0 in {kind}: a row of zeros gives NaN"
        detail = "which bound was meant is not in the file"
        outcome = NotFixed(Reason.TYPE_MISMATCH, norm.anchor, detail)
    elif found.word == "subnormal":
        message = f"the epsilon {found.epsilon:.3g} of {subject} is subnormal in {kind}"
        outcome = rewrite.islands.float_statistics(context, norm)
    else:
        row = "a row of equal values" if norm.centred else "a row of zeros"
        message = f"{subject} {_WHY[found.word]}: {row} gives NaN"
        outcome = rewrite.islands.raised_epsilon(context, norm, _RAISED.get(norm.dtype, _USUAL))
    return diagnose(
        norm,
        message,
        outcome,
        severity=Severity.WARNING if found.word == "subnormal" else None,
        why=found.word,
        added_in=kind,
        least_normal=least_normal(found.dtype),
    )
