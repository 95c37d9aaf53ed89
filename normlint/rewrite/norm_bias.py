"""A norm without its bias, which its readers take up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.zero_mean_writers import bias_place
from normlint.normalization import SKIP_LAYER_NORM
from normlint.rewrite.centre import Edits, Form
from normlint.rewrite.centre_affine import bias_folds
from normlint.rewrite.centre_region import region, rounding
from normlint.rule import Applicability, NotFixed, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.normalization import Normalization

_WITHOUT_BIAS: dict[str, tuple[int | None, ...]] = {
    "LayerNormalization": (0, 1),
    SKIP_LAYER_NORM: (0, 1, 2, None, 4),
}
"""What an operator reads beside its bias, which it can go without."""


def fold_bias(context: Context, norm: Normalization) -> Rewrite | NotFixed | None:
    """Move the bias of a norm into the linear operators that read it.

    None where nothing adds a bias by itself.
    """
    place = bias_place(norm)
    if place is None or (norm.is_op and norm.op_type not in _WITHOUT_BIAS):
        return None
    folds = bias_folds(norm, context.constants)
    if isinstance(folds, NotFixed):
        return folds
    edits = Edits(context.constants, context.opset)
    for fold in folds:
        edits.change(fold.node, fold.place, fold.change)
        edits.touched.update(dict.fromkeys(fold.region))
    node, position = place
    if norm.op_type is None:
        edits.drop(norm.y, node.inputs[1 - position])
    else:
        edits.reform(node, Form(node.op, _WITHOUT_BIAS[norm.op_type]))
    count = len({fold.node for fold in folds})
    title = f"add the bias in the {count} operator{'s' * (count > 1)} behind"
    replacing = edits.edits()
    return Rewrite(
        title,
        Applicability.SAFE,
        replacing,
        region(edits.touched, context.constants),
        rounding=rounding(replacing),
    )
