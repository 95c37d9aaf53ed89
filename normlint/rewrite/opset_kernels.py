"""Whether onnxruntime still has a kernel for a node when the opset rises.

A newer definition of an operator often only admits more types, and yet the runtime may know the
older one alone: then a model that loads would not load any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import AttributeProto, TensorProto, helper

from normlint.graph import Graph
from normlint.runtime import session_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from normlint.graph import Node, Tensor

_LATEST_IR = 10


class Kernels:
    """What onnxruntime loads, tried once for each operator with its types."""

    def __init__(self, below: int, to: int) -> None:
        self.below = below
        self.to = to
        self._known: dict[tuple[object, ...], bool] = {}

    def loses(self, node: Node) -> bool:
        """Whether the runtime loads the node at the lower opset and not at the higher one."""
        if any(isinstance(value, Graph) for value in node.attrs.values()):
            return False
        types = tuple(_type(tensor) if tensor.name else -1 for tensor in node.inputs)
        key = (node.op, types, len(node.outputs))
        if key not in self._known:
            self._known[key] = _loads(node, self.below) and not _loads(node, self.to)
        return self._known[key]


def _type(tensor: Tensor) -> int:
    """Give the type of a tensor; float where an operator that onnx does not know hides it."""
    return tensor.dtype or TensorProto.FLOAT


def _loads(node: Node, opset: int) -> bool:
    """Whether the runtime makes a session of the node alone."""
    try:
        session_of(_model(node, opset).SerializeToString(), threads=1)
    except Exception:  # noqa: BLE001 - the runtime's exceptions have no common class
        return False
    return True


def _model(node: Node, opset: int) -> ModelProto:
    inputs = [f"i{k}" if tensor.name else "" for k, tensor in enumerate(node.inputs)]
    outputs = [f"o{k}" if tensor.name else "" for k, tensor in enumerate(node.outputs)]
    proto = helper.make_node(node.op, inputs, outputs)
    for name, value in node.attrs.items():
        given = isinstance(value, AttributeProto)
        proto.attribute.append(value if given else helper.make_attribute(name, value))
    graph = helper.make_graph(
        [proto],
        "node",
        [
            helper.make_tensor_value_info(name, _type(tensor), None)
            for name, tensor in zip(inputs, node.inputs, strict=True)
            if name
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_LATEST_IR
    )
