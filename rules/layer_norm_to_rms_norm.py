"""NL203."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.rule import Applicability, Diagnostic, NotFixed, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.centring import Stream
    from normlint.context.zero_mean_pins import Pin
    from normlint.measure import Measured
    from normlint.normalization import Normalization
    from normlint.rewrite.centre_plan import Plan

_MOST_REASONS = 3
"""Reasons that a message names; all are in the evidence."""


class LayerNormToRMSNorm(Rule):
    """LayerNorms whose input can be made, or is, of mean zero could be RMSNorms.

    ## What it does

    Finds residual streams whose mean over the channels vanishes, or can be made to vanish by
    subtracting it once from the weights that write the stream: embeddings, the last linear operator
    of each branch, biases. Every LayerNorm that reads such a stream is an RMSNorm with the same
    scale and epsilon.

    ## Why is this bad?

    LayerNorm subtracts a mean at every layer that could have been subtracted once, in the weights.
    RMSNorm takes about 0.6 of the time, runs on accelerators that have no LayerNorm, and stays
    accurate where the mean is large, since nothing cancels. On a CPU the norms are a percent of a
    transformer's time: do not expect the whole model to become faster there.

    ## Example

    A Pre-LN transformer of 12 layers has one stream that 25 LayerNorms read. Its embedding tables,
    and the output projections of its attentions and feed-forward blocks, get columns of mean zero;
    25 LayerNormalizations become RMSNormalizations (opset 23), and their biases move into the
    linear operators that follow.

    Post-LN models get less: the stream holds the output of a LayerNorm, whose mean depends on the
    input unless its scale is uniform. Then only the norm of the embeddings converts.

    ## Fix safety

    Safe: the new weights are computed in float64 and rounded once, and the whole stream is verified
    against float64. Where others read the same weights (an embedding that is also the output
    layer), they are copied, and the finding says how many bytes that costs.

    By default a LayerNorm is only replaced where that pays: where its bias moves into every reader,
    or it was spelled out in more nodes. `rms-norm-policy = "always"` replaces the others as well.

    With `--data inputs.npz`, a LayerNorm whose mean does not vanish but is small on these inputs is
    reported as well. To leave such a mean out changes the function, so it takes `--unsafe-fixes`,
    and nothing is written where the model's outputs on the data move by more than `rms-norm-error`.

    ## When not to follow it

    Quantise afterwards, not before: integer weights would change. Where a model is still to be
    trained, note that the mean of the stream is free to drift again.

    ## References

    - [Pre-RMSNorm and Pre-CRMSNorm Transformers](https://arxiv.org/abs/2305.14858)
    - [SliceGPT](https://arxiv.org/abs/2401.15024)
    """

    code = "NL203"
    severity = Severity.INFO
    applicability = Applicability.SAFE

    bad = (
        """
        <ir_version: 10, opset_import: ["" : 23]>
        residual_stream (int64[B,T] tokens) => (float[B,T,3] y)
        <float[5,4] table = {1,2,3,4,5,6,7,9,9,1,2,3,4,3,2,1,0,1,5,2},
         float[4] scale = {1,2,-1,0.5}, float[4] bias = {1,0,2,1},
         float[4,8] up = {1,2,3,4,5,6,7,8,1,0,1,0,1,0,1,0,0,1,2,0,1,2,0,1,2,2,2,1,1,1,3,3},
         float[8] up_bias = {1,0,1,0,1,0,1,0},
         float[8,4] down = {1,2,3,4,2,3,4,5,1,0,0,1,0,0,2,1,3,3,1,1,0,1,1,0,2,0,1,1,1,1,1,2},
         float[4] down_bias = {1,2,3,5},
         float[4,3] head = {1,0,2,0,1,1,2,2,1,0,0,1}, float[3] head_bias = {1,2,3}> {
            t = Gather(table, tokens)
            normed = LayerNormalization(t, scale, bias)
            wide = MatMul(normed, up)
            shifted = Add(wide, up_bias)
            active = Relu(shifted)
            narrow = MatMul(active, down)
            branch = Add(narrow, down_bias)
            sum = Add(t, branch)
            last = LayerNormalization(sum, scale, bias)
            logits = MatMul(last, head)
            y = Add(logits, head_bias)
        }
        """,
        """
        <ir_version: 7, opset_import: ["" : 13]>
        spelled_out (float[B,T,3] x) => (float[B,T,4] y)
        <float[3,4] weight = {1,2,3,4,5,6,7,9,9,1,2,3}, float two = {2}, float epsilon = {1e-5}> {
            t = MatMul(x, weight)
            mean = ReduceMean<axes = [-1]>(t)
            centred = Sub(t, mean)
            square = Pow(centred, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            y = Div(centred, root)
        }
        """,
    )
    good = (
        """
        <ir_version: 10, opset_import: ["" : 23]>
        nothing_linear_writes_it (float[B,T,4] x) => (float[B,T,4] y)
        <float[4] scale = {1,2,-1,0.5}> {
            t = Relu(x)
            y = LayerNormalization(t, scale)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 23]>
        the_mean_is_read (float[B,T,3] x) => (float[B,T,4] y, float[B,T,4] z)
        <float[3,4] weight = {1,2,3,4,5,6,7,9,9,1,2,3}, float[4] scale = {1,2,-1,0.5}> {
            t = MatMul(x, weight)
            y = LayerNormalization(t, scale)
            z = Relu(t)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 23]>
        already (float[B,T,4] x) => (float[B,T,4] y)
        <float[4] scale = {1,2,-1,0.5}> {
            y = RMSNormalization(x, scale)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each stream of which a LayerNorm can be an RMSNorm, or that several read."""
        for stream in context.centred_streams:
            if stream.convertible or len(stream.norms) > 1:
                yield _diagnostic(stream, rewrite.centre_plan.plan(stream, context))
            if context.measured is not None:
                yield from _approximations(stream, context, context.measured)


def _approximations(stream: Stream, context: Context, measured: Measured) -> Iterable[Diagnostic]:
    """Report the LayerNorms whose mean does not vanish, but is small on the user's data."""
    for norm in stream.pins:
        seen = measured.of(norm)
        if seen is None:
            continue
        found = rewrite.centre_approximate.approximate(norm, seen, context)
        if found is None:
            continue
        error = rewrite.centre_approximate.relative_error(found.ratio)
        message = (
            f"the mean of this LayerNorm's input is small on the data: an RMSNorm would be off by "
            f"{error:.2g} on all but a thousandth of its rows"
        )
        yield diagnose(norm, message, found.rewrite, **found.evidence)


def _diagnostic(stream: Stream, made: Plan) -> Diagnostic:
    norms = stream.norms
    return Diagnostic(
        _message(stream, made),
        norms[0].anchor,
        tuple(norm.anchor for norm in norms),
        _evidence(stream, made),
        rewrite=made.rewrite,
        not_fixed=None if made.rewrite is not None else _why_not(stream, made),
        output=norms[0].y,
    )


def _message(stream: Stream, made: Plan) -> str:
    count, total = len(stream.convertible), len(stream.norms)
    message = f"{count} of {total} LayerNorm{'s' * (total > 1)} of this stream can be RMSNorm"
    if made.left:
        stay = "1 of them stays" if len(made.left) == 1 else f"{len(made.left)} of them stay"
        message += f"; {stay}: {_reasons(made.left.values())}"
    if stream.pins:
        message += f"; {len(stream.pins)} cannot: {_reasons(stream.pins.values())}"
    if made.extra_bytes:
        message += f"; copies {made.extra_bytes:,} bytes of weights that others read as well"
    return message


def _reasons(found: Iterable[NotFixed | Pin]) -> str:
    """Give the reasons, the most frequent ones first, with how often each holds."""
    counted = Counter(reason.detail for reason in found).most_common()
    if len(counted) == 1:
        return counted[0][0]
    shown = [f"{detail} ({count})" for detail, count in counted[:_MOST_REASONS]]
    return ", ".join(shown) + ", …" * (len(counted) > _MOST_REASONS)


def _most(reasons: Iterable[NotFixed | Pin]) -> NotFixed | Pin:
    """Give the most frequent reason."""
    found = list(reasons)
    often = Counter(reason.detail for reason in found).most_common(1)[0][0]
    return next(reason for reason in found if reason.detail == often)


def _why_not(stream: Stream, made: Plan) -> NotFixed:
    why = _most(made.left.values() or stream.pins.values())
    return NotFixed(why.reason, why.at, why.detail)


def _evidence(stream: Stream, made: Plan) -> dict[str, Any]:
    swapped = [swap.norm for swap in made.swaps]
    return {
        "norms": len(stream.norms),
        "convertible": len(stream.convertible),
        "converted": [norm.y.name for norm in swapped],
        "explicit": made.explicit,
        "extra_bytes": made.extra_bytes,
        "stay": [_stays(norm, why) for norm, why in made.left.items()],
        "pinned": [
            {**_stays(norm, pin), "chain": [tensor.name for tensor in pin.chain]}
            for norm, pin in stream.pins.items()
        ],
    }


def _stays(norm: Normalization, why: NotFixed | Pin) -> dict[str, str]:
    return {
        "norm": norm.y.name,
        "reason": why.reason.value,
        "at": why.at.name if why.at is not None else "",
        "detail": why.detail,
    }
