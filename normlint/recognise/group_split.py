"""How Reshapes split channels into groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.recognise.extents import extents_of, source_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context.constants import Constants
    from normlint.normalization import Normalization
    from normlint.recognise.channels import Reshaped
    from normlint.recognise.extents import Extent


@dataclass(frozen=True)
class GroupSplit:
    """Groups of channels that are normalised each by itself."""

    groups: int
    channels: int | None
    last: bool = False
    of_rows: bool = False
    """Whether batch and groups are one axis: without an affine it may be a LayerNorm."""


def group_split(norm: Normalization, around: Reshaped, constants: Constants) -> GroupSplit | None:
    """Find how Reshapes split the channels of their input into groups that are normalised."""
    made = around.made(constants)
    given = extents_of(around.x, constants)
    if made is None or len(made) < 2 or (given is not None and len(given) < 2):
        return None
    rank = len(made)
    if not norm.is_op and norm.axes == tuple(range(1 - rank, 0)):
        return _of_rows(norm, made, given)
    axes = tuple(range(2 - rank, 0)) if norm.is_op else norm.axes
    first = given[0] if given is not None else (source_of(around.x), 0)
    if made[0] is None or made[0] != first:
        return _of_one_row(made, given) if norm.is_op else None
    if axes == tuple(range(2 - rank, 0)):
        return _leading(norm, made, given)
    return None if given is None or norm.is_op else _kept(norm, made, given)


def _leading(
    norm: Normalization, made: Sequence[Extent], given: Sequence[Extent] | None
) -> GroupSplit | None:
    """Read [N, C, ...] made to [N, G, ...] and normalised over all that follows."""
    groups = made[1]
    channels = given[1] if given is not None and isinstance(given[1], int) else None
    if not isinstance(groups, int) or groups < 1 or (channels is not None and channels % groups):
        return None
    if norm.is_op:
        return GroupSplit(groups, channels)
    kept = len(made) > 3 and isinstance(made[2], int) and made[2] * groups == channels
    if list(made) == list(given or ()) or not _varies_along(norm, {1, 2} if kept else {1}):
        return None
    return GroupSplit(groups, channels)


def _of_rows(
    norm: Normalization, made: Sequence[Extent], given: Sequence[Extent] | None
) -> GroupSplit | None:
    """Read [N, C, ...] made to [N * G, ...], where N is known, and normalised over all but rows."""
    if given is None or len(given) < 3 or norm.scale is not None or norm.bias is not None:
        return None
    split = _rows_to_groups(given[0], given[1], made[0])
    return None if split is None else replace(split, of_rows=True)


def _of_one_row(made: Sequence[Extent], given: Sequence[Extent] | None) -> GroupSplit | None:
    """Read [N, C, ...] made to [1, N * G, ...], where N is known."""
    if given is None or made[0] != 1:
        return None
    return _rows_to_groups(given[0], given[1], made[1])


def _rows_to_groups(batch: Extent, channels: Extent, rows: Extent) -> GroupSplit | None:
    if not isinstance(batch, int) or not isinstance(channels, int) or not isinstance(rows, int):
        return None
    if batch < 1 or rows < batch or rows % batch or channels % (rows // batch):
        return None
    return GroupSplit(rows // batch, channels)


def _kept(
    norm: Normalization, made: Sequence[Extent], given: Sequence[Extent]
) -> GroupSplit | None:
    """Read [N, ..., C] made to [N, ..., G, C/G], or the same with C as axis 1."""
    rank = len(made)
    if rank != len(given) + 1:
        return None
    for axis, last in ((1, False), (rank - 2, True)):
        groups, size, channels = made[axis], made[axis + 1], given[axis]
        if norm.axes != tuple(a - rank for a in range(1, rank) if a != axis):
            continue
        if not isinstance(groups, int) or not isinstance(size, int) or groups * size != channels:
            continue
        if _varies_along(norm, {axis, axis + 1}):
            return GroupSplit(groups, groups * size, last)
    return None


def _varies_along(norm: Normalization, axes: set[int]) -> bool:
    """Whether scale and bias vary along these axes only."""
    return all(
        parameter.shape is not None
        and {axis for axis, extent in enumerate(parameter.shape) if extent != 1} <= axes
        for parameter in (norm.scale, norm.bias)
        if parameter is not None
    )
