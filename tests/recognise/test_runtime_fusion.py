"""Each claim about a runtime's fusion is run on that runtime, and so is each silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

from normlint.context.constants import Constants
from normlint.graph import build_graph
from normlint.recognise.runtime_fusion import misfusions

LAYER_NORM = {
    "mean": "mean = ReduceMean<axes = [-1]>(x)",
    "centred": "centred = Sub(x, mean)",
    "square": "square = Pow(centred, two)",
    "variance": "variance = ReduceMean<axes = [-1]>(square)",
    "shifted": "shifted = Add(variance, epsilon)",
    "root": "root = Sqrt(shifted)",
    "quotient": "quotient = Div(centred, root)",
    "scaled": "scaled = Mul(quotient, scale)",
    "y": "y = Add(scaled, bias)",
}
RMS_NORM = {
    "square": "square = Pow(x, two)",
    "variance": "variance = ReduceMean<axes = [-1]>(square)",
    "shifted": "shifted = Add(variance, epsilon)",
    "root": "root = Sqrt(shifted)",
    "quotient": "quotient = Div(x, root)",
    "y": "y = Mul(quotient, scale)",
}
UNKEPT = {
    "mean": "mean = ReduceMean<axes = [-1], keepdims = 0>(x)",
    "variance": "variance = ReduceMean<axes = [-1], keepdims = 0>(square)",
}
HALF = {
    "mean": "wide = Cast<to = 1>(x) mean = ReduceMean<axes = [-1]>(wide)",
    "centred": "centred = Sub(wide, mean)",
    "y": "sum = Add(scaled, bias) y = Cast<to = 10>(sum)",
}


def model(
    base: dict[str, str],
    changes: dict[str, str],
    shape: tuple[int, ...] = (4, 8),
    *,
    out: tuple[int, ...] | None = None,
    two: float = 2.0,
    dtype: str = "float",
) -> onnx.ModelProto:
    steps = {**base, **changes}
    width = (out or shape)[-1]
    values = ",".join(str(1 + 0.5 * k) for k in range(width))
    extents, result = (",".join(map(str, s)) for s in (shape, out or shape))
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g ({dtype}[{extents}] x) => ({dtype}[{result}] y)
        <float two = {{{two}}}, float one = {{1}}, float epsilon = {{1e-5}},
         float[{width}] scale = {{{values}}}, float[{width}] bias = {{{values}}}> {{
            {" ".join(steps.values())}
        }}
    """)


