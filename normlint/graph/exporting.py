"""From the edited graph back to protos, leaving everything alone that no rewrite touched.

graphsurgeon's exporter would lose metadata, annotations and attributes of unusual types. Here each
node that was not edited keeps its NodeProto, a call whose expansion was not edited stays a call,
and every other field of the model stays as it was read.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from normlint.graph.importing import plain_value
from normlint.graph.types import Constant, Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
    _drop_uncalled(model, original)
    _declare_opsets(model, graph)
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
        read = _used(before)
        protos: list[NodeProto] = []
        inner: list[tuple[int, str, Graph]] = []
        written: set[int] = set()
        for item in _in_order(graph):
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
        used_before, used = _used(before), _used(proto)
        gone = used_before - used
        _keep(proto.initializer, lambda tensor: tensor.name not in gone)
        # An input whose initial value is gone would have to be given from now on.
        dropped = {t.name for t in before.initializer} - {t.name for t in proto.initializer}
        _keep(proto.input, lambda value: value.name not in dropped)
        vanished = (used_before | _made(before)) - used - _made(proto)
        _keep(proto.value_info, lambda value: value.name not in vanished)
        _keep(proto.quantization_annotation, lambda note: note.tensor_name not in vanished)
        for constant in _new_constants(graph):
            if constant not in self.named:
                self.named.add(constant)
                proto.initializer.append(self.placeholder(constant))


def _in_order(graph: Graph) -> list[Node | Constant]:
    """Give nodes and Constant nodes in topological order, as near to the file's as that allows."""
    items: list[Node | Constant] = [c for c in graph.constants if c.origin is not None]
    items.extend(graph.nodes)
    items.sort(key=lambda item: item.order)
    position = {item: index for index, item in enumerate(items)}
    sources = [
        {position[source] for source in _sources(item) if source in position} for item in items
    ]
    if all(not needed or max(needed) < index for index, needed in enumerate(sources)):
        return items
    return [items[index] for index in _topological(sources)]


def _sources(item: Node | Constant) -> Iterator[Node | Constant]:
    """Give what a node and its subgraphs read: producers and Constant nodes."""
    if isinstance(item, Constant):
        return
    nodes = [item]
    for value in item.attrs.values():
        if isinstance(value, Graph):
            nodes.extend(node for scope in value.scopes() for node in scope.nodes)
    for node in nodes:
        for tensor in node.inputs:
            if isinstance(tensor, Constant):
                yield tensor
            elif tensor.producer is not None:
                yield tensor.producer


def _topological(sources: list[set[int]]) -> list[int]:
    """Sort by Kahn's algorithm, the lowest index first; a cycle stays as it stood."""
    readers: dict[int, list[int]] = {}
    waiting = [len(needed - {index}) for index, needed in enumerate(sources)]
    for index, needed in enumerate(sources):
        for source in needed - {index}:
            readers.setdefault(source, []).append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order if len(order) == len(sources) else list(range(len(sources)))


def _intact_calls(graph: Graph) -> set[int]:
    """Give the indices of calls whose expansion was not edited."""
    if not graph.call_sizes:
        return set()
    left = dict(graph.call_sizes)
    call_of: dict[Tensor, int] = {}
    broken: set[int] = set()
    for item in _in_order(graph):
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


def _used(graph: GraphProto) -> set[str]:
    """Names that nodes of a graph and its subgraphs read, or that are outputs."""
    used: set[str] = set()
    pending = [graph]
    while pending:
        current = pending.pop()
        used.update(value.name for value in current.output)
        for node in current.node:
            used.update(node.input)
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    pending.append(attribute.g)
                elif attribute.type == AttributeProto.GRAPHS:
                    pending.extend(attribute.graphs)
    return used


def _made(graph: GraphProto) -> set[str]:
    return {name for node in graph.node for name in node.output}


def _keep(repeated: Any, wanted: Callable[[Any], bool]) -> None:
    """Drop the elements of a repeated field that are not wanted."""
    drop = [index for index, element in enumerate(repeated) if not wanted(element)]
    for index in reversed(drop):
        del repeated[index]


def _calls(model: ModelProto) -> set[tuple[str, str, str]]:
    """Give the functions that a model calls, those called by functions included."""
    known = {(f.domain, f.name, f.overload): f for f in model.functions}
    called: set[tuple[str, str, str]] = set()
    pending: list[Iterable[NodeProto]] = [model.graph.node]
    while pending:
        for node in pending.pop():
            key = (node.domain, node.op_type, node.overload)
            if key in known and key not in called:
                called.add(key)
                pending.append(known[key].node)
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    pending.append(attribute.g.node)
                pending.extend(graph.node for graph in attribute.graphs)
    return called


def _drop_uncalled(model: ModelProto, original: ModelProto) -> None:
    """Drop the functions that were called before the rewrite and are not any more."""
    if not original.functions:
        return
    gone = _calls(original) - _calls(model)
    _keep(model.functions, lambda f: (f.domain, f.name, f.overload) not in gone)


def _declare_opsets(model: ModelProto, graph: Graph) -> None:
    declared = {"" if e.domain == "ai.onnx" else e.domain: e for e in model.opset_import}
    if "" in declared:
        before = declared[""].version
        declared[""].version = graph.opset
        # The checker wants functions to declare the model's opset; their nodes were raised too.
        for function in model.functions:
            for entry in function.opset_import:
                if entry.domain in {"", "ai.onnx"} and entry.version == before:
                    entry.version = graph.opset
    for scope in graph.scopes():
        for node in scope.nodes:
            if node.origin is None and node.domain and node.domain not in declared:
                entry = model.opset_import.add(domain=node.domain, version=1)
                declared[node.domain] = entry
