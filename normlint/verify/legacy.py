"""Running nodes of the first opsets, which no engine has any more, at opset 7.

Before opset 7 BatchNormalization had attributes that no runtime reads, and broadcasting was asked
for by an attribute. Where nothing else sets the nodes apart, they compute the same at opset 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import NodeProto

_LEAST = 7
_SAME = frozenset(
    [
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "Add",
        "Identity",
        "Relu",
        "Transpose",
        "Concat",
        "MaxPool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Reshape",
        "Flatten",
        "Constant",
    ]
)
"""Operators that compute the same at opset 7 as before, but for the attributes below."""
_DROPPED = frozenset(("is_test", "consumed_inputs", "spatial", "broadcast"))


def raised(nodes: Iterable[NodeProto], opset: int) -> int:
    """Give the opset at which nodes can be run, and drop in place what they no longer have."""
    nodes = list(nodes)
    if opset >= _LEAST or any(not _is_same(node) for node in nodes):
        return opset
    for node in nodes:
        kept = [attribute for attribute in node.attribute if attribute.name not in _DROPPED]
        del node.attribute[:]
        node.attribute.extend(kept)
    return _LEAST


def _is_same(node: NodeProto) -> bool:
    given = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type not in _SAME or not given.get("spatial", 1):
        return False
    return node.op_type != "Add" or "axis" not in given
