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


def external(folder: Path, gigabytes: int) -> Path:
    """Write a Conv with BatchNorm beside weights in a sparse side file of so many gigabytes."""
    generator = np.random.default_rng(0)
    rows = (gigabytes << 30) // (4 * 1024)
    large = TensorProto(
        name="large",
        data_type=TensorProto.FLOAT,
        dims=[rows, 1024],
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", "large.data"), ("offset", 0), ("length", rows * 4096)):
        large.external_data.add(key=key, value=str(value))
    with (folder / "large.data").open("wb") as file:
        file.truncate(rows * 4096)
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
        "external",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
            helper.make_tensor_value_info("token", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, None),
        ],
        [large, numpy_helper.from_array(weight, "weight")]
        + [numpy_helper.from_array(values, name) for name, values in statistics.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "large.onnx"
    path.write_bytes(model.SerializeToString())
    return path
