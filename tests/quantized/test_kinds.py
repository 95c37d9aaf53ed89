"""Each way to quantise linear operators: norms and sums in float stay unreported, others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from quantized.residual_mlp import BLOCKS, float_model, quantised
from quantized.test_regions import NORMS, STATIC, open_findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Array = np.ndarray[Any, Any]
    Linear = Callable[[onnx.GraphProto, onnx.NodeProto, Array], list[onnx.NodeProto]]

MICROSOFT, OPSET, BLOCK = "com.microsoft", 21, 16


def add(graph: onnx.GraphProto, values: Array | TensorProto, name: str) -> str:
    tensor = values if isinstance(values, TensorProto) else numpy_helper.from_array(values, name)
    graph.initializer.append(tensor)
    return name


def dequantized(dtype: int, **attrs: int) -> Linear:
    """Give what makes a weight integers with a DequantizeLinear behind them."""

    def linear(graph: onnx.GraphProto, node: onnx.NodeProto, weight: Array) -> list[onnx.NodeProto]:
        rows, columns = weight.shape
        shape = (rows // BLOCK, columns) if "block_size" in attrs else (columns,)
        name = node.output[0]
        ones = [1.0] * (rows * columns)
        integers = helper.make_tensor(f"{name}_w", dtype, (rows, columns), ones)
        scale = add(graph, np.full(shape, 0.01, np.float32), f"{name}_s")
        made = [add(graph, integers, f"{name}_w"), scale]
        return [
            helper.make_node("DequantizeLinear", made, [f"{name}_d"], **attrs),
            helper.make_node("MatMul", [node.input[0], f"{name}_d"], [name]),
        ]

    return linear


def n_bits(graph: onnx.GraphProto, node: onnx.NodeProto, weight: Array) -> list[onnx.NodeProto]:
    rows, columns = weight.shape
    name, blocks = node.output[0], rows // BLOCK
    packed = add(graph, np.full((columns, blocks, BLOCK // 2), 136, np.uint8), f"{name}_w")
    scales = add(graph, np.full(columns * blocks, 0.01, np.float32), f"{name}_s")
    attrs = {"K": rows, "N": columns, "bits": 4, "block_size": BLOCK}
    inputs = [node.input[0], packed, scales]
    return [helper.make_node("MatMulNBits", inputs, [name], domain=MICROSOFT, **attrs)]


def dynamic(graph: onnx.GraphProto, node: onnx.NodeProto, weight: Array) -> list[onnx.NodeProto]:
    name = node.output[0]
    inputs = [
        node.input[0],
        add(graph, np.ones(weight.shape, np.int8), f"{name}_w"),
        add(graph, np.array(0.01, np.float32), f"{name}_s"),
        add(graph, np.array(0, np.int8), f"{name}_z"),
    ]
    return [helper.make_node("DynamicQuantizeMatMul", inputs, [name], domain=MICROSOFT)]


def integer(graph: onnx.GraphProto, node: onnx.NodeProto, weight: Array) -> list[onnx.NodeProto]:
    x, name = node.input[0], node.output[0]
    w = add(graph, np.ones(weight.shape, np.int8), f"{name}_w")
    w_scale = add(graph, np.array(0.01, np.float32), f"{name}_s")
    parts = [f"{name}_{part}" for part in ("q", "step", "zero", "sum", "wide", "both")]
    q, step, zero, total, wide, both = parts
    return [
        helper.make_node("DynamicQuantizeLinear", [x], [q, step, zero]),
        helper.make_node("MatMulInteger", [q, w, zero], [total]),
        helper.make_node("Cast", [total], [wide], to=TensorProto.FLOAT),
        helper.make_node("Mul", [step, w_scale], [both]),
        helper.make_node("Mul", [wide, both], [name]),
    ]


LINEAR: dict[str, Linear] = {
    "MatMulNBits": n_bits,
    "DynamicQuantizeMatMul": dynamic,
    "MatMulInteger": integer,
    "int8 weights per channel": dequantized(TensorProto.INT8, axis=1),
    "int4 weights in blocks": dequantized(TensorProto.INT4, axis=0, block_size=BLOCK),
    "uint4 weights in blocks": dequantized(TensorProto.UINT4, axis=0, block_size=BLOCK),
    "float8 weights": dequantized(TensorProto.FLOAT8E4M3FN, axis=1),
}


def with_linear(model: onnx.ModelProto, linear: Linear) -> onnx.ModelProto:
    """Put another form of linear operator in the place of each MatMul."""
    graph = model.graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        made = linear(graph, node, weights[node.input[1]]) if node.op_type == "MatMul" else [node]
        nodes.extend(made)
    del graph.node[:]
    graph.node.extend(nodes)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    model.ir_version = 10
    return model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return path


@pytest.mark.parametrize("linear", LINEAR.values(), ids=LINEAR.keys())
def test_around_quantised_linear_operators_norms_are_in_float(
    tmp_path: Path, linear: Linear
) -> None:
    path = saved(with_linear(float_model(opset=OPSET), linear), tmp_path)

    assert open_findings(path) == {}


@pytest.mark.parametrize("linear", LINEAR.values(), ids=LINEAR.keys())
def test_beside_quantised_linear_operators_rounded_norms_are_found(
    tmp_path: Path, linear: Linear
) -> None:
    kinds = {"op_types_to_quantize": ["Add", "LayerNormalization"]}
    made = quantised(tmp_path, float_model(opset=OPSET), **STATIC["int8"], **kinds)

    found = open_findings(saved(with_linear(onnx.load(made), linear), tmp_path))

    assert found["NL401"] == NORMS
    assert found["NL403"] == BLOCKS


@pytest.mark.parametrize("form", ["int8", "integer operators", "per channel"])
def test_a_region_ends_where_it_ends(tmp_path: Path, form: str) -> None:
    model = float_model()
    names = [node.name for node in model.graph.node]
    last = names.index([n.name for n in model.graph.node if n.op_type == "Relu"][1])
    path = quantised(tmp_path, model, nodes_to_exclude=names[last + 1 :], **STATIC[form])

    found = open_findings(path)

    assert found["NL401"] == 2, "those of two blocks, of which the second ends in float"
    assert found["NL403"] == 2, "the second sum is in float, and reads the first one rounded"


def test_products_of_the_runtime_are_seen_through(tmp_path: Path) -> None:
    source, target = tmp_path / "float.onnx", tmp_path / "dynamic.onnx"
    onnx.save(float_model(), source)
    quantization.quantize_dynamic(source, target)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.graph_optimization_level = level
    onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])

    ops = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert "DynamicQuantizeMatMul" in ops
    assert open_findings(tmp_path / "optimised.onnx") == {}


@pytest.mark.parametrize("rounds", [False, True], ids=["float around", "rounded sum"])
def test_around_an_attention_in_integers(tmp_path: Path, *, rounds: bool) -> None:
    width = 32
    weights: dict[str, Array] = {
        "s": np.array(0.05, np.float32),
        "z": np.array(128, np.uint8),
        "wz": np.array(0, np.int8),
        "w": np.ones((width, 3 * width), np.int8),
        "b": np.zeros(3 * width, np.float32),
        "g": np.ones(width, np.float32),
    }
    pair = [
        helper.make_node("QuantizeLinear", ["sum", "s", "z"], ["sum_q"]),
        helper.make_node("DequantizeLinear", ["sum_q", "s", "z"], ["sum_d"]),
    ]
    inputs = ["n_q", "w", "b", "s", "s", "", "z", "wz"]
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g"], ["n"]),
        helper.make_node("QuantizeLinear", ["n", "s", "z"], ["n_q"]),
        helper.make_node("QAttention", inputs, ["a"], domain=MICROSOFT, num_heads=4),
        helper.make_node("Add", ["x", "a"], ["sum"]),
        *(pair if rounds else []),
        helper.make_node("LayerNormalization", ["sum_d" if rounds else "sum", "g"], ["y"]),
    ]
    shape = [1, 8, width]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    path = saved(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path)

    assert open_findings(path) == ({"NL401": 1} if rounds else {})
