"""Norms behind each kind of integer operator read its result before it is rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from normlint import Settings, apply, check

if TYPE_CHECKING:
    from pathlib import Path

    Array = np.ndarray[Any, Any]

STEP, ZERO = 0.037, 128
MICROSOFT = "com.microsoft"
SHAPES: dict[str, list[int]] = {
    "QLinearMatMul": [2, 3, 8],
    "QGemm": [4, 8],
    "QLinearConv": [2, 3, 6, 6],
    "QLinearAveragePool": [2, 3, 6, 6],
    "QLinearGlobalAveragePool": [2, 3, 6, 6],
    "QLinearConcat": [2, 3, 8],
    "QLinearAdd": [2, 3, 8],
    "QLinearMul": [2, 3, 8],
    "QLinearSigmoid": [2, 3, 8],
    "QLinearLeakyRelu": [2, 3, 8],
}
KEEPS_INTEGERS = {
    "QLinearMatMul": "MatMulInteger",
    "QGemm": "MatMulInteger",
    "QLinearConv": "ConvInteger",
}


def model(op: str, *, biased: bool = True, tap: bool = False) -> onnx.ModelProto:
    """Give x in integers → the operator → DequantizeLinear → a norm."""
    random = np.random.default_rng(2)
    shape = SHAPES[op]
    channels = 5 if op == "QLinearConv" else 8
    kernels = (5, 3, 3, 3) if op == "QLinearConv" else (8, 8)
    weights: dict[str, Array] = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "ys": np.array(STEP, np.float32),
        "yz": np.array(ZERO, np.uint8),
        "ws": random.uniform(0.005, 0.02, channels).astype(np.float32),
        "wz": np.zeros(channels, np.int8),
        "b": random.integers(-2000, 2000, channels).astype(np.int32),
        "w": random.integers(-99, 99, kernels).astype(np.int8),
    }
    grid, result, weight = ["x", "xs", "xz"], ["ys", "yz"], ["w", "ws", "wz"]
    attrs: dict[str, Any] = {}
    if op in {"QLinearMatMul", "QLinearConv"}:
        inputs = [*grid, *weight, *result, *(["b"] if op == "QLinearConv" and biased else [])]
        attrs = {"pads": [1, 1, 1, 1]} if op == "QLinearConv" else {}
    elif op == "QGemm":
        inputs = [*grid, *weight, "b" if biased else "", *result]
        attrs = {"transB": 1}
    elif op == "QLinearConcat":
        inputs, attrs = [*result, *grid, *grid], {"axis": -1}
    else:
        inputs = [*grid, *(grid if op in {"QLinearAdd", "QLinearMul"} else []), *result]
        attrs = {"kernel_shape": [2, 2], "strides": [2, 2]} if "AveragePool" in op else {}
        attrs = {"alpha": 0.1} if op == "QLinearLeakyRelu" else attrs
        attrs = {} if "Global" in op else attrs
    standard = op in {"QLinearMatMul", "QLinearConv"}
    nodes = [
        helper.make_node(op, inputs, ["q"], domain="" if standard else MICROSOFT, **attrs),
        helper.make_node("DequantizeLinear", ["q", *result], ["d"]),
        helper.make_node("MeanVarianceNormalization", ["d"], ["y"], axes=[0, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    if tap:
        graph.output.append(helper.make_tensor_value_info("q", TensorProto.UINT8, None))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(of: onnx.ModelProto, name: str, x: Array) -> Array:
    """Give the value of a tensor."""
    shown = onnx.ModelProto.FromString(of.SerializeToString())
    if name not in {value.name for value in shown.graph.output}:
        shown.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run([name], {"x": x})[0])


def lifted(before: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    target = folder / "lifted.onnx"
    apply(before, target, select=["NL401"], settings=Settings(unsafe_fixes=True))
    return onnx.load(target)


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("op", SHAPES)
def test_what_it_reads_is_the_result_before_rounding(
    op: str, tmp_path: Path, *, biased: bool
) -> None:
    before = model(op, biased=biased)
    x = np.random.default_rng(3).integers(60, 200, SHAPES[op]).astype(np.uint8)

    after = lifted(before, tmp_path)

    ops = [node.op_type for node in after.graph.node]
    assert op not in ops
    assert KEEPS_INTEGERS.get(op, ops[0]) in ops
    exact = run(after, after.graph.node[-1].input[0], x).astype(np.float64)
    rounded = np.clip(np.rint(exact / STEP) + ZERO, 0, 255)
    wrong = np.abs(rounded - run(before, "q", x).astype(np.float64))
    assert wrong.max() <= 1, "one, where it lies in the middle"
    assert (wrong > 0).mean() < 0.05
    assert np.unique(np.abs(exact / STEP - np.rint(exact / STEP)) > 0.02).any(), "it is not rounded"
    assert check(after, select=["NL401"]).models[0].findings == ()


@pytest.mark.parametrize("op", KEEPS_INTEGERS)
def test_a_product_is_not_computed_twice(op: str) -> None:
    (finding,) = check(model(op, tap=True), select=["NL401"]).models[0].findings

    assert finding.not_fixed is not None
    assert finding.not_fixed.reason == "quantized-between"


@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_types_and_shapes_are_followed_through_a_resize(tmp_path: Path, by: str) -> None:
    before = model("QLinearConv")
    graph = before.graph
    grid = ["xs", "xz"]
    scales, sizes = np.array([1, 1, 2, 2], np.float32), np.array([2, 3, 6, 6])
    graph.initializer.append(numpy_helper.from_array(scales if by == "scales" else sizes, by))
    resized = ["sum", "", "scales"] if by == "scales" else ["sum", "", "", "sizes"]
    added = ["x", *grid, "x", *grid, *grid]
    graph.node.insert(0, helper.make_node("QLinearAdd", added, ["sum"], domain=MICROSOFT))
    graph.node.insert(1, helper.make_node("Resize", resized, ["large"], mode="nearest"))
    graph.node[2].input[0] = "large"
    shape = [2, 3, 3, 3]
    graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.UINT8, shape))

    after = lifted(before, tmp_path)

    assert "ConvInteger" in [node.op_type for node in after.graph.node]
    assert lifted(after, tmp_path).SerializeToString() == after.SerializeToString()
