"""The scale of a GroupNormalization, repeated from each group for each of its channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rewrite.opset_steps import Unfaithful, repeated_for_channels
from normlint.rule import Applicability, NewNode, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.normalization import Normalization


def repeated_scale(norm: Normalization) -> Rewrite | NotFixed:
    """Give the operator of opset 21 the scale and the bias that it wants."""
    node = norm.anchor
    try:
        scale, bias = (repeated_for_channels(node, index) for index in (1, 2))
    except Unfaithful as problem:
        return NotFixed(Reason.SHAPE_UNKNOWN, node, str(problem))
    made = NewNode(node.op, (node.inputs[0], scale, bias), dict(node.attrs), node)
    return Rewrite(
        "repeat scale and bias of each group for each of its channels",
        Applicability.SAFE,
        (Replace((norm.y,), made),),
        norm.nodes,
        invalid_before=True,
    )
