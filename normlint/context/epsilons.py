"""Where the epsilon of a norm stands, and whether it looks like one that somebody chose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.context.zero_mean_writers import can_be_edited
from normlint.normalization import Kind

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Node
    from normlint.normalization import Normalization

_CUSTOMARY = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12)
_MOST_HALVINGS = 16
_HALVES = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
_KINDS = frozenset((Kind.LAYER, Kind.RMS, Kind.INSTANCE, Kind.GROUP))
_OPS = frozenset(("LayerNormalization", "RMSNormalization", "InstanceNormalization"))


def is_customary(epsilon: float) -> bool:
    """Whether an epsilon has one of the usual values."""
    return any(math.isclose(epsilon, usual, rel_tol=2e-2) for usual in _CUSTOMARY)


def was_scaled(norm: Normalization) -> bool:
    """Whether the input of a norm was scaled by a power of two, for its epsilon was by the square.

    Such an epsilon has no usual value, and a usual one times a power of four.
    """
    if is_customary(norm.epsilon) or norm.epsilon <= 0:
        return False
    return any(is_customary(norm.epsilon * 4.0**k) for k in range(1, _MOST_HALVINGS))


def epsilon_place(norm: Normalization, constants: Constants) -> tuple[Node, int] | None:
    """Give where epsilon stands: a node and the position of the constant, or -1 for an attribute.

    None where there is none that can be multiplied: statistics in half precision do not hold it.
    """
    if norm.statistics_dtype in _HALVES or norm.kind not in _KINDS or norm.clipped:
        return None
    if norm.is_op:
        spare = [tensor for tensor in norm.anchor.outputs[1:] if tensor.name]
        used = any(tensor.consumers or tensor.is_output for tensor in spare)
        return (norm.anchor, -1) if norm.op_type in _OPS and not used else None
    node = norm.steps.get("epsilon")
    if node is None or node.op != "Add":
        return None
    known = [at for at, tensor in enumerate(node.inputs) if can_be_edited(tensor, constants)]
    return (node, known[0]) if len(known) == 1 else None