WITHOUT_BIAS = {key: step for key, step in LAYER_NORM.items() if key != "y"}
CASES = {
    "no bias": (model(WITHOUT_BIAS, {"scaled": "y = Mul(quotient, scale)"}), None),
    "no bias, unkept axes": (
        model(WITHOUT_BIAS, {**UNKEPT, "scaled": "y = Mul(quotient, scale)"}, shape=(8, 8)),
        "keepdims",
    ),
    "no bias, unkept mean": (
        model(
            WITHOUT_BIAS,
            {"mean": UNKEPT["mean"], "scaled": "y = Mul(quotient, scale)"},
            shape=(8, 8),
        ),
        None,
    ),
    "no bias, mean minus value": (
        model(
            WITHOUT_BIAS,
            {"centred": "centred = Sub(mean, x)", "scaled": "y = Mul(quotient, scale)"},
        ),
        None,
    ),
    "no bias, long scale": (
        model(WITHOUT_BIAS, {"scaled": "y = Mul(quotient, scale)"}, shape=(4, 1), out=(4, 8)),
        "broadcast",
    ),
    "no scale": (
        model(WITHOUT_BIAS, {"quotient": "y = Div(centred, root)", "scaled": ""}, two=4.0),
        None,
    ),
    "plain": (model(LAYER_NORM, {}), None),
    "commuted": (model(LAYER_NORM, {"scaled": "scaled = Mul(scale, quotient)"}), None),
    "fourth power": (model(LAYER_NORM, {}, two=4.0), "exponent"),
    "mean minus value": (
        model(LAYER_NORM, {"centred": "centred = Sub(mean, x)"}),
        "operand-order",
    ),
    "root over value": (
        model(LAYER_NORM, {"quotient": "quotient = Div(root, centred)"}),
        "operand-order",
    ),
    "unkept axes": (model(LAYER_NORM, UNKEPT, shape=(8, 8)), "keepdims"),
    "unkept axes, rank 3": (model(LAYER_NORM, UNKEPT, shape=(8, 8, 8)), "keepdims"),
    "unkept axes, rank 1": (model(LAYER_NORM, UNKEPT, shape=(8,)), None),
    "long scale": (model(LAYER_NORM, {}, shape=(4, 1), out=(4, 8)), "broadcast"),
    "rank 1": (model(LAYER_NORM, {}, shape=(8,)), None),
    "rank 1, scale left": (
        model(LAYER_NORM, {"scaled": "scaled = Mul(scale, quotient)"}, shape=(8,)),
        "rank",
    ),
    "rank 1, bias left": (
        model(LAYER_NORM, {"y": "y = Add(bias, scaled)"}, shape=(8,)),
        "rank",
    ),
    "float scale behind a Cast": (model(LAYER_NORM, HALF, dtype="float16"), "types"),
    "a Mul for the square": (
        model(LAYER_NORM, {"square": "square = Mul(centred, centred)", **UNKEPT}, shape=(8, 8)),
        None,
    ),
    "rms": (model(RMS_NORM, {}), None),
    "rms, fourth power": (model(RMS_NORM, {}, two=4.0), None),
    "rms, reciprocal": (
        model(RMS_NORM, {"quotient": "inverse = Div(one, root) quotient = Mul(x, inverse)"}),
        None,
    ),
    "rms, root over value": (model(RMS_NORM, {"quotient": "quotient = Div(root, x)"}), None),
    "rms, unkept axes": (
        model(RMS_NORM, {"variance": UNKEPT["variance"]}, shape=(8, 8)),
        "keepdims",
    ),
    "rms, long scale": (model(RMS_NORM, {}, shape=(4, 1), out=(4, 8)), "broadcast"),
    "rms, rank 1, scale left": (
        model(RMS_NORM, {"y": "y = Mul(scale, quotient)"}, shape=(8,)),
        "rank",
    ),
}


def found(proto: onnx.ModelProto) -> list[str]:
    graph = build_graph(proto, numpy_helper.to_array)
    return [fault.reason for fault in misfusions(graph, Constants(graph))]


def session(proto: onnx.ModelProto, level: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def inputs(proto: onnx.ModelProto) -> dict[str, Any]:
    (x,) = proto.graph.input
    shape = [extent.dim_value for extent in x.type.tensor_type.shape.dim]
    values = np.random.default_rng(3).standard_normal(shape) * 2 + 1
    return {"x": values.astype(helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type))}


def is_misfused(proto: onnx.ModelProto) -> bool:
    """Whether the optimised model gives other numbers, or none at all."""
    level = onnxruntime.GraphOptimizationLevel
    feed = inputs(proto)
    (expected,) = session(proto, level.ORT_DISABLE_ALL).run(None, feed)
    try:
        (got,) = session(proto, level.ORT_ENABLE_ALL).run(None, feed)
    except Exception:  # noqa: BLE001 - the runtime's exceptions have no common class
        return True
    return not np.allclose(expected, got, atol=1e-2)


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_fusion_is_what_the_runtime_does(name: str) -> None:
    proto, reason = CASES[name]
    assert found(proto) == ([] if reason is None else [reason])
    assert is_misfused(proto) == (reason is not None)


def test_the_optimiser_for_transformers_ignores_the_axis() -> None:
    from onnxruntime.transformers import fusion_layernorm as fusion
    from onnxruntime.transformers.onnx_model import OnnxModel

    proto = model(
        LAYER_NORM,
        {
            "mean": "mean = ReduceMean<axes = [0]>(x)",
            "variance": "variance = ReduceMean<axes = [0]>(square)",
        },
        shape=(8, 8),
    )
    assert found(proto) == ["axes"]
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feed = inputs(proto)
    (expected,) = session(proto, level).run(None, feed)
    wrapped = OnnxModel(proto)
    fusion.FusionLayerNormalization(wrapped).apply()
    wrapped.prune_graph()
    assert [node.op_type for node in wrapped.model.graph.node] == ["LayerNormalization"]
    (got,) = session(wrapped.model, level).run(None, feed)
    assert np.abs(expected - got).max() > 0.1
