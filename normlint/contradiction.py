"""Models that parse and contradict themselves: extents, types or names that cannot all be true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import GraphProto, ModelProto


def contradiction(model: ModelProto) -> str | None:
    """Say why onnx's checker refuses a model, of whose weights it sees the types and extents only.

    It is asked where the model could not be analysed: if it has nothing to say, that is a fault of
    normlint's.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for graph in _graphs(bare):
        _without_values(graph)
    if _calls_within_calls(bare):
        # The checker follows each of them: forty functions that call the next one twice are 2^40.
        del bare.functions[:]
    try:
        onnx.checker.check_model(bare, full_check=True)
    except Exception as fault:  # noqa: BLE001 - it has several, and protobuf has its own
        lines = str(fault).strip().splitlines()
        return lines[0] if lines else type(fault).__name__
    if any(isinstance(name, bytes) for graph in _graphs(bare) for name in _names(graph)):
        return "a name in it is no UTF-8"
    return None


def _calls_within_calls(model: ModelProto) -> bool:
    """Whether a function calls another one, or itself."""
    known = {(function.domain, function.name) for function in model.functions}
    pending = [node for function in model.functions for node in function.node]
    while pending:
        node = pending.pop()
        if (node.domain, node.op_type) in known:
            return True
        for attribute in node.attribute:
            pending.extend(attribute.g.node)
    return False


def _names(graph: GraphProto) -> Iterator[object]:
    """Give all names; those that are no UTF-8 protobuf gives as bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name


def _without_values(graph: GraphProto) -> None:
    """Make inputs of large initializers: their bytes are not here."""
    given = {value.name for value in graph.input}
    kept = []
    for tensor in graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in given:
            shape = list(tensor.dims)
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    copies = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)


def _graphs(model: ModelProto) -> Iterator[GraphProto]:
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            pending.extend(a.g for a in node.attribute if a.type == AttributeProto.GRAPH)
