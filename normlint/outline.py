"""A model as lines of text that read well side by side with those of another version."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnx import AttributeProto

from normlint.changes import node_line, type_name
from normlint.globs import name_matches
from normlint.results import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

_DRAWN = 60


def outline(model: ModelProto) -> list[str]:
    """Give the whole model but for the values of its tensors."""
    opsets = ", ".join(f"{e.domain or 'ai.onnx'} {e.version}" for e in model.opset_import)
    producer = f"{model.producer_name} {model.producer_version}".strip()
    lines = [f"ir_version {model.ir_version}", f"opset {opsets}", f"producer {producer}"]
    lines += [f"metadata {entry.key} = {entry.value}" for entry in model.metadata_props]
    for path, graph in graphs(model):
        lines += ["", f"{path} {graph.name}", *_border(graph)]
        lines += [f"  {node_line(node)}" for node in graph.node]
    for function in model.functions:
        lines += ["", f"function {function.domain}::{function.name}({', '.join(function.input)})"]
        lines += [f"  {node_line(node)}" for node in function.node]
        lines.append(f"  -> {', '.join(function.output)}")
    return lines


def graphs(model: ModelProto) -> Iterator[tuple[str, GraphProto]]:
    """Give the graph and all its subgraphs with their paths, outer ones first."""
    pending = [("graph", model.graph)]
    while pending:
        path, graph = pending.pop(0)
        yield path, graph
        for node in graph.node:
            for attribute in node.attribute:
                inner = (
                    [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
                )
                place = f"{path}/{node.name or node.op_type}.{attribute.name}"
                pending += [(place, subgraph) for subgraph in inner]


def neighbourhood(model: ModelProto, pattern: str) -> tuple[Step, ...]:
    """Give the nodes whose name or address matches, and those right beside them, in order."""
    found: list[Step] = []
    for _, graph in graphs(model):
        found += _neighbourhood(graph, pattern)
        if len(found) >= _DRAWN:
            break
    return tuple(found[:_DRAWN])


def _neighbourhood(graph: GraphProto, pattern: str) -> list[Step]:
    counts = Counter(node.name for node in graph.node)
    addresses = [address(node, index, counts) for index, node in enumerate(graph.node)]
    matched = {index for index, name in enumerate(addresses) if name_matches(name, pattern)}
    inner = [graph.node[index] for index in matched]
    read = {name for node in inner for name in node.input if name}
    made = {name for node in inner for name in node.output if name}
    constants = {tensor.name for tensor in graph.initializer}
    return [
        Step(
            addresses[index],
            node.op_type,
            tuple(name for name in node.input if name and name not in constants),
            tuple(name for name in node.output if name),
            "match" if index in matched else "near",
        )
        for index, node in enumerate(graph.node)
        if index in matched or read.intersection(node.output) or made.intersection(node.input)
    ]


def address(node: NodeProto, index: int, counts: Counter[str]) -> str:
    """Give the name of a node where it has one of its own, else `#index:Op@output`."""
    if node.name and counts[node.name] == 1:
        return node.name
    return f"#{index}:{node.op_type}@{node.output[0] if node.output else ''}"


def _border(graph: GraphProto) -> Iterator[str]:
    for value in graph.input:
        yield f"  input {value.name}: {_type(value)}"
    for value in graph.output:
        yield f"  output {value.name}: {_type(value)}"
    for tensor in graph.initializer:
        kind = type_name(tensor.data_type).lower()
        yield f"  initializer {tensor.name}: {kind}{list(tensor.dims)}"


def _type(value: ValueInfoProto) -> str:
    if not value.type.HasField("tensor_type"):
        return str(value.type.WhichOneof("value") or "unknown").removesuffix("_type")
    tensor = value.type.tensor_type
    kind = type_name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{kind}[?]"
    extents = [
        d.dim_param or (d.dim_value if d.HasField("dim_value") else "?") for d in tensor.shape.dim
    ]
    return f"{kind}[{', '.join(map(str, extents))}]"
