"""The same network in a branch of an If, or in a function whose caller passes the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def in_branch(model: onnx.ModelProto, *, outer_weights: bool) -> onnx.ModelProto:
    """Put the network into the first branch of an If; the other one computes it as it is."""
    graph = model.graph
    weights = list(graph.initializer)
    branches = []
    for suffix in ("a", "b"):
        renamed = _renamed(list(graph.node), suffix)
        own = [] if outer_weights or suffix == "b" else weights
        outputs = []
        for value in graph.output:
            copy = onnx.ValueInfoProto()
            copy.CopyFrom(value)
            copy.name = f"{value.name}_{suffix}"
            outputs.append(copy)
        branches.append(helper.make_graph(renamed, f"branch_{suffix}", [], outputs, own))
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])
    node = helper.make_node(
        "If",
        ["condition"],
        [value.name for value in graph.output],
        name="choice",
        then_branch=branches[0],
        else_branch=branches[1],
    )
    whole = helper.make_graph(
        [node], "main", [condition, *graph.input], list(graph.output), weights
    )
    return helper.make_model(
        whole, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )


def _renamed(nodes: list[onnx.NodeProto], suffix: str) -> list[onnx.NodeProto]:
    copies = []
    for node in nodes:
        copies.append(onnx.NodeProto())
        copies[-1].CopyFrom(node)
    every = list(_every_node(copies))
    made = {name for node in every for name in node.output if name}
    for node in every:
        node.input[:] = [f"{n}_{suffix}" if n in made else n for n in node.input]
        node.output[:] = [f"{n}_{suffix}" if n else n for n in node.output]
        for value in (value for graph in _subgraphs(node) for value in graph.output):
            value.name = f"{value.name}_{suffix}" if value.name in made else value.name
    return copies


def _every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, and those of their subgraphs."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        pending += [inner for graph in _subgraphs(node) for inner in graph.node]


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def in_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the network into a function whose caller passes the weights, called twice."""
    graph = model.graph
    inputs = [value.name for value in graph.input]
    weights = [tensor.name for tensor in graph.initializer]
    outputs = [value.name for value in graph.output]
    function = helper.make_function(
        "local",
        "Network",
        [*inputs, *weights],
        outputs,
        list(graph.node),
        list(model.opset_import),
    )
    second = [f"{name}_second" for name in outputs]
    calls = [
        helper.make_node("Network", [*inputs, *weights], outputs, "first", domain="local"),
        helper.make_node("Network", [*inputs, *weights], second, "second", domain="local"),
    ]
    values = list(graph.output)
    for value in graph.output:
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(value)
        copy.name = f"{value.name}_second"
        values.append(copy)
    whole = helper.make_graph(calls, "main", list(graph.input), values, list(graph.initializer))
    return helper.make_model(
        whole,
        opset_imports=[*model.opset_import, helper.make_opsetid("local", 1)],
        functions=[function],
        ir_version=model.ir_version,
    )
