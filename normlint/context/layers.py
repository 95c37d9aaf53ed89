"""How the residual additions of a stream make up layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context.residual import Residual


def layers(adds: Sequence[Residual]) -> tuple[int, ...]:
    """Give the layer of each addition, from 0.

    A layer is an attention with what follows it up to the next one; attention to another sequence
    (of a decoder to its encoder) belongs to the layer of the attention in front. What stands in
    front of the first attention belongs to its layer. Without attention, every addition is one.
    """
    if not any(add.branch.attention is not None for add in adds):
        return _each(adds)
    starts = _starts(adds)
    period, prefix = starts[1] - starts[0] if len(starts) > 1 else 0, starts[0]
    regular = all(start == prefix + k * period for k, start in enumerate(starts))
    if regular and prefix < period and len(adds) == period * len(starts):
        starts = [start - prefix for start in starts]  # as in a Conformer: half a step in front
    inner = set(starts[1:])
    layer = 0
    places = []
    for index in range(len(adds)):
        layer += index in inner
        places.append(layer)
    return tuple(places)


def _starts(adds: Sequence[Residual]) -> list[int]:
    """Give the first attention of each layer, by its index."""
    starts: list[int] = []
    seen: set[bool] = set()
    closed = False
    for index, add in enumerate(adds):
        crosses = add.branch.crosses
        if add.branch.attention is None:
            closed = bool(starts)
        elif not starts or ((closed or crosses in seen) and add.parallel is None):
            starts.append(index)
            seen = {crosses}
            closed = False
        else:
            seen.add(crosses)
    return starts


def _each(adds: Sequence[Residual]) -> tuple[int, ...]:
    places: list[int] = []
    for add in adds:
        if not places:
            places.append(0)
        else:
            places.append(places[-1] + (add.parallel is None))
    return tuple(places)
