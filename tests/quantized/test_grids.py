"""The grids of every type, of one scale and of many, and what is done with pairs alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from normlint import Settings, apply, check

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.results import Finding

WIDTH = 8
TYPES = {
    TensorProto.INT8: (8, 0.5, 0.5 * 255),
    TensorProto.UINT8: (8, 0.5, 0.5 * 255),
    TensorProto.INT16: (16, 0.5, 0.5 * 65535),
    TensorProto.INT4: (4, 0.5, 0.5 * 15),
    TensorProto.UINT4: (4, 0.5, 0.5 * 15),
    TensorProto.FLOAT8E4M3FN: (8, 16.0, 448.0),
    TensorProto.FLOAT8E5M2: (8, 4096.0, 57344.0),
}


def model(dtype: int, scale: np.ndarray, **attrs: Any) -> onnx.ModelProto:
    """Give a LayerNorm between pairs, with a linear operator behind."""
    zero = helper.make_tensor("zero", dtype, scale.shape, [0.0] * max(scale.size, 1))
    weights = {"scale": scale.astype(np.float32), "gamma": np.ones(WIDTH, np.float32)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attrs),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], **attrs),
        helper.make_node("LayerNormalization", ["d", "gamma"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "grids",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, WIDTH])],
        [zero, *(numpy_helper.from_array(values, name) for name, values in weights.items())],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def only(of: onnx.ModelProto) -> Finding:
    (finding,) = check(of, select=["NL401"]).models[0].findings
    return finding


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: TensorProto.DataType.Name(t).lower())
def test_grids_of_all_types(dtype: int) -> None:
    bits, step, span = TYPES[dtype]

    finding = only(model(dtype, np.array(0.5)))

    grid = finding.evidence["input"]
    assert grid["bits"] == bits
    assert grid["step"] == pytest.approx(step)
    assert grid["range"] == pytest.approx(span)
    assert finding.severity == ("info" if bits > 8 else "warning")


@pytest.mark.parametrize("attrs", [{"axis": 1}, {"axis": 1, "block_size": 4}])
def test_the_coarsest_of_many_scales_counts(attrs: dict[str, int]) -> None:
    blocks = WIDTH // attrs.get("block_size", 1)
    shape = (4, blocks) if "block_size" in attrs else (blocks,)
    scale = np.full(shape, 0.1)
    scale[..., -1] = 0.4

    grid = only(model(TensorProto.INT8, scale, **attrs)).evidence["input"]

    assert grid["step"] == pytest.approx(0.4)
    assert grid["axis"] == 1


def test_the_error_follows_the_formula() -> None:
    finding = only(model(TensorProto.INT8, np.array(0.5)))

    by_peak = finding.evidence["error_by_peak_over_deviation"]
    for peak, error in by_peak.items():
        assert error == pytest.approx(2 * int(peak) / 255 / math.sqrt(12), rel=1e-4)
    assert by_peak["12"] == pytest.approx(0.028, rel=5e-2)


def test_equal_pairs_behind_a_norm_become_one(tmp_path: Path) -> None:
    before = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        qkv (float[2,8] x) => (float[2,2] a, float[2,2] b, float[2,2] c)
        <float s = {0.05}, float t = {0.07}, int8 z = {0}, float[8] g = {1,1,1,1,1,1,1,1},
         float[8,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            n = LayerNormalization(d, g)
            q1 = QuantizeLinear(n, s, z)
            d1 = DequantizeLinear(q1, s, z)
            q2 = QuantizeLinear(n, s, z)
            d2 = DequantizeLinear(q2, s, z)
            q3 = QuantizeLinear(n, t, z)
            d3 = DequantizeLinear(q3, t, z)
            a = MatMul(d1, w)
            b = MatMul(d2, w)
            c = MatMul(d3, w)
        }
        """
    )
    target = tmp_path / "repaired.onnx"

    apply(before, target, select=["NL401"], settings=Settings(unsafe_fixes=True))

    ops = [node.op_type for node in onnx.load(target).graph.node]
    assert ops.count("QuantizeLinear") == 2
    assert ops.count("DequantizeLinear") == 3
