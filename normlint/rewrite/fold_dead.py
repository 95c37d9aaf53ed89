"""Channels that a BatchNorm and the linear operator in front of it make constant.

What counts is the folded row of the weight: a factor of 1/√ε makes nothing of a row that is
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.model import ValuesUnavailable
from normlint.rewrite.fold_plan import Direction
from normlint.rule import Applicability, Computed, NewNode, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context.batch_norms import BatchNormOp
    from normlint.rewrite.fold_plan import Fold

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
    recipe = _direct(fold)
    rows = None if recipe is None else _magnitudes(recipe)
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


def _direct(fold: Fold | None) -> NewNode | None:
    """Give the new linear node where it stands alone in place of the two, with its Add perhaps."""
    if fold is None or fold.rewrite is None or fold.direction is not Direction.BACKWARD:
        return None
    edit = fold.rewrite.edits[-1]
    if len(fold.rewrite.edits) != 1 or not isinstance(edit, Replace):
        return None
    recipe = edit.by
    if recipe.op == "Add" and isinstance(recipe.inputs[0], NewNode):
        recipe = recipe.inputs[0]
    groups = recipe.attrs.get("group", 1)
    known = {"Conv", "Gemm", "MatMul"} | ({"ConvTranspose"} if groups == 1 else set())
    return recipe if recipe.op in known else None


def _channel_axis(recipe: NewNode) -> tuple[int, int]:
    """Give the input that is the new weight, and its axis that is the channels."""
    position = 1 if isinstance(recipe.inputs[1], Computed) else 0
    if recipe.op == "Conv":
        return 1, 0
    if recipe.op == "ConvTranspose":
        return 1, 1
    if position == 0:
        return 0, 1 if recipe.attrs.get("transA") else -2
    return 1, 0 if recipe.attrs.get("transB") else -1


def _magnitudes(recipe: NewNode) -> Array | None:
    """Give the largest magnitude of each row of the new weight; None where it cannot be read."""
    position, axis = _channel_axis(recipe)
    weight = recipe.inputs[position]
    if not isinstance(weight, Computed):
        return None
    try:
        values = np.abs(weight.compute())
    except (ValuesUnavailable, ValueError):
        return None
    along = axis % values.ndim
    rest = tuple(k for k in range(values.ndim) if k != along)
    return np.asarray(values.max(axis=rest, initial=0))


def _zeroed(fold: Fold, recipe: NewNode, dead: Array) -> Rewrite | None:
    """Describe the same fold with the rows of dead channels zero: each is its constant then."""
    position, axis = _channel_axis(recipe)
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
