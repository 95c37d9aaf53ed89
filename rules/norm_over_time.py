"""NL212."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.diagnosing import diagnose
from normlint.normalization import Kind
from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_KINDS = frozenset((Kind.LAYER, Kind.RMS, Kind.GROUP, Kind.INSTANCE, Kind.OTHER))


class NormOverTime(Rule):
    """The statistics are taken over a time axis of open length.

    ## What it does

    Reports a normalisation whose statistics run along a symbolic axis of a sequence: [N, C, T] or
    [N, T, C], or an image of which one axis alone is open (a spectrogram).

    ## Why is this bad?

    The result at a time depends on the whole sequence, the future included: the model cannot
    stream. In a padded batch the padding goes into the statistics, so that an utterance gives other
    numbers beside a longer one than alone.

    ## Example

    The GroupNorm in the first convolution of wav2vec 2.0.

    ## What to do

    Feed utterances one at a time and unpadded, or train with a normalisation of each time step, or
    with cumulative statistics.

    ## When not to follow it

    Where whole recordings of any length are given one by one.

    ## References

    - [Padding changes the result](https://github.com/pytorch/audio/issues/4205)
    - [Global and cumulative layer normalisation](https://arxiv.org/abs/1809.07454)
    """

    code = "NL212"
    severity = Severity.INFO

    bad = (
        """
        sequence (float[N,3,T] x) => (float[N,3,T] y)
        <float[3] scale = {1,2,3}, float[3] bias = {1,2,3}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
    )
    good = (
        """
        image (float[N,3,H,W] x) => (float[N,3,H,W] y)
        <float[3] scale = {1,2,3}, float[3] bias = {1,2,3}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
        """
        every_time_step_alone (float[N,T,3] x) => (float[N,T,3] y)
        <float[3] scale = {1,2,3}> {
            y = LayerNormalization(x, scale)
        }
        """,
        """
        fixed_length (float[N,3,16] x) => (float[N,3,16] y)
        <float[3] scale = {1,2,3}, float[3] bias = {1,2,3}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each normalisation along an open axis of a sequence."""
        if not _has_open_axis(context):
            return
        for norm in context.norms:
            if norm.kind in _KINDS and _is_along_time(norm):
                message = (
                    f"the statistics of this {norm.kind} run along a time axis of open length: "
                    "it cannot stream, and padding goes into them"
                )
                yield diagnose(norm, message)


def _has_open_axis(context: Context) -> bool:
    """Whether an input of the model has an open axis besides the batch."""
    return any(
        not isinstance(extent, int)
        for tensor in context.graph.inputs
        for extent in (tensor.shape or ())[1:]
    )


def _is_along_time(norm: Normalization) -> bool:
    shape = norm.x.shape
    if shape is None or len(shape) < 3 or not norm.axes:
        return False
    last = range(1 - len(shape), 0)
    open_axes = [axis for axis in last if not isinstance(shape[axis], int)]
    return len(open_axes) == 1 and open_axes[0] in norm.axes
