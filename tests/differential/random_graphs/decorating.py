"""What files have besides the graph: names or none, metadata, types, weights among the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

if TYPE_CHECKING:
    import numpy as np
    from differential.random_graphs.graph import RandomGraph


def decorated(graph: RandomGraph, random: np.random.Generator) -> onnx.ModelProto:
    """Add what files have besides: names or none, metadata, value_info, weights among inputs."""
    model = graph.model()
    names = random.choice(["unique", "none", "equal"], p=[0.55, 0.4, 0.05])
    for index, node in enumerate(model.graph.node):
        node.name = {"unique": f"node {index}", "none": "", "equal": "node"}[names]
        if random.random() < 0.2:
            node.doc_string = "made of nothing"
            node.metadata_props.add(key="namespace", value=f"model/layer{index}")
    model.metadata_props.add(key="author", value="nobody")
    model.doc_string = "a random graph"
    if random.random() < 0.06:
        random.choice(model.graph.input).type.tensor_type.ClearField("shape")
    for output in model.graph.output:
        if random.random() < 0.2:
            output.type.tensor_type.ClearField("shape")
    if random.random() < 0.4:
        _with_types(model)
    weights = list(model.graph.initializer)
    if random.random() < 0.1 and not _has_inner_weights(model):
        model.ir_version = 3
    elif random.random() < 0.15:
        weights = [tensor for tensor in weights if random.random() < 0.3]
    else:
        return model
    for tensor in weights:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)
    return model


def _with_types(model: onnx.ModelProto) -> None:
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return
    model.graph.value_info.extend(inferred.graph.value_info)


def _has_inner_weights(model: onnx.ModelProto) -> bool:
    """Whether a subgraph has initializers: before IR version 4 they would have to be inputs."""
    pending = [model.graph.node]
    while pending:
        for graph in (a.g for node in pending.pop() for a in node.attribute if a.HasField("g")):
            if graph.initializer:
                return True
            pending.append(graph.node)
    return False
