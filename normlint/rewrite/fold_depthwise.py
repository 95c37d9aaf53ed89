"""A BatchNorm that stays, as a depthwise convolution with a point for a kernel.

It is the same work in one operator. Runtimes that have no BatchNormalization run it as a Mul and an
Add, each a pass over the activation with a range of its own in integers; a depthwise convolution is
one pass, and is quantised with a scale for each channel. Elsewhere a BatchNormalization is best
left as it is.

TFLite has none: https://github.com/KhronosGroup/NNEF-Tools/issues/108; its converter makes Mul and
Add: https://github.com/Samsung/ONE/issues/1671. That a convolution serves instead:
https://github.com/pytorch/executorch/issues/11586.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.affine import of_batch_norm
from normlint.rewrite.centre_region import rounding
from normlint.rewrite.fold_weights import check_scale, check_shift, type_of, vector
from normlint.rule import Applicability, NewNode, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.graph import Node
    from normlint.rewrite.affine import Weights

WITHOUT_BATCH_NORM = frozenset(("tflite",))
"""Targets that have depthwise convolutions and no BatchNormalization."""
_IMAGE = 4


def depthwise(node: Node, weights: Weights) -> Rewrite | None:
    """Describe a BatchNormalization of images as a depthwise Conv; None where it cannot be one."""
    if node.inputs[0].rank != _IMAGE:
        return None
    try:
        affine = of_batch_norm(node, weights)
        dtype = type_of(node, node.inputs[0])
        check_scale(affine.scale, np.ones(affine.channels), dtype, node)
        check_shift(affine.shift, dtype, node)
    except Blocked:
        return None
    inputs = (
        node.inputs[0],
        vector(affine.scale, dtype, f"{node.y.name}_scale", (-1, 1, 1, 1)),
        vector(affine.shift, dtype, f"{node.y.name}_shift"),
    )
    attrs = {"group": affine.channels, "kernel_shape": [1, 1]}
    edits = (Replace((node.y,), NewNode("Conv", inputs, attrs, node)),)
    return Rewrite(
        "replace by a depthwise Conv",
        Applicability.SAFE,
        edits,
        (node,),
        rounding=rounding(edits),
    )
