"""The same network in a branch of an If, or in a function whose caller passes the weights."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper


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
    made = {name for node in nodes for name in node.output if name}
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [f"{n}_{suffix}" if n in made else n for n in node.input]
        copy.output[:] = [f"{n}_{suffix}" if n else n for n in node.output]
        copies.append(copy)
    return copies


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
