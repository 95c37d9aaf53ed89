"""Models for the tests of the room that touches files, and what protobuf says of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from normlint.model import SELF
from normlint.model.placeholder import RAW_DATA, held, location
from normlint.model.wire import LENGTH, delimited, key, varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from normlint.model import ModelFile

LARGE = 300
"""Floats that pass the limit of what stays in a skeleton."""


def weight(name: str, seed: int = 0, size: int = LARGE) -> TensorProto:
    values = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return numpy_helper.from_array(values, name)


def constant(name: str, tensor: TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], name=f"make {name}", value=tensor)


def small_model(*weights: TensorProto) -> onnx.ModelProto:
    """x + w, with the weights given."""
    initializers = weights or (weight("w"),)
    shape = list(initializers[0].dims)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", initializers[0].name], ["y"], name="add")],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def rich_model() -> onnx.ModelProto:
    """Return a model with a large tensor in every place where one can be, and every odd field."""
    model = small_model(weight("w"), *_typed_tensors())
    graph = model.graph
    graph.initializer[0].doc_string = "why it is so"
    graph.initializer[0].metadata_props.add(key="place", value="first")
    graph.initializer[1].data_location = TensorProto.DEFAULT
    graph.doc_string = "a graph"
    model.producer_name = "tests"
    model.metadata_props.add(key="author", value="nobody\0\N{SNOWMAN}")
    graph.node.append(constant("c", weight("", 1)))
    graph.node[-1].metadata_props.add(key="namespace", value="a/b")
    graph.node.append(_node_of_everything())
    branch = helper.make_graph(
        [constant("d", weight("d", 2))],
        "branch",
        [],
        [helper.make_tensor_value_info("d", TensorProto.FLOAT, [LARGE])],
        [weight("in the branch", 3)],
    )
    graph.node.append(helper.make_node("If", ["b"], ["z"], then_branch=branch, else_branch=branch))
    indices = numpy_helper.from_array(np.arange(LARGE, dtype=np.int64), "indices")
    sparse = helper.make_sparse_tensor(weight("sparse", 4), indices, [10 * LARGE])
    graph.sparse_initializer.append(sparse)
    function = helper.make_function(
        "own", "Do", ["a"], ["b"], [constant("b", weight("f", 5))], [helper.make_opsetid("", 20)]
    )
    function.attribute_proto.append(helper.make_attribute("default", weight("g", 6)))
    model.functions.append(function)
    training = model.training_info.add()
    training.algorithm.CopyFrom(branch)
    training.initialization.initializer.append(weight("t", 7))
    graph.quantization_annotation.add(tensor_name="w")
    # Fields that this version of onnx does not know.
    unknown = b"\xa2\x7d\x05later\xa3\x7d\x08\x01\xa4\x7d"
    graph.initializer[0].MergeFromString(unknown)
    graph.MergeFromString(unknown)
    model.MergeFromString(unknown)
    return model


def _typed_tensors() -> list[TensorProto]:
    numbers = list(range(LARGE))
    made = [
        helper.make_tensor("floats", TensorProto.FLOAT, [3, LARGE // 3], numbers),
        helper.make_tensor("doubles", TensorProto.DOUBLE, [LARGE], numbers),
        helper.make_tensor("int64s", TensorProto.INT64, [4 * LARGE], numbers * 4),
        helper.make_tensor("complexes", TensorProto.COMPLEX64, [LARGE], [1j * n for n in numbers]),
        helper.make_tensor("texts", TensorProto.STRING, [LARGE], [f"text {n}" for n in numbers]),
        helper.make_tensor("empty", TensorProto.FLOAT, [0, 3], []),
        helper.make_tensor("scalar", TensorProto.FLOAT, [], [2.5]),
    ]
    raws = {
        "halves": (TensorProto.FLOAT16, 2),
        "bfloats": (TensorProto.BFLOAT16, 2),
        "eighths": (TensorProto.FLOAT8E4M3FN, 1),
        "nibbles": (TensorProto.INT4, 0.5),
        "bools": (TensorProto.BOOL, 1),
    }
    for name, (data_type, item_size) in raws.items():
        data = np.random.default_rng(len(name)).integers(0, 2, 1301, dtype=np.uint8).tobytes()
        count = int(1300 / item_size)
        raw = data[:1300]
        made.append(TensorProto(name=name, data_type=data_type, dims=[count], raw_data=raw))
    return made


def _node_of_everything() -> onnx.NodeProto:
    indices = numpy_helper.from_array(np.arange(LARGE, dtype=np.int64), "i")
    sparse = helper.make_sparse_tensor(weight("s", 8), indices, [10 * LARGE])
    node = helper.make_node("Odd", ["w"], ["odd"], domain="own", doc_string="odd", overload="o")
    attributes = {
        "tensors": [weight("p", 9), weight("q", 10)],
        "sparse": sparse,
        "sparses": [sparse, sparse],
        "graphs": [helper.make_graph([], "g", [], [], [weight("r", 11)])],
        "text": b"\xff" * 2000,
        "floats": [1.0] * 1000,
    }
    for name, value in attributes.items():
        node.attribute.append(helper.make_attribute(name, value))
    return node


def tensors_in(message: Message) -> Iterator[TensorProto]:
    """Every TensorProto below `message`, by reflection."""
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for child in [value] if isinstance(value, Message) else value:
            yield from tensors_in(child)


def resolved(model: ModelFile) -> onnx.ModelProto:
    """Put the bytes of the file back where the skeleton has placeholders."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model.proto)
    for tensor in tensors_in(whole):
        if location(tensor) != SELF:
            continue
        block = held(tensor)
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        if block.explicit:
            tensor.data_location = TensorProto.DEFAULT
        data = model.source.read(block.offset, block.length)
        tensor.MergeFromString(delimited(block.field, data))
    return whole


def save_outside(model: onnx.ModelProto, path: Path, location: str = "side.data") -> None:
    """Save with all weights in a side file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save(copy, path, save_as_external_data=True, location=location, size_threshold=0)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_huge_model(path: Path, size: int) -> None:
    """Write a model with `size` zeros inside, as a hole, and a small weight behind them."""
    zeros = TensorProto(name="zeros", data_type=TensorProto.UINT8, dims=[size])
    head = zeros.SerializeToString() + key(RAW_DATA, LENGTH) + varint(size)
    small = small_model(weight("w"))
    behind = delimited(5, small.graph.initializer.pop().SerializeToString())
    graph = small.graph.SerializeToString()
    small.ClearField("graph")
    tensor_head = key(5, LENGTH) + varint(len(head) + size)
    graph_size = len(graph) + len(tensor_head) + len(head) + size + len(behind)
    with path.open("wb") as file:
        file.write(small.SerializeToString() + key(7, LENGTH) + varint(graph_size) + graph)
        file.write(tensor_head + head)
        file.seek(size, os.SEEK_CUR)
        file.write(behind)
