"""Weights behind a DequantizeLinear: the factor goes into the scale, the integers stay."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from folding import assert_same, ops, reason_of, repaired
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path

MADE = 4
WEIGHTS = {
    "Conv": (MADE, 3, 2, 2),
    "ConvTranspose": (3, MADE, 2, 2),
    "Gemm": (3, MADE),
    "GemmT": (MADE, 3),
    "MatMul": (3, MADE),
    "Transposed": (MADE, 3),
}
AXES = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "GemmT": 0, "MatMul": 1, "Transposed": 0}


def quantised(
    kind: str,
    integers: np.ndarray,
    scale: np.ndarray,
    *,
    zero: int | None = None,
    factors: tuple[float, ...] = (1.5, -2.0, 0.5, 1.0),
    opset: int = 17,
) -> onnx.ModelProto:
    """Build DequantizeLinear, a linear operator and a BatchNorm."""
    random = np.random.default_rng(2)
    tensors = {"q": integers, "k": scale.astype(np.float32)}
    inputs = ["q", "k"]
    if zero is not None:
        tensors["z"] = np.full(scale.shape, zero, integers.dtype)
        inputs.append("z")
    attrs = {"axis": AXES[kind]} if scale.ndim else {}
    nodes = [helper.make_node("DequantizeLinear", inputs, ["w"], **attrs)]
    if kind == "Transposed":
        nodes.append(helper.make_node("Transpose", ["w"], ["wt"]))
        nodes.append(helper.make_node("MatMul", ["x", "wt"], ["c"]))
    elif kind == "GemmT":
        nodes.append(helper.make_node("Gemm", ["x", "w"], ["c"], transB=1))
    else:
        nodes.append(helper.make_node(kind, ["x", "w"], ["c"]))
    tensors["s"] = np.array(factors, np.float32)
    tensors["b"], tensors["m"] = (random.standard_normal(MADE).astype(np.float32) for _ in "bm")
    tensors["v"] = random.uniform(0.5, 2, MADE).astype(np.float32)
    nodes.append(helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]))
    shape = [2, 3, 5, 5] if integers.ndim == 4 else [2, 3]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def integers_of(model: onnx.ModelProto) -> np.ndarray:
    name = next(n.input[0] for n in model.graph.node if n.op_type == "DequantizeLinear")
    return next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(list(WEIGHTS)),
    dtype=st.sampled_from((np.int8, np.uint8)),
    per_channel=st.booleans(),
    zero=st.sampled_from((None, 0, 5, 100)),
    factors=st.tuples(*[st.sampled_from((0.0, 0.5, 1.5, -2.0, -0.25))] * MADE),
    seed=st.integers(0, 1 << 16),
)
def test_it_computes_the_same(
    *,
    kind: str,
    dtype: type,
    per_channel: bool,
    zero: int | None,
    factors: tuple[float, ...],
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    integers = random.integers(limits.min, limits.max, WEIGHTS[kind], endpoint=True).astype(dtype)
    scale = random.uniform(0.01, 0.05, MADE if per_channel else ())
    before = quantised(kind, integers, np.asarray(scale), zero=zero, factors=factors)

    report, after = repaired(before)

    assert_same(before, after)
    assert "DequantizeLinear" in ops(after)
    if "BatchNormalization" in ops(after):
        assert [reason_of(finding) for finding in report.findings] == ["would-overflow"]
        assert (integers == limits.min).any()
    if min(factors) > 0:
        assert (integers_of(after) == integers).all()


@pytest.mark.parametrize("kind", list(WEIGHTS))
def test_the_integers_keep_their_bytes(kind: str) -> None:
    integers = np.arange(-24, -24 + int(np.prod(WEIGHTS[kind]))).reshape(WEIGHTS[kind])
    before = quantised(
        kind, integers.astype(np.int8), np.asarray(0.1), factors=(1.0, 2.0, 0.5, 3.0)
    )

    report, after = repaired(before, verify="region")

    assert [finding.code for finding in report.findings] == ["NL104"]
    assert "q" in {tensor.name for tensor in after.graph.initializer}
    assert (integers_of(after) == integers).all()


def test_the_least_integer_has_no_opposite() -> None:
    integers = np.full(WEIGHTS["Conv"], -128, np.int8)
    before = quantised("Conv", integers, np.asarray(0.1))

    report, after = repaired(before)

    assert [reason_of(finding) for finding in report.findings] == ["would-overflow"]
    assert "BatchNormalization" in ops(after)
    mirrored = quantised("Conv", integers, np.asarray(0.1), zero=3)
    assert "BatchNormalization" not in ops(repaired(mirrored)[1])


def test_one_scale_is_all_there_is_before_opset_13() -> None:
    integers = np.ones(WEIGHTS["Conv"], np.int8)

    report, _ = repaired(quantised("Conv", integers, np.asarray(0.1), zero=0, opset=11))

    assert [reason_of(finding) for finding in report.findings] == ["opset"]


def test_a_scale_along_another_axis_stays() -> None:
    integers = np.ones((3, MADE), np.int8)
    before = quantised("MatMul", integers, np.array([0.1, 0.2, 0.3]))
    before.graph.node[0].attribute[0].i = 0

    report, after = repaired(before)

    assert [reason_of(finding) for finding in report.findings] == ["channel-axis-moved"]
    assert_same(before, after)


def test_a_quantised_weight_takes_nothing_from_in_front() -> None:
    integers = np.ones(WEIGHTS["Conv"], np.int8)
    before = quantised("Conv", integers, np.asarray(0.1))
    graph = before.graph
    dequantize, conv, norm = graph.node
    norm.input[0], norm.output[0], conv.input[0], conv.output[0] = "x", "n", "n", "y"
    for name, tensor in itertools.product("sbmv", graph.initializer):
        if tensor.name == name:
            values = numpy_helper.to_array(tensor)[:3]
            tensor.CopyFrom(numpy_helper.from_array(values, name))
    nodes = [dequantize, norm, conv]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)

    report, after = repaired(before)

    assert [reason_of(finding) for finding in report.findings] == ["quantized-between"]
    assert_same(before, after)


def test_blocks_of_a_weight_have_scales_of_their_own() -> None:
    random = np.random.default_rng(8)
    integers = random.integers(-100, 100, (8, MADE)).astype(np.int8)
    tensors = {"q": integers, "k": random.uniform(0.01, 0.05, (4, MADE)).astype(np.float32)}
    for name in "sbm":
        tensors[name] = random.standard_normal(MADE).astype(np.float32)
    tensors["v"] = random.uniform(0.5, 2, MADE).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "k"], ["w"], axis=0, block_size=2),
        helper.make_node("MatMul", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, MADE])],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    _, after = repaired(before)

    assert ops(after) == ["DequantizeLinear", "MatMul", "Add"]
    assert_same(before, after)


@pytest.mark.parametrize("alike", [True, False])
def test_groups_of_a_transposed_convolution_share_their_scales(alike: bool) -> None:
    random = np.random.default_rng(8)
    scale = [1.5, -2.0, 1.5, -2.0] if alike else [1.5, -2.0, 1.0, 3.0]
    tensors = {
        "q": random.integers(-100, 100, (4, 2, 2, 2)).astype(np.int8),
        "k": np.float32(0.02),
        "s": np.array(scale, np.float32),
        "b": random.standard_normal(MADE).astype(np.float32),
        "m": random.standard_normal(MADE).astype(np.float32),
        "v": np.full(MADE, 0.5, np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "k"], ["w"]),
        helper.make_node("ConvTranspose", ["x", "w"], ["c"], group=2),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 3, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, MADE, 4, 4])],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in tensors.items()],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    report, after = repaired(before)

    assert ("BatchNormalization" not in ops(after)) is alike
    assert {reason_of(finding) for finding in report.findings} == ({""} if alike else {"broadcast"})
    assert_same(before, after)


def test_a_weight_made_of_a_quantised_one_stays_quantised() -> None:
    before = quantised("MatMul", np.ones((3, MADE), np.int8), np.asarray(0.1))
    shape = numpy_helper.from_array(np.array([3, MADE]), "shape")
    before.graph.initializer.append(shape)
    dequantize = before.graph.node[0]
    dequantize.output[0] = "w0"
    before.graph.node.insert(1, helper.make_node("Reshape", ["w0", "shape"], ["w"]))

    report, after = repaired(before)

    assert [reason_of(finding) for finding in report.findings] == ["quantized-between"]
    assert_same(before, after)


@pytest.mark.parametrize("biased", [True, False])
def test_the_convolution_stays_an_integer_kernel(tmp_path: Path, *, biased: bool) -> None:
    random = np.random.default_rng(3)
    scale = random.uniform(0.01, 0.02, MADE).astype(np.float32)
    tensors = {
        "xs": np.float32(0.02),
        "xz": np.int8(0),
        "w": random.integers(-127, 127, (MADE, 3, 2, 2)).astype(np.int8),
        "ws": scale,
        "bq": random.integers(-3000, 3000, MADE).astype(np.int32),
        "bs": scale * np.float32(0.02),
        "ys": np.float32(0.5),
        **{name: random.uniform(0.5, 2, MADE).astype(np.float32) for name in "sbmv"},
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["bq", "bs"], ["bd"], axis=0),
        helper.make_node("Conv", ["xd", "wd", *(["bd"] if biased else [])], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("QuantizeLinear", ["n", "ys", "xz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "xz"], ["y"]),
    ]
    if not biased:
        nodes.pop(3)
        del tensors["bq"], tensors["bs"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, MADE, 4, 4])],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in tensors.items()],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    _, after = repaired(before, verify="region")

    assert "BatchNormalization" not in ops(after)
    assert_same(before, after)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(
        after.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    assert "QLinearConv" in ops(onnx.load(tmp_path / "optimised.onnx"))
