"""BatchNormalization in a form of the past, in the form of today."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.affine import Affine, Weights, is_spatial, of_batch_norm
from normlint.rewrite.fold_weights import check_shift, vector
from normlint.rule import Applicability, NewNode, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.batch_norms import BatchNormOp
    from normlint.graph import Node

_GONE = frozenset(("spatial", "is_test", "consumed_inputs", "training_mode"))
_BROADCASTING_SINCE = 7


def modernised(op: BatchNormOp, context: Context) -> Rewrite | NotFixed:
    """Describe the same without attributes and outputs of the past."""
    node = op.node
    if op.is_training:
        return NotFixed(
            Reason.BATCH_STATISTICS, node, "with more than one output it uses batch statistics"
        )
    if node.graph.opset < _BROADCASTING_SINCE:
        return NotFixed(Reason.OPSET, node, "the model's opset has no other form")
    read = next((t for t in node.outputs[1:] if t.name and (t.consumers or t.is_output)), None)
    if read is not None:
        return NotFixed(Reason.OTHER_READER, read, f"{read.name} is read")
    if not is_spatial(node):
        features = _features(node)
        if features is not None:
            return _per_feature(op, context, features)
    attrs = {key: value for key, value in node.attrs.items() if key not in _GONE}
    recipe = NewNode("BatchNormalization", tuple(node.inputs[:5]), attrs, node)
    return Rewrite(
        "drop what the operator no longer has",
        Applicability.SAFE,
        (Replace((node.y,), recipe),),
        (node,),
        invalid_before=True,
    )


def _features(node: Node) -> tuple[int, ...] | None:
    """Give the shape of parameters that hold a value for each feature, as [C, H, W]."""
    shape = node.inputs[1].shape
    if shape is None or len(shape) < 2:
        return None
    extents = tuple(extent for extent in shape if isinstance(extent, int))
    return extents if len(extents) == len(shape) else None


def _are_alike(node: Node, features: tuple[int, ...]) -> bool:
    return all(node.inputs[position].shape == features for position in range(1, 5))


def _per_feature(
    op: BatchNormOp, context: Context, features: tuple[int, ...]
) -> Rewrite | NotFixed:
    node = op.node
    x = node.inputs[0]
    if x.rank != len(features) + 1 or not _are_alike(node, features):
        return NotFixed(Reason.BROADCAST, node, "its parameters do not fit the features")
    try:
        affine: Affine = of_batch_norm(node, Weights(context.constants))
        for values in (affine.scale, affine.shift):
            check_shift(np.asarray(values), x.dtype, node)
    except Blocked as blocked:
        return blocked.not_fixed
    scale = vector(affine.scale, x.dtype, f"{node.y.name}_scale", features)
    shift = vector(affine.shift, x.dtype, f"{node.y.name}_shift", features)
    product = NewNode("Mul", (x, scale), like=node)
    return Rewrite(
        "replace by Mul and Add for each feature",
        Applicability.SAFE,
        (Replace((node.y,), NewNode("Add", (product, shift), like=node)),),
        (node,),
    )
