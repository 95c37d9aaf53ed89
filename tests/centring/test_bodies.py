"""Streams within the bodies of If, Loop and Scan, and streams that such a body reads from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from centring.repairing import distance, repaired
from centring.test_kinds import convertible
from onnx import numpy_helper, parser

EXACT = 1e-7
SHAPES = {
    "table": (9, 6),
    "scale": (6,),
    "bias": (6,),
    "down": (5, 6),
    "up": (6, 5),
    "up_bias": (5,),
    "square": (6, 6),
}
BLOCK = """
    n1 = LayerNormalization<epsilon = 1e-3>(t, scale, bias)
    u1 = MatMul(n1, up) v1 = Add(u1, up_bias) a1 = Relu(v1) d1 = MatMul(a1, down) s1 = Add(t, d1)
    n2 = LayerNormalization<epsilon = 1e-3>(s1, scale, bias)
    u2 = MatMul(n2, up) v2 = Add(u2, up_bias)
"""
"""Two norms read a stream that begins at t; v2 is the result."""

KINDS: dict[str, tuple[str, tuple[int, int, int]]] = {
    "a branch that holds the whole stream": (
        f"""(bool c, int64[2,4] tokens) => (double[2,4,5] y) {{
            y = If(c) <
                then_branch = first () => (double[2,4,5] v2) {{
                    t = Gather(table, tokens) {BLOCK}
                }},
                else_branch = second () => (double[2,4,5] z) {{
                    one = Gather(table, tokens) z = MatMul(one, up)
                }}>
        }}""",
        (2, 2, 0),
    ),
    "a branch that reads the stream of the graph around it": (
        f"""(bool c, int64[2,4] tokens) => (double[2,4,5] v2, double[2,4,6] y) {{
            t = Gather(table, tokens) {BLOCK}
            y = If(c) <
                then_branch = first () => (double[2,4,6] i) {{ i = Relu(s1) }},
                else_branch = second () => (double[2,4,6] j) {{ j = Neg(s1) }}>
        }}""",
        (0, 2, 0),
    ),
    "a branch that continues the stream": (
        f"""(bool c, int64[2,4] tokens) => (double[2,4,5] y) {{
            t0 = Gather(table, tokens)
            y = If(c) <
                then_branch = first () => (double[2,4,5] v2) {{ t = Identity(t0) {BLOCK} }},
                else_branch = second () => (double[2,4,5] z) {{ z = MatMul(t0, up) }}>
        }}""",
        (2, 2, 1),
    ),
    "a loop whose body writes and reads a stream of its own": (
        f"""(int64 m, double[2,4,6] x) => (double[2,4,6] last) {{
            yes = Constant<value = bool {{1}}>()
            last = Loop(m, yes, x) <
                body = turn (int64 i, bool k, double[2,4,6] state)
                    => (bool kk, double[2,4,6] after) {{
                    kk = Identity(k) t = MatMul(state, square) {BLOCK} after = MatMul(v2, down)
                }}>
        }}""",
        (2, 2, 0),
    ),
    "a loop that hands its stream on": (
        f"""(int64 m, double[2,4,6] x) => (double[2,4,6] last) {{
            yes = Constant<value = bool {{1}}>()
            last = Loop(m, yes, x) <
                body = turn (int64 i, bool k, double[2,4,6] t)
                    => (bool kk, double[2,4,6] after) {{
                    kk = Identity(k) {BLOCK} d2 = MatMul(v2, down) after = Add(s1, d2)
                }}>
        }}""",
        (0, 2, 0),
    ),
    "a scan over tokens": (
        f"""(double[4,2,6] x) => (double[4,2,5] y) {{
            y = Scan(x) <num_scan_inputs = 1, body = turn (double[2,6] token)
                    => (double[2,5] v2) {{ t = MatMul(token, square) {BLOCK} }}>
        }}""",
        (2, 2, 0),
    ),
}


def model(text: str) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> bodies {text}')
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        values = random.normal(0.4, 1, shape)
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    return onnx.shape_inference.infer_shapes(made)


def outputs(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return [np.asarray(result) for result in session.run(None, feeds)]


def feeds_of(proto: onnx.ModelProto, *, condition: bool) -> dict[str, Any]:
    random = np.random.default_rng(1)
    drawn: dict[str, Any] = {
        "c": np.asarray(condition),
        "m": np.asarray(3, np.int64),
        "tokens": random.integers(0, 9, (2, 4)),
    }
    for value in proto.graph.input:
        if value.name == "x":
            shape = [extent.dim_value for extent in value.type.tensor_type.shape.dim]
            drawn["x"] = random.normal(5, 1, shape)
    return {value.name: drawn[value.name] for value in proto.graph.input}


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_are_graphs_of_their_own(kind: str) -> None:
    text, expected = KINDS[kind]
    before = model(text)
    assert convertible(before) == expected
    result = repaired(before)
    for condition in (True, False):
        feeds = feeds_of(before, condition=condition)
        pairs = zip(outputs(before, feeds), outputs(result.proto, feeds), strict=True)
        assert max(distance(old, new) for old, new in pairs) < EXACT
    assert ops(result.proto.graph).count("RMSNormalization") == expected[0]
    assert not repaired(result.proto).fixed
    onnx.checker.check_model(result.proto, full_check=True)


def ops(graph: onnx.GraphProto) -> list[str]:
    """Give the operators of a graph and of its bodies."""
    found = []
    for node in graph.node:
        found.append(node.op_type)
        found += [op for a in node.attribute if a.HasField("g") for op in ops(a.g)]
    return found
