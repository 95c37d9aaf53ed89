"""How the residual additions of a stream make up layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context.residual import Residual

_LONGEST_PERIOD = 4
_TELLING = ops.MIXERS | {"Transpose"}


def layers(adds: Sequence[Residual]) -> tuple[int, ...]:
    """Give the layer of each addition, from 0.

    A layer is an attention with what follows it up to the next one; attention to another sequence
    (of a decoder to its encoder) belongs to the layer of the attention in front. What stands in
    front of the first attention belongs to its layer. Without attention, every addition is one,
    except where unlike branches take turns (token mixing, channel mixing): a turn is a layer.
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
    """Give the first attention of each layer, by its index.

    Where a layer has more than attention, attentions side by side in it (over time, then over
    space) are one layer's.
    """
    pure = all(add.branch.attention is not None and add.branch.sides == 1 for add in adds)
    starts: list[int] = []
    seen: set[bool] = set()
    closed = False
    for index, add in enumerate(adds):
        branch = add.branch
        if branch.attention is None:
            closed = bool(starts)
            continue
        again = closed or (pure and branch.crosses in seen)
        if not starts or (again and add.parallel is None):
            starts.append(index)
            seen, closed = set(), False
        seen.add(branch.crosses)
        closed |= branch.sides > 1
    return starts


def _each(adds: Sequence[Residual]) -> tuple[int, ...]:
    period = _period([_signature(add) for add in adds])
    return tuple(index // period for index in range(len(adds)))


def _signature(add: Residual) -> tuple[str, ...]:
    """Describe a branch by what mixes its tokens or channels."""
    return tuple(
        step.op
        for step in add.branch.steps
        if step.role in {Role.LEARNED, Role.PRODUCT} or step.op in _TELLING
    )


def _period(signatures: Sequence[tuple[str, ...]]) -> int:
    """Give the number of branches that repeat: token mixing and channel mixing by turns."""
    for period in range(2, _LONGEST_PERIOD + 1):
        if len(signatures) % period or len(signatures) < 2 * period:
            continue
        unit = signatures[:period]
        repeats = all(s == unit[k % period] for k, s in enumerate(signatures))
        if repeats and len(set(unit)) == period:
            return period
    return 1
