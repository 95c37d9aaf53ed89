"""The rows of a folded weight: what each channel's weights come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.model import ValuesUnavailable
from normlint.rule import Computed, NewNode, Replace

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.rewrite.fold import Fold

    Array = np.ndarray[Any, Any]


def direct_recipe(fold: Fold | None) -> NewNode | None:
    """Give the new linear node where it stands alone in place of the two, with its Add perhaps."""
    if fold is None or fold.rewrite is None or not fold.is_backward:
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


def channel_axis(recipe: NewNode) -> tuple[int, int]:
    """Give the input that is the new weight, and its axis that is the channels."""
    position = 1 if isinstance(recipe.inputs[1], Computed) else 0
    if recipe.op == "Conv":
        return 1, 0
    if recipe.op == "ConvTranspose":
        return 1, 1
    if position == 0:
        return 0, 1 if recipe.attrs.get("transA") else -2
    return 1, 0 if recipe.attrs.get("transB") else -1


def row_magnitudes(recipe: NewNode) -> Array | None:
    """Give the largest magnitude of each row of the new weight; None where it cannot be read."""
    position, axis = channel_axis(recipe)
    weight = recipe.inputs[position]
    if not isinstance(weight, Computed):
        return None
    try:
        values = np.abs(weight.compute())
    except (ValuesUnavailable, ValueError):
        return None
    return _largest(values, axis)


def _largest(values: Array, axis: int) -> Array:
    along = axis % values.ndim
    rest = tuple(k for k in range(values.ndim) if k != along)
    return np.asarray(values.max(axis=rest, initial=0))


def range_widening(fold: Fold, constants: Constants) -> float | None:
    """Give how much further the largest row stands out after folding than before.

    That is what a scale per tensor pays, when the weight is quantised later. Reads the weight; None
    where it cannot be read.
    """
    recipe = direct_recipe(fold)
    after = None if recipe is None else row_magnitudes(recipe)
    if recipe is None or after is None:
        return None
    position, axis = channel_axis(recipe)
    try:
        values = constants.values(fold.linear[0].inputs[position])
    except ValuesUnavailable:
        return None
    before = _largest(np.abs(values.astype(np.float64)), axis)
    usual_before, usual_after = float(np.median(before)), float(np.median(after))
    if not usual_before or not usual_after:
        return None
    return float(after.max() / usual_after / (before.max() / usual_before))
