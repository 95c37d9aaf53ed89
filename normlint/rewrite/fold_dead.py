"""Channels that a BatchNorm and the linear operator in front of it make constant.

What counts is the folded row of the weight: a factor of 1/√ε makes nothing of a row that is
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.rewrite.fold_rows import channel_axis, direct_recipe, row_magnitudes
from normlint.rule import Applicability, Computed, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context.batch_norms import BatchNormOp
    from normlint.rewrite.fold import Fold
    from normlint.rule import NewNode

    Array = np.ndarray[Any, Any]

_SUSPICIOUS = 1e-3
"""A variance below this part of ε may be that of a channel that never varied."""
_NOTHING = 1e-6
"""A row below this part of the usual one adds nothing that single precision would keep."""


@dataclass(frozen=True, eq=False)
class DeadChannels:
    """Channels whose value does not depend on the input."""

    channels: tuple[int, ...]
    rewrite: Rewrite | None = None
    """Makes their rows exactly zero; None where they are already."""


def dead_channels(op: BatchNormOp, fold: Fold | None) -> DeadChannels | None:
    """Find the constant channels of a BatchNorm on running statistics, if there are any.

    Reads the weight in front only where a variance or a scale is suspicious.
    """
    scale, variance = op.parameters.get("scale"), op.parameters.get("variance")
    if scale is None or variance is None or scale.shape != variance.shape:
        return None
    off = scale == 0
    suspects = off | (variance < _SUSPICIOUS * op.epsilon)
    if not suspects.any() or suspects.all():
        return None
    recipe = direct_recipe(fold)
    rows = None if recipe is None else row_magnitudes(recipe)
    if fold is None or recipe is None or rows is None or rows.shape != scale.shape:
        return _found(off)
    usual = float(np.median(rows[~suspects]))
    dead = suspects & (rows <= _NOTHING * usual)
    rest = dead & (rows > 0)
    rewrite = _zeroed(fold, recipe, dead) if rest.any() else None
    return _found(dead | off, rewrite)


def _found(dead: Array, rewrite: Rewrite | None = None) -> DeadChannels | None:
    channels = tuple(np.flatnonzero(dead).tolist())
    return DeadChannels(channels, rewrite) if channels else None


def _zeroed(fold: Fold, recipe: NewNode, dead: Array) -> Rewrite | None:
    """Describe the same fold with the rows of dead channels zero: each is its constant then."""
    position, axis = channel_axis(recipe)
    weight = recipe.inputs[position]
    if not isinstance(weight, Computed) or fold.rewrite is None:
        return None
    old: Computed = weight

    def compute() -> Array:
        values = np.array(old.compute())
        np.moveaxis(values, axis, 0)[dead] = 0
        return values

    zero = Computed(old.shape, old.dtype, compute, old.name)
    inputs = tuple(zero if k == position else given for k, given in enumerate(recipe.inputs))
    new = replace(recipe, inputs=inputs)
    edit = fold.rewrite.edits[-1]
    if not isinstance(edit, Replace):
        return None
    outer = new if edit.by is recipe else replace(edit.by, inputs=(new, *edit.by.inputs[1:]))
    return Rewrite(
        f"{fold.rewrite.title}, with zeros for {int(dead.sum())} constant channels",
        Applicability.UNSAFE,
        (Replace(edit.tensors, outer),),
        fold.rewrite.region,
    )
