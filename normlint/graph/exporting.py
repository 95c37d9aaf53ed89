"""From the edited graph back to protos, leaving everything alone that no rewrite touched.

graphsurgeon's exporter would lose metadata, annotations and attributes of unusual types. Here each
node that was not edited keeps its NodeProto, a call whose expansion was not edited stays a call,
and every other field of the model stays as it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from normlint.graph.declaring import (
    declare_opsets,
    drop_uncalled,
    keep,
    names_made,
    names_read,
)
from normlint.graph.importing import plain_value
from normlint.graph.ordering import in_order
from normlint.graph.types import Constant, Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import TensorProto

    from normlint.graph.types import Tensor

    Placeholder = Callable[[Constant], TensorProto]


def export_graph(graph: Graph, original: ModelProto, placeholder: Placeholder) -> ModelProto:
    """Give the model of an edited graph.

    `placeholder` gives the TensorProto for a new constant: its values, or what stands for them
    until they are written.
    """
    model = ModelProto()
    model.CopyFrom(original)
    _Exporter(original, placeholder).graph(graph, model.graph)
    drop_uncalled(model, original)
    declare_opsets(model, graph)
    return model


class _Exporter:
    def __init__(self, original: ModelProto, placeholder: Placeholder) -> None:
        self.original = original
        self.placeholder = placeholder
        self.named: set[Constant] = set()
        self.shift = 0

    def graph(self, root: Graph, target: GraphProto) -> None:
        """Write the nodes of a graph and its subgraphs into a copy of the original proto."""
        written: list[tuple[Graph, GraphProto, GraphProto]] = []
        pending = [(root, target)]
        while pending:
            graph, proto = pending.pop()
            before = GraphProto()
            before.CopyFrom(proto)
            written.append((graph, proto, before))
            nodes, inner = self.nodes(graph, before)
            del proto.node[:]
            proto.node.extend(nodes)
            for position, name, subgraph in inner:
                attribute = next(a for a in proto.node[position].attribute if a.name == name)
                pending.append((subgraph, attribute.g))
        for graph, proto, before in written:  # once all subgraphs say what they read
            self.constants(graph, proto, before)

    def nodes(
        self, graph: Graph, before: GraphProto
    ) -> tuple[list[NodeProto], list[tuple[int, str, Graph]]]:
        """Give the nodes in order, and the subgraphs that they hold by position."""
        intact = _intact_calls(graph)
        read = names_read(before)
        protos: list[NodeProto] = []
        inner: list[tuple[int, str, Graph]] = []
        written: set[int] = set()
        for item in in_order(graph):
            origin = item.origin
            if origin is not None and origin.functions and origin.index in intact:
                if origin.index not in written:
                    written.add(origin.index)
                    protos.append(before.node[origin.index])
                continue
            if isinstance(item, Constant):
                if origin is not None and (_is_live(item) or item.name not in read):
                    protos.append(origin.proto)
                continue
            inner.extend(
                (len(protos), name, value)
                for name, value in item.attrs.items()
                if isinstance(value, Graph)
            )
            protos.append(self.node(item))
        return self.small_constants(graph) + protos, [
            (position + self.shift, name, subgraph) for position, name, subgraph in inner
        ]

    def small_constants(self, graph: Graph) -> list[NodeProto]:
        """Give new constants as nodes where an initializer would have to be a graph input too."""
        self.shift = 0
        if self.original.ir_version >= 4:
            return []
        nodes = []
        for constant in _new_constants(graph):
            self.named.add(constant)
            tensor = self.placeholder(constant)
            node = NodeProto(op_type="Constant", output=[constant.name])
            tensor.name = ""
            node.attribute.add(name="value", type=AttributeProto.TENSOR, t=tensor)
            nodes.append(node)
        self.shift = len(nodes)
        return nodes

    def node(self, node: Node) -> NodeProto:
        """Give the original proto of a node, or a new one where the node was edited."""
        inputs = [tensor.name for tensor in node.inputs]
        outputs = [tensor.name for tensor in node.outputs]
        if node.origin is not None:
            proto = node.origin.proto
            if list(proto.input) == inputs and list(proto.output) == outputs:
                return proto
            copy = NodeProto()
            copy.CopyFrom(proto)
            copy.input[:] = inputs
            copy.output[:] = outputs
            return copy
        return _new_node(node, inputs, outputs)

    def constants(self, graph: Graph, proto: GraphProto, before: GraphProto) -> None:
        """Drop initializers and descriptions of tensors that are gone, add new constants."""
        used_before, used = names_read(before), names_read(proto)
        gone = used_before - used
        if self.original.ir_version >= 4:  # whoever gives a value of his own may still do so
            gone -= {value.name for value in proto.input}
        keep(proto.initializer, lambda tensor: tensor.name not in gone)
        # An input whose initial value is gone would have to be given from now on.
        dropped = {t.name for t in before.initializer} - {t.name for t in proto.initializer}
        keep(proto.input, lambda value: value.name not in dropped)
        vanished = (used_before | names_made(before)) - used - names_made(proto)
        keep(proto.value_info, lambda value: value.name not in vanished)
        keep(proto.quantization_annotation, lambda note: note.tensor_name not in vanished)
        for constant in _new_constants(graph):
            if constant not in self.named:
                self.named.add(constant)
                proto.initializer.append(self.placeholder(constant))


def _intact_calls(graph: Graph) -> set[int]:
    """Give the indices of calls whose expansion was not edited."""
    if not graph.call_sizes:
        return set()
    left = dict(graph.call_sizes)
    call_of: dict[Tensor, int] = {}
    broken: set[int] = set()
    for item in in_order(graph):
        origin = item.origin
        if origin is None or not origin.functions:
            continue
        left[origin.index] -= 1
        if isinstance(item, Constant):
            call_of[item] = origin.index
            continue
        call_of.update(dict.fromkeys(item.outputs, origin.index))
        if _is_changed(item, origin.proto):
            broken.add(origin.index)
    for node in graph.nodes:  # a new node may read what only the expansion has
        if node.origin is None:
            broken.update(call_of[tensor] for tensor in node.inputs if tensor in call_of)
    return {index for index, count in left.items() if count == 0} - broken


def _is_changed(node: Node, proto: NodeProto) -> bool:
    if [tensor.name for tensor in node.inputs] != list(proto.input):
        return True
    if [tensor.name for tensor in node.outputs] != list(proto.output):
        return True
    return any(_is_edited(value) for value in node.attrs.values() if isinstance(value, Graph))


def _is_edited(graph: Graph) -> bool:
    return any(node.origin is None for scope in graph.scopes() for node in scope.nodes)


def _new_node(node: Node, inputs: list[str], outputs: list[str]) -> NodeProto:
    while outputs and not outputs[-1]:
        outputs.pop()
    while inputs and not inputs[-1]:
        inputs.pop()
    proto = NodeProto(name=node.name, op_type=node.op, domain=node.domain or "")
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    model = node.proto
    before = {}
    if model is not None:
        proto.metadata_props.extend(model.metadata_props)
        if model.op_type == node.op and model.domain == (node.domain or ""):
            proto.doc_string = model.doc_string
            before = {attribute.name: attribute for attribute in model.attribute}
    for name, value in node.attrs.items():
        if isinstance(value, Graph):
            proto.attribute.append(before[name])
        elif isinstance(value, AttributeProto):
            proto.attribute.append(value)
        elif name in before and plain_value(before[name]) == value:
            proto.attribute.append(before[name])
        elif value is not None:
            proto.attribute.append(onnx.helper.make_attribute(name, value))
    return proto


def _new_constants(graph: Graph) -> list[Constant]:
    """Give the constants of a graph that a rewrite made and somebody reads."""
    return [constant for constant in graph.constants if constant.new and constant.outputs]


def _is_live(constant: Constant) -> bool:
    return bool(constant.outputs) or constant.is_output
