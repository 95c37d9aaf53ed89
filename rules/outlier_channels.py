"""NL404."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint import rewrite
from normlint.context.quantized import has_statistics
from normlint.diagnosing import diagnose, named
from normlint.measure.statistics import outliers_of
from normlint.rule import Applicability, NotFixed, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.measure import Measured
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic


class OutlierChannels(Rule):
    """A few channels of a norm's result are much larger than the others.

    ## What it does

    With `--data`, reports a norm in float whose result has channels more than six times as large as
    the median of all. Without data, reports a norm with such a scale whose result goes to a
    QuantizeLinear with a single scale.

    ## Why is this bad?

    One range serves all channels of an activation in INT8, so the outliers leave few steps for the
    others. In the weights the same factors do little harm, for these have a scale per channel.

    ## Example

    `y = norm(x) · scale`, channel 5 of which reaches 60 and all others 2: `scale[5]` is divided by
    the factor that row 5 of every weight behind is multiplied by.

    ## Fix safety

    Safe: in float it is the same function, up to rounding. It is made where every reader of the
    norm is a linear operator with constant weights. The factor is max|X|^a / max|W|^(1-a) of each
    channel, where a is `smoothing-alpha`, 0.5 by default. Do it before quantisation, and after
    LayerNorms became RMSNorms (NL203): `--before-quantization` does both in order.

    ## When not to follow it

    Where the activations will have a scale per channel or per token.

    ## References

    - [Xiao et al. 2022: SmoothQuant](https://arxiv.org/abs/2211.10438)
    """

    code = "NL404"
    applicability = Applicability.SAFE

    bad = (
        """
        scale_in_front_of_one_range (float[2,8] x) => (float[2,2] y)
        <float s = {0.1}, int8 z = {0}, float[8] scale = {1,0.5,40,1,-1,1,0.25,1},
         float[8,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            n = LayerNormalization(x, scale)
            q = QuantizeLinear(n, s, z)
            d = DequantizeLinear(q, s, z)
            y = MatMul(d, w)
        }
        """,
        (
            """
            outliers_in_the_data (float[2,8] x) => (float[2,2] y)
            <float[8] scale = {1,0.5,40,1,-1,1,0.25,1},
             float[8,2] w = {1,2,3,4,0.1,0.2,7,8,1,2,3,4,5,6,7,8}> {
                n = LayerNormalization(x, scale)
                y = MatMul(n, w)
            }
            """,
            {"data": {"x": [[1, 2, -1, 0.5, 2, 1, -2, 0], [0, 1, 2, -1, 1, -2, 0.5, 1]]}},
        ),
    )
    good = (
        """
        even_scale (float[2,8] x) => (float[2,2] y)
        <float s = {0.1}, int8 z = {0}, float[8] scale = {1,0.5,2,1,-1,1,0.25,1},
         float[8,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            n = LayerNormalization(x, scale)
            q = QuantizeLinear(n, s, z)
            d = DequantizeLinear(q, s, z)
            y = MatMul(d, w)
        }
        """,
        """
        in_float_without_data (float[2,8] x) => (float[2,2] y)
        <float[8] scale = {1,0.5,40,1,-1,1,0.25,1},
         float[8,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            n = LayerNormalization(x, scale)
            y = MatMul(n, w)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm with outlier channels that are, or are to be, quantised together."""
        measured = context.measured
        for norm in context.norms:
            if not has_statistics(norm):
                continue
            quantizes = [n for n in norm.y.consumers if n.op == "QuantizeLinear"]
            if quantizes:
                yield from _quantised(norm, context)
            elif measured is not None:
                yield from _in_float(norm, context, measured)


def _quantised(norm: Normalization, context: Context) -> Iterable[Diagnostic]:
    rounding = next(iter(context.quantized.results(norm.y)), None)
    affine = rewrite.smooth.affine_of(norm)
    if rounding is None or affine is None or rounding.step is None:
        return
    found = outliers_of(np.abs(affine[0]))
    if rounding.step.axis is not None or not found:
        return
    detail = f"{rounding.by.op} stands between the norm and the weights"
    yield diagnose(
        norm,
        f"the scale of {named(norm)} has {_counted(found)}, and one range serves all",
        NotFixed(Reason.QUANTIZED_BETWEEN, rounding.by, detail),
        channels=found,
        range=float(f"{rounding.step.range:.6g}"),
    )


def _in_float(norm: Normalization, context: Context, measured: Measured) -> Iterable[Diagnostic]:
    seen, affine = measured.of(norm), rewrite.smooth.affine_of(norm)
    magnitudes = None if seen is None or affine is None else seen.result(*affine)
    if magnitudes is None:
        return
    found = outliers_of(magnitudes)
    if not found:
        return
    outcome = rewrite.smooth.smooth(context, norm, magnitudes, context.settings.smoothing_alpha)
    if outcome is None:
        return
    times = float(magnitudes.max() / np.median(magnitudes))
    yield diagnose(
        norm,
        f"the result of {named(norm)} has {_counted(found)}, up to {times:.3g} times the median",
        outcome,
        channels=found,
        times_the_median=float(f"{times:.4g}"),
    )


def _counted(channels: list[int]) -> str:
    if len(channels) == 1:
        return f"the outlier channel {channels[0]}"
    shown = ", ".join(map(str, channels[:8]))
    return f"{len(channels)} outlier channels ({shown}{', …' if len(channels) > 8 else ''})"
