"""Types and ranges: computed in double, rounded once, refused where they do not fit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from folding import assert_same, ops, reason_of, repaired
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    np.float16: TensorProto.FLOAT16,
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
}


def conv_norm(
    kind: type,
    *,
    weight: np.ndarray | None = None,
    scale: tuple[float, ...] = (1.5, -2.0),
    variance: tuple[float, ...] = (0.5, 2.0),
    parameters: type | None = None,
    cast: bool = False,
) -> onnx.ModelProto:
    """A convolution and a BatchNorm, whose parameters may have a type of their own."""
    random = np.random.default_rng(5)
    weight = random.standard_normal((2, 2, 2, 2)) if weight is None else weight
    own = parameters or kind
    tensors = {"w": weight.astype(kind)}
    for name, values in (("s", scale), ("b", (0.5, 1)), ("m", (0.1, -0.3)), ("v", variance)):
        tensors[name] = np.array(values).astype(own)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"])]
    if cast:
        nodes.append(helper.make_node("Cast", ["c"], ["d"], to=TYPES[own]))
    source = "d" if cast else "c"
    nodes.append(helper.make_node("BatchNormalization", [source, "s", "b", "m", "v"], ["y"]))
    out = TYPES[own] if cast else TYPES[kind]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TYPES[kind], [1, 2, 5, 5])],
        [helper.make_tensor_value_info("y", out, [1, 2, 4, 4])],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def new_weight(model: onnx.ModelProto) -> np.ndarray:
    return next(numpy_helper.to_array(t) for t in model.graph.initializer if len(t.dims) == 4)


@pytest.mark.parametrize("kind", list(TYPES), ids=lambda kind: kind.__name__)
def test_a_weight_is_rounded_once(kind: type) -> None:
    before = conv_norm(kind)

    _, after = repaired(before, verify="region")

    old = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in before.graph.initializer}
    factor = old["s"] / np.sqrt(old["v"] + np.float64(np.float32(1e-5)))
    exact = old["w"] * factor.reshape(2, 1, 1, 1)
    assert ops(after) == ["Conv"]
    assert new_weight(after).dtype == kind
    assert (new_weight(after) == exact.astype(kind)).all()


def test_what_no_engine_runs_in_double_is_proved_in_float() -> None:
    before = conv_norm(np.float64)
    node = before.graph.node[0]
    node.op_type = "ConvTranspose"
    node.attribute.append(helper.make_attribute("group", 2))
    weight = next(tensor for tensor in before.graph.initializer if tensor.name == "w")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[:, :1].copy(), "w"))
    before.graph.output[0].type.tensor_type.ClearField("shape")

    report, after = repaired(before, verify="region")

    assert ops(after) == ["ConvTranspose"]
    assert report.findings[0].fix is not None
    assert report.findings[0].fix.verification.tolerance == 1e-5  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_parameters_may_be_wider_than_the_data(kind: type) -> None:
    before = conv_norm(kind, parameters=np.float32)

    _, after = repaired(before)

    assert ops(after) == ["Conv"]
    assert new_weight(after).dtype == kind
    assert_same(before, after, tolerance=1e-2 if kind is np.float16 else 1e-5)


def test_a_cast_between_floats_is_passed_where_the_range_does() -> None:
    small = conv_norm(np.float16, scale=(0.5, -0.25), parameters=np.float32, cast=True)
    large = conv_norm(np.float16, scale=(90.0, 1.0), parameters=np.float32, cast=True)

    report, kept = repaired(large)

    assert ops(repaired(small)[1]) == ["Conv", "Cast"]
    assert ops(kept) == ["Conv", "Cast", "BatchNormalization"]
    assert [reason_of(finding) for finding in report.findings] == ["type-mismatch"]


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_cast_to_half_precision_comes_first_only_where_nothing_is_lost(
    factor: float, *, shift: bool
) -> None:
    tensors = {
        "w": np.ones((2, 2), np.float16),
        "s": np.full(2, factor, np.float32),
        "b": np.full(2, 1.0 if shift else 0.0, np.float32),
        "m": np.zeros(2, np.float32),
        "v": np.full(2, 1 - 1e-5, np.float32),
    }
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Cast", ["n"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [3, 2])],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    report, after = repaired(before)

    if factor > 1 and not shift:
        assert ops(after) == ["Cast", "MatMul"]
    else:
        assert [reason_of(finding) for finding in report.findings] == ["type-mismatch"]


def test_a_weight_that_leaves_its_type_is_refused() -> None:
    weight = np.full((2, 2, 2, 2), 400.0)
    before = conv_norm(np.float16, weight=weight, scale=(300.0, 1.0))

    report, after = repaired(before, rules=("NL101", "NL111", "NL503"))

    assert ops(after) == ["Conv", "BatchNormalization"]
    assert {reason_of(finding) for finding in report.findings} == {"would-overflow"}
    assert {finding.code for finding in report.findings} == {"NL111", "NL503"}
    assert ops(repaired(conv_norm(np.float32, weight=weight, scale=(300.0, 1.0)))[1]) == ["Conv"]


def test_a_row_that_becomes_subnormal_is_refused() -> None:
    weight = np.full((2, 2, 2, 2), 1e-2)

    report, _ = repaired(conv_norm(np.float16, weight=weight, scale=(1.0, 1e-3)))

    assert [reason_of(finding) for finding in report.findings] == ["would-overflow"]


def before_gemm(kind: type, weight: float, shift: float, *, op: str = "Gemm") -> onnx.ModelProto:
    """A BatchNorm with a shift, and a product that sums it up."""
    tensors = {"w": np.full((4, 4), weight), "s": np.ones(4), "b": np.full(4, shift)}
    tensors |= {"m": np.zeros(4), "v": np.ones(4)}
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"]),
        helper.make_node(op, ["n", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TYPES[kind], [2, 4])],
        [helper.make_tensor_value_info("y", TYPES[kind], [2, 4])],
        [numpy_helper.from_array(values.astype(kind), name) for name, values in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("op", ["Gemm", "MatMul"])
def test_a_bias_that_leaves_half_precision_is_refused_before_it_is_tried(op: str) -> None:
    report, after = repaired(
        before_gemm(np.float16, 200.0, 100.0, op=op), rules=("NL102", "NL111", "NL503")
    )

    assert ops(after) == ["BatchNormalization", op]
    assert {finding.code for finding in report.findings} == {"NL111", "NL503"}
    assert {reason_of(finding) for finding in report.findings} == {"would-overflow"}
    assert ops(repaired(before_gemm(np.float16, 100.0, 100.0))[1]) == ["Gemm"]


@pytest.mark.parametrize("verify", ["none", "region"])
@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16], ids=["single", "bfloat16"])
def test_what_leaves_its_type_late_is_named_so(kind: type, verify: str) -> None:
    report, after = repaired(before_gemm(kind, 1e30, 1e12), verify=verify)

    assert ops(after) == ["BatchNormalization", "Gemm"]
    assert {reason_of(finding) for finding in report.findings} == {"would-overflow"}


def test_a_single_precision_weight_beyond_its_range_is_refused() -> None:
    weight = np.full((2, 2, 2, 2), 1e25)

    report, _ = repaired(conv_norm(np.float32, weight=weight, scale=(1e20, 1.0)))

    assert [reason_of(finding) for finding in report.findings] == ["would-overflow"]


def test_a_variance_below_zero_is_never_folded() -> None:
    report, after = repaired(conv_norm(np.float32, variance=(1.0, -0.5)))

    assert ops(after) == ["Conv", "BatchNormalization"]
    assert [reason_of(finding) for finding in report.findings] == ["would-overflow"]


def test_constant_channels_are_judged_on_the_folded_row() -> None:
    weight = np.random.default_rng(1).standard_normal((2, 2, 2, 2))
    weight[1] *= 1e-10
    before = conv_norm(np.float32, weight=weight, scale=(1.0, 1.0), variance=(0.5, 1e-14))

    report, _ = repaired(before, rules=("NL108",))
    _, plain = repaired(before)
    _, zeroed = repaired(before, rules=("NL101", "NL108"), unsafe_fixes=True)

    assert [finding.evidence["channels"] for finding in report.findings] == [[1]]
    assert 0 < np.abs(new_weight(plain)[1]).max() < 1e-6
    assert (new_weight(zeroed)[1] == 0).all()
    assert_same(before, zeroed)
    assert not repaired(
        conv_norm(np.float32, scale=(1.0, 1.0), variance=(0.5, 1e-14)), rules=("NL108",)
    )[0].findings


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "GemmT", "MatMul", "Left"])
def test_constant_channels_of_every_operator(op: str) -> None:
    random = np.random.default_rng(6)
    shapes = {
        "Conv": ((3, 2, 1, 1), 0),
        "ConvTranspose": ((2, 3, 1, 1), 1),
        "Gemm": ((2, 3), 1),
        "GemmT": ((3, 2), 0),
        "MatMul": ((2, 3), 1),
        "Left": ((3, 2), 0),
    }
    shape, axis = shapes[op]
    weight = random.standard_normal(shape).astype(np.float32)
    np.moveaxis(weight, axis, 0)[2] *= 1e-11
    tensors = {"w": weight, "v": np.array([0.5, 2, 1e-15], np.float32)}
    tensors |= {name: random.uniform(0.5, 2, 3).astype(np.float32) for name in "sbm"}
    attrs = {"transB": 1} if op == "GemmT" else {}
    inputs = ["w", "x"] if op == "Left" else ["x", "w"]
    kind = {"GemmT": "Gemm", "Left": "MatMul"}.get(op, op)
    data = [1, 2, 4, 4] if len(shape) == 4 else [1, 2, 4] if op == "Left" else [4, 2]
    nodes = [
        helper.make_node(kind, inputs, ["c"], **attrs),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(data))],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    report, after = repaired(before, rules=("NL108",), unsafe_fixes=True, verify="region")

    assert [finding.evidence["channels"] for finding in report.findings] == [[2]]
    assert "BatchNormalization" not in ops(after)
    new = next(numpy_helper.to_array(t) for t in after.graph.initializer if tuple(t.dims) == shape)
    assert (np.moveaxis(new, axis, 0)[2] == 0).all()
    assert_same(before, after)


def test_a_fold_that_widens_the_range_of_a_weight_says_so() -> None:
    weight = np.random.default_rng(2).uniform(0.5, 1, (4, 2, 1, 1))

    def model(scale: tuple[float, ...], rows: tuple[float, ...]) -> onnx.ModelProto:
        before = conv_norm(np.float32)
        tensors = {
            "w": weight * np.reshape(rows, (4, 1, 1, 1)),
            "s": np.array(scale),
            **dict.fromkeys("bm", np.zeros(4)),
            "v": np.ones(4),
        }
        del before.graph.initializer[:]
        before.graph.initializer.extend(
            numpy_helper.from_array(values.astype(np.float32), name)
            for name, values in tensors.items()
        )
        before.graph.output[0].ClearField("type")
        return onnx.shape_inference.infer_shapes(before)

    widened, _ = repaired(model((1, 1, 1, 100), (1, 1, 1, 1)), rules=("NL101",))
    evened, _ = repaired(model((1, 1, 1, 100), (1, 1, 1, 0.01)), rules=("NL101",))

    assert "quantise it per channel" in widened.findings[0].message
    assert "quantise" not in evened.findings[0].message
