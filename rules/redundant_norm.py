"""NL210."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from normlint import rewrite
from normlint.diagnosing import diagnose, over
from normlint.model import ValuesUnavailable
from normlint.normalization import Kind, Parameter
from normlint.rule import Applicability, NotFixed, Reason, Rewrite, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_KINDS = frozenset((Kind.LAYER, Kind.RMS))


class RedundantNorm(Rule):
    """A normalisation of what is normalised already.

    ## What it does

    Reports a LayerNorm or RMSNorm whose input is the output of another one over the same axes that
    has no scale and bias, or the same number for all.

    ## Why is this bad?

    The second finds a variance of one. Both together compute what one computes.

    ## Example

    With e the epsilon of the first, f that of the second and v the variance, the second has
    `v / (v + e) + f = (v * (1 + f) + e * f) / (v + e)` under its root. So both are one
    normalisation with the epsilon `e * f / (1 + f)` and a scale divided by `sqrt(1 + f)`.

    ## Fix safety

    Safe: this is exact, up to rounding.

    ## When not to follow it

    Where the first has a scale and a bias that vary, the second is not redundant, and not reported.

    ## References

    - [Layer Normalization](https://arxiv.org/abs/1607.06450), whose output is invariant under
      scaling and shifting of its input
    """

    code = "NL210"
    severity = Severity.INFO
    applicability = Applicability.SAFE

    bad = (
        """
        twice (float[2,8] x) => (float[2,8] y)
        <float[8] ones = {1,1,1,1,1,1,1,1}, float[8] scale = {1,2,3,4,5,6,7,8}> {
            once = LayerNormalization<epsilon = 0.01>(x, ones)
            y = LayerNormalization<epsilon = 0.1>(once, scale)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 23]>
        root_mean_square_behind_it (float[2,8] x) => (float[2,8] y)
        <float[8] twos = {2,2,2,2,2,2,2,2}, float[8] scale = {1,2,3,4,5,6,7,8}> {
            once = LayerNormalization<epsilon = 0.01>(x, twos)
            y = RMSNormalization<epsilon = 0.1>(once, scale)
        }
        """,
    )
    good = (
        """
        scaled_between (float[2,8] x) => (float[2,8] y)
        <float[8] gain = {1,2,1,2,1,2,1,2}, float[8] scale = {1,2,3,4,5,6,7,8}> {
            once = LayerNormalization(x, gain)
            y = LayerNormalization(once, scale)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 23]>
        mean_still_to_be_subtracted (float[2,8] x) => (float[2,8] y)
        <float[8] ones = {1,1,1,1,1,1,1,1}, float[8] scale = {1,2,3,4,5,6,7,8}> {
            once = RMSNormalization(x, ones)
            y = LayerNormalization(once, scale)
        }
        """,
        """
        read_by_others_too (float[2,8] x) => (float[2,8] y, float[2,8] once)
        <float[8] ones = {1,1,1,1,1,1,1,1}, float[8] scale = {1,2,3,4,5,6,7,8}> {
            once = LayerNormalization(x, ones)
            y = LayerNormalization(once, scale)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each normalisation of a plain normalisation."""
        made = {norm.y: norm for norm in context.norms if norm.kind in _KINDS}
        for norm in context.norms:
            first = made.get(norm.x)
            if first is not None and norm.kind in _KINDS and _is_redundant(first, norm):
                factor = _uniform(first)
                if factor is None:
                    continue
                message = (
                    f"the input of this {norm.kind} over {over(norm)} comes from a {first.kind} "
                    "without scale: both compute what one computes"
                )
                yield diagnose(norm, message, _merged(context, first, norm, factor))


def _is_redundant(first: Normalization, norm: Normalization) -> bool:
    """Whether the second one reads the first one alone, over the same axes, with the same mean."""
    if first.axes is None or first.axes != norm.axes or first.dtype != norm.dtype:
        return False
    if first.y.is_output or not set(first.y.consumers) <= set(norm.nodes):
        return False
    if first.clipped or norm.clipped or first.permutation is not None:
        return False
    if not first.centred and (norm.centred or first.bias is not None):
        return False
    return "inside" not in {first.quantized, norm.quantized}


def _uniform(first: Normalization) -> float | None:
    """Give the one number that the first one's scale is; None where scale or bias vary."""
    if first.bias is not None and not _is_plain_bias(first.bias):
        return None
    if first.scale is None:
        return 1.0
    if not first.scale.is_constant or first.scale.compute is None:
        return None
    try:
        values = first.scale.compute().reshape(-1)
    except ValuesUnavailable:
        return None
    factor = float(values[0]) if values.size else 0.0
    return factor if factor != 0.0 and first.scale.is_always(factor) else None


def _is_plain_bias(bias: Parameter) -> bool:
    return bias.is_always(0.0)


def _merged(
    context: Context, first: Normalization, norm: Normalization, factor: float
) -> Rewrite | NotFixed:
    if norm.scale is not None and norm.scale.compute is None:
        return NotFixed(
            Reason.WEIGHTS_NOT_CONSTANT, norm.scale.tensors[0], "its scale is no constant"
        )
    second = norm.epsilon / factor**2
    both = replace(
        norm,
        kind=Kind.LAYER if first.centred else Kind.RMS,
        nodes=(*first.nodes, *norm.nodes),
        x=first.x,
        epsilon=first.epsilon * second / (1 + second),
        scale=_scaled(norm, math.copysign(1 / math.sqrt(1 + second), factor)),
        one_pass=False,
    )
    make = rewrite.norm_ops.layer_norm if first.centred else rewrite.norm_ops.rms_norm
    outcome = make(context, both)
    if isinstance(outcome, Rewrite):
        return replace(outcome, title=f"normalise once: {outcome.title}")
    return outcome


def _scaled(norm: Normalization, factor: float) -> Parameter:
    """Give the second one's scale times a factor."""
    scale = norm.scale
    rank = norm.x.rank or 0
    if scale is None or scale.compute is None:
        return Parameter((1,) * rank, (), lambda: np.full((1,) * rank, factor))
    compute = scale.compute
    return Parameter(scale.shape, scale.tensors, lambda: compute() * factor)
