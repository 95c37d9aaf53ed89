"""The whole graph in a branch, a function or a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from scopes import in_branch, in_function

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx


def in_scope(
    plain: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], random: np.random.Generator
) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """Put the graph into a branch, a function or a loop, or leave it as it is."""
    names = {tensor.name for tensor in plain.graph.initializer}
    free = not any(value.name in names for value in plain.graph.input)
    ways: dict[int, Callable[[], onnx.ModelProto]] = {
        0: lambda: in_branch(plain, outer_weights=True),
        1: lambda: in_branch(plain, outer_weights=False),
        2: lambda: in_function(plain),
        3: lambda: in_loop(plain),
    }
    way = int(random.integers(12))
    if not free or way not in ways:
        return plain, shapes
    whole = ways[way]()
    whole.functions.extend(plain.functions)
    return whole, {**shapes, "condition": ()}


def in_loop(model: onnx.ModelProto) -> onnx.ModelProto:
    """Run the graph twice, with weights and inputs from outside, and stack what it gives."""
    graph = model.graph
    condition = helper.make_tensor_value_info("going on", TensorProto.BOOL, [])
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    outputs = [
        helper.make_tensor_value_info(v.name, v.type.tensor_type.elem_type, None)
        for v in graph.output
    ]
    body = helper.make_graph(
        [*graph.node, helper.make_node("Identity", ["going on"], ["goes on"])],
        "body",
        [turn, condition],
        [helper.make_tensor_value_info("goes on", TensorProto.BOOL, []), *outputs],
    )
    stacked = [f"{value.name} stacked" for value in graph.output]
    node = helper.make_node("Loop", ["times", ""], stacked, name="loop", body=body)
    times = numpy_helper.from_array(np.array(2, np.int64), "times")
    results = [
        helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, None)
        for name, value in zip(stacked, graph.output, strict=True)
    ]
    whole = helper.make_graph(
        [node], "main", list(graph.input), results, [*graph.initializer, times]
    )
    return helper.make_model(
        whole, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )
