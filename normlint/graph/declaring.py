"""What a model declares besides its nodes: names, functions and opsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import AttributeProto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onnx import GraphProto, ModelProto, NodeProto

    from normlint.graph.types import Graph


def names_read(graph: GraphProto) -> set[str]:
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


def names_made(graph: GraphProto) -> set[str]:
    """Names of the tensors that the nodes of a graph compute."""
    return {name for node in graph.node for name in node.output}


def keep(repeated: Any, wanted: Callable[[Any], bool]) -> None:
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


def drop_uncalled(model: ModelProto, original: ModelProto) -> None:
    """Drop the functions that were called before the rewrite and are not any more."""
    if not original.functions:
        return
    gone = _calls(original) - _calls(model)
    keep(model.functions, lambda f: (f.domain, f.name, f.overload) not in gone)


def declare_opsets(model: ModelProto, graph: Graph) -> None:
    """Declare the opset of the edited graph, and the domains of its new nodes."""
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
