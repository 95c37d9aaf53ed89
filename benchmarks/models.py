"""Models to measure on, made up so that nodes and weights can be chosen apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path

NODES_A_BLOCK = 12
_WIDTH = 16
_ROW = 4096
"""Bytes of a row of the large weight."""
_GRAPH, _INITIALIZER, _RAW_DATA = b"\x3a", b"\x2a", b"\x4a"
"""What stands in front of these fields: numbers 7, 5 and 9, each of a known length."""


def decomposed_stack(nodes: int) -> onnx.ModelProto:
    """Give a Pre-LN residual stack whose LayerNorms are spelled out in nine nodes each."""
    generator = np.random.default_rng(0)
    made: list[onnx.NodeProto] = []
    weights = [
        numpy_helper.from_array(np.float32(2), "two"),
        numpy_helper.from_array(np.float32(1e-5), "epsilon"),
    ]
    x = "x"
    for index in range(nodes // NODES_A_BLOCK):
        prefix = f"/layers.{index}"
        for name, shape in (
            ("weight", (_WIDTH, _WIDTH)),
            ("scale", (_WIDTH,)),
            ("bias", (_WIDTH,)),
        ):
            values = generator.standard_normal(shape).astype(np.float32)
            weights.append(numpy_helper.from_array(values, f"{prefix}/{name}"))
        x = _block(made, prefix, x)
    shape = ["batch", "tokens", _WIDTH]
    graph = helper.make_graph(
        made,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _block(made: list[onnx.NodeProto], prefix: str, x: str) -> str:
    def add(op: str, *inputs: str, **attributes: object) -> str:
        output = f"{prefix}/{op}_{len(made)}"
        made.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    mean = add("ReduceMean", x, axes=[-1])
    difference = add("Sub", x, mean)
    variance = add("ReduceMean", add("Pow", difference, "two"), axes=[-1])
    root = add("Sqrt", add("Add", variance, "epsilon"))
    scaled = add("Mul", add("Div", difference, root), f"{prefix}/scale")
    product = add("MatMul", add("Add", scaled, f"{prefix}/bias"), f"{prefix}/weight")
    return add("Add", x, add("Relu", product))


def with_weights(nodes: int, megabytes: int) -> onnx.ModelProto:
    """Give the stack with one more MatMul, whose embedded weight has so many megabytes."""
    model = decomposed_stack(nodes)
    columns = max(megabytes * (1 << 20) // (4 * _WIDTH), 1)
    output = model.graph.output[0].name
    model.graph.initializer.append(
        numpy_helper.from_array(np.ones((_WIDTH, columns), np.float32), "large")
    )
    model.graph.node.append(helper.make_node("MatMul", [output, "large"], ["wide"], name="/wide"))
    model.graph.output[0].name = "wide"
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = columns
    return model


def external(path: Path, gigabytes: int) -> None:
    """Write a Conv with BatchNorm beside weights in a sparse side file of so many gigabytes."""
    rows = _rows(gigabytes)
    side = path.with_name("large.data")
    with side.open("wb") as file:
        file.truncate(rows * _ROW)
    large = TensorProto(
        name="large",
        data_type=TensorProto.FLOAT,
        dims=[rows, _ROW // 4],
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", side.name), ("offset", 0), ("length", rows * _ROW)):
        large.external_data.add(key=key, value=str(value))
    model = _conv_and_row()
    model.graph.initializer.append(large)
    path.write_bytes(model.SerializeToString())


def embedded(path: Path, gigabytes: int) -> None:
    """Write the same model with these weights inside, as a hole in the file.

    Protobuf writes no message above 2 GiB, so the lengths around the hole are put together here.
    """
    rows = _rows(gigabytes)
    large = TensorProto(name="large", data_type=TensorProto.FLOAT, dims=[rows, _ROW // 4])
    tensor = large.SerializeToString() + _RAW_DATA + _varint(rows * _ROW)
    held = _INITIALIZER + _varint(len(tensor) + rows * _ROW) + tensor
    model = _conv_and_row()
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    size = len(graph) + len(held) + rows * _ROW
    with path.open("wb") as file:
        file.write(model.SerializeToString() + _GRAPH + _varint(size) + graph + held)
        file.truncate(file.tell() + rows * _ROW)


def _rows(gigabytes: int) -> int:
    return (gigabytes << 30) // _ROW


def _varint(value: int) -> bytes:
    """Encode a number (https://protobuf.dev/programming-guides/encoding/#varints)."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _conv_and_row() -> onnx.ModelProto:
    """Return a Conv with BatchNorm, and a Gather from `large`, which is not there yet."""
    generator = np.random.default_rng(0)
    statistics = {
        name: np.abs(generator.standard_normal(8)).astype(np.float32) + np.float32(0.1)
        for name in ("scale", "bias", "mean", "variance")
    }
    weight = generator.standard_normal((8, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["large", "token"], ["row"]),
            helper.make_node("Conv", ["x", "weight"], ["c"], name="conv"),
            helper.make_node("BatchNormalization", ["c", *statistics], ["y"], name="norm"),
        ],
        "conv",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
            helper.make_tensor_value_info("token", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(weight, "weight")]
        + [numpy_helper.from_array(values, name) for name, values in statistics.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
