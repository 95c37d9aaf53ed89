"""An RMSNorm in place of a LayerNorm whose mean is small on the user's data.

For a token of mean m, variance v and s = v + ε, leaving the mean in changes the norm's result
(before scale and bias) by a relative error of sqrt((v/s)(1 - c)² + q/(1 + q)), with q = m²/s and
c = 1/sqrt(1 + q). Where epsilon is small that is 2·sin(½·arctan(|m|/σ)), or |m|/σ for small means.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.zero_mean_writers import can_be_edited
from normlint.deferred import dataclass
from normlint.rewrite.centre import Edits
from normlint.rewrite.centre_constants import added
from normlint.rewrite.centre_plan import Swap, decide
from normlint.rewrite.centre_region import region
from normlint.rule import Applicability, NotFixed, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.graph import Node
    from normlint.measure import NormStatistics
    from normlint.normalization import Normalization

EXACT = 2.0**-10
"""Mean over deviation up to which the result is the same in half precision."""
_RARE = 0.999
"""The part of the tokens for which the mean must be small."""
_TAIL = 3.0
"""What is left of a mean beside its best constant, at most, in its root mean square."""


@dataclass(frozen=True, eq=False)
class Approximation:
    """A swap that moves the numbers by little on the data."""

    rewrite: Rewrite | NotFixed
    ratio: float
    """Mean over deviation, as it will be."""
    evidence: dict[str, Any]


def relative_error(ratio: float) -> float:
    """Give the relative error of one token from its mean over its deviation."""
    return 2 * math.sin(0.5 * math.atan(ratio))


def approximate(
    norm: Normalization, seen: NormStatistics, context: Context
) -> Approximation | None:
    """Leave out the mean of a LayerNorm where the data shows that it is small, or a constant."""
    if not seen.rows:
        return None
    limit = context.settings.rms_norm_ratio
    rare = seen.ratio.quantile(_RARE)
    shift = 0.0
    writer = _writer(norm, context)
    left = _TAIL * seen.rest
    if rare > limit and writer is not None and left <= limit:
        shift, rare = seen.best_constant, left
    if rare > limit and seen.ratio.most > EXACT:
        return None
    evidence = {
        "rows": seen.rows,
        "mean_over_deviation": {"p99.9": seen.ratio.quantile(_RARE), "max": seen.ratio.most},
        "constant_mean": shift,
        "relative_error": relative_error(rare),
        "limit": context.settings.rms_norm_error,
    }
    decided = decide(norm, context)
    if isinstance(decided, NotFixed):
        return Approximation(decided, rare, evidence)
    place = writer if shift else None
    return Approximation(_rewrite(decided, context, place, shift), rare, evidence)


def _rewrite(
    swap: Swap, context: Context, writer: tuple[Node, int] | None, shift: float
) -> Rewrite:
    norm = swap.norm
    edits = Edits(context.constants, context.opset)
    if writer is not None:
        node, place = writer
        edits.change(node, place, added("mean", lambda: np.asarray(-shift), (), 0))
        edits.touched.setdefault(node)
    for fold in swap.folds:
        edits.change(fold.node, fold.place, fold.change)
        edits.touched.update(dict.fromkeys(fold.region))
    bias = None if swap.folds else norm.bias
    edits.replace(norm.y, swap.made.node(norm.x, bias), norm.nodes)
    return Rewrite(
        "replace by RMSNorm, whose mean square includes a small mean",
        Applicability.UNSAFE,
        edits.edits(),
        region(edits.touched, context.constants),
        opset=swap.opset,
        approximate=True,
    )


def _writer(norm: Normalization, context: Context) -> tuple[Node, int] | None:
    """Give the Add of a constant that computes x for this norm alone, and the constant's place."""
    node = norm.x.producer
    if node is None or node.op != "Add" or not node.is_standard or norm.x.is_output:
        return None
    if any(reader not in norm.nodes for reader in norm.x.consumers):
        return None
    places = [k for k, t in enumerate(node.inputs) if can_be_edited(t, context.constants)]
    return (node, places[0]) if len(places) == 1 else None
