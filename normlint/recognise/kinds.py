"""Which kind of normalisation it is: by the axes of its statistics and those of its scale."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

from normlint.algebra import Count
from normlint.normalization import Kind

if TYPE_CHECKING:
    from normlint.algebra import Algebra, Axes
    from normlint.recognise.extents import Extent
    from normlint.recognise.likeness import Like
    from normlint.recognise.reading import Split

_CLOSE = 1e-5


def kind_of(like: Like, axes: Axes, shape: tuple[Extent, ...], algebra: Algebra) -> Kind | None:
    """Give the kind of a normalisation over some axes of x.

    None where scale and bias run along axes on which no normalisation of that kind has them: the
    normalisation ended before they came in.
    """
    if not like.centred:
        return _uncentred(like, axes, shape, algebra)
    if like.clipped:
        return Kind.OTHER if _fits(like, axes, len(shape)) else None
    return _centred(like, axes, len(shape))


def is_of_groups(like: Like, split: Split, rank: int) -> bool:
    """Whether it is a GroupNorm of x, one axis of which is read as groups and their channels.

    `rank` counts both of them.
    """
    group = {split.axis, split.axis + 1}
    return (
        like.centred
        and not like.clipped
        and like.axes == frozenset(range(1, rank)) - {split.axis}
        and like.varying <= group
    )


def _centred(like: Like, axes: Axes, rank: int) -> Kind | None:
    varying = like.varying
    rest = frozenset(range(rank)) - axes
    if rank >= 2 and 0 in axes and len(rest) == 1 and varying <= rest:
        return Kind.BATCH
    if _is_instance(varying, axes, rank):
        return Kind.INSTANCE
    if rank >= 3 and axes == frozenset(range(1, rank)) and varying == {1}:
        return Kind.GROUP
    if varying <= axes and (_is_trailing(axes, rank) or len(axes) == 1):
        return Kind.LAYER
    if _is_of_heads(varying, axes, rank):
        return Kind.LAYER
    grouped = rank >= 4 and _is_grouped(varying, rest)
    return Kind.OTHER if not varying or grouped else None


def _is_instance(varying: Axes, axes: Axes, rank: int) -> bool:
    """Whether the statistics run over all spatial axes, and scale and bias along the channels."""
    first = axes == frozenset(range(2, rank)) and (
        (rank >= 3 and varying == {1}) or (rank >= 4 and not varying)
    )
    last = axes == frozenset(range(1, rank - 1)) and rank >= 4 and varying == {rank - 1}
    return first or last


def _is_of_heads(varying: Axes, axes: Axes, rank: int) -> bool:
    """Whether each head of an attention has a scale of its own: [N, T, heads, size]."""
    return rank >= 4 and axes == {rank - 1} and varying == {rank - 2, rank - 1}


def _is_grouped(varying: Axes, rest: Axes) -> bool:
    """Whether scale and bias run along groups and the channels in them: [N, ..., G, C/G, ...]."""
    group = max(rest, default=0)
    return len(rest) == 2 and 0 in rest and varying <= {group, group + 1}


def _uncentred(like: Like, axes: Axes, shape: tuple[Extent, ...], algebra: Algebra) -> Kind | None:
    rank = len(shape)
    if _is_of_heads(like.varying, axes, rank):
        return Kind.RMS
    if not _fits(like, axes, rank):
        return None
    if like.clipped or _is_unit(like, axes, shape, algebra):
        return Kind.L2
    if _is_spatial(axes, rank) and not (like.varying and like.varying <= axes):
        return Kind.OTHER
    if like.varying <= axes and (_is_trailing(axes, rank) or len(axes) == 1):
        return Kind.RMS
    return Kind.OTHER


def _fits(like: Like, axes: Axes, rank: int) -> bool:
    """Whether scale and bias run along the normalised axes, or along the channels of an image."""
    if like.varying <= axes:
        return True
    return _is_spatial(axes, rank) and like.varying in ({1}, {rank - 1})


def _is_spatial(axes: Axes, rank: int) -> bool:
    """Whether the axes are all those of an image but the batch and the channels."""
    return rank >= 4 and axes in {frozenset(range(2, rank)), frozenset(range(1, rank - 1))}


def _is_unit(like: Like, axes: Axes, shape: tuple[Extent, ...], algebra: Algebra) -> bool:
    """Whether the result has length 1: the sum of squares is divided by, not their mean."""
    if like.varying or like.bias or len(like.scale) != 1:
        return False
    ((monomial, factor),) = like.scale.items()
    counted = set()
    for number, exponent in monomial:
        generator = algebra.generators[number]
        if not isinstance(generator, Count) or exponent != -0.5:
            return False
        counted.add(generator.axis)
    extents = [shape[axis] for axis in axes if axis not in counted]
    known = [extent for extent in extents if isinstance(extent, int)]
    if len(known) != len(extents):
        return False
    return abs(factor * sqrt(prod(known)) - 1) <= _CLOSE


def _is_trailing(axes: Axes, rank: int) -> bool:
    return axes == frozenset(range(rank - len(axes), rank))
