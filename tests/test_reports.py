"""Faults that people reported in public trackers: what is said of each, and what its repair is."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from folding import assert_same, ops, session
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from precision.half_norms import in_own_types

from normlint.context import Settings
from normlint.engine import Options, check_model
from normlint.plugins import load_rules

if TYPE_CHECKING:
    from normlint.results import Finding, ModelReport

    Array = np.ndarray[Any, Any]

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
NORM = "BatchNormalization"


class Net:
    """Builds a model; every weight that is not given is random."""

    def __init__(self, opset: int = 17, dtype: int = FLOAT, ir_version: int = 8) -> None:
        self.opset = opset
        self.dtype = dtype
        self.ir_version = ir_version
        self.random = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, values: Any, dtype: Any = None) -> str:
        """Add a weight: a tuple is the shape of a random one."""
        if isinstance(values, tuple):
            values = self.random.uniform(0.5, 1.5, values)
        name = f"w{len(self.weights)}"
        kind = dtype or helper.tensor_dtype_to_np_dtype(self.dtype)
        self.weights.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def integers(self, *values: int) -> str:
        return self.weight(np.array(values), np.int64)

    def op(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        names = [f"t{len(self.nodes)}_{k}" if k else f"t{len(self.nodes)}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[0]

    def batch_norm(self, x: str, channels: int, variance: Any = None, **attrs: Any) -> str:
        more = [self.weight((channels,)) for _ in range(3)]
        more.append(self.weight((channels,) if variance is None else variance))
        return self.op(NORM, x, *more, **attrs)

    def along(self, op: str, x: str, *axes: int, keepdims: int = 1) -> str:
        if self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13):
            return self.op(op, x, self.integers(*axes), keepdims=keepdims)
        return self.op(op, x, axes=list(axes), keepdims=keepdims)

    def layer_norm(self, x: str, width: int, epsilon: float = 1e-5, keepdims: int = 1) -> str:
        """Spell one out in nine nodes."""
        mean = self.along("ReduceMean", x, -1, keepdims=keepdims)
        centred = self.op("Sub", x, mean)
        square = self.op("Pow", centred, self.weight(2.0))
        variance = self.along("ReduceMean", square, -1, keepdims=keepdims)
        root = self.op("Sqrt", self.op("Add", variance, self.weight(epsilon)))
        return self.op("Mul", self.op("Div", centred, root), self.weight((width,)))

    def model(self, shape: list[Any], y: str, *, listed: bool = False) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("x", self.dtype, shape)]
        if listed:
            inputs += [
                helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in self.weights
            ]
        outputs = [helper.make_tensor_value_info(y, self.dtype, None)]
        graph = helper.make_graph(self.nodes, "report", inputs, outputs, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=self.ir_version)
        inferred = onnx.shape_inference.infer_shapes(model)
        model.graph.output[0].CopyFrom(inferred.graph.output[0])
        return model


def checked(
    model: onnx.ModelProto | Path, *, verify: str = "region", **settings: Any
) -> tuple[ModelReport, onnx.ModelProto]:
    """Apply every rule; give the report, and the model as it is afterwards."""
    path = model if isinstance(model, Path) else None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "repaired.onnx")
        report = check_model(
            path,
            data=model.SerializeToString() if isinstance(model, onnx.ModelProto) else None,
            name="model",
            rules=load_rules(),
            settings=Settings(**settings),
            options=Options(apply=True, output=target, verify=verify),
        )
        assert not found(report, "NL990")
        return report, onnx.load(target, load_external_data=False)


def found(report: ModelReport, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def only(report: ModelReport, code: str) -> Finding:
    (finding,) = found(report, code)
    return finding


def reason(finding: Finding) -> str:
    return "" if finding.not_fixed is None else finding.not_fixed.reason


def conv(ir_version: int) -> onnx.ModelProto:
    net = Net(8, ir_version=ir_version)
    y = net.batch_norm(net.op("Conv", "x", net.weight((4, 3, 3, 3))), 4)
    return net.model([1, 3, 8, 8], y, listed=True)


def test_a01_initializers_among_the_inputs_are_constants_at_ir_3() -> None:
    before = conv(3)

    report, after = checked(before)

    assert only(report, "NL101").fix.applied
    assert ops(after) == ["Conv"]
    given = {tensor.name for tensor in after.graph.initializer}
    assert [value.name for value in after.graph.input if value.name not in given] == ["x"]
    assert_same(before, after)


@pytest.mark.parametrize("ir_version", [4, 8])
def test_a01_from_ir_4_on_they_may_be_overridden(ir_version: int) -> None:
    before = conv(ir_version)

    report, after = checked(before)
    _, forced = checked(before, unsafe_fixes=True)

    assert reason(only(report, "NL111")) == "overridable-input"
    assert ops(after) == ["Conv", NORM]
    assert ops(forced) == ["Conv"]
    assert_same(before, forced)


@pytest.mark.parametrize("biased", [True, False])
def test_a02_the_channels_of_a_transposed_convolution_are_axis_1(biased: bool) -> None:
    net = Net()
    inputs = ["x", net.weight((3, 5, 2, 2)), *([net.weight((5,))] if biased else [])]
    before = net.model(
        [1, 3, 4, 4], net.batch_norm(net.op("ConvTranspose", *inputs, strides=[2, 2]), 5)
    )

    report, after = checked(before)

    assert only(report, "NL101").fix.applied
    assert ops(after) == ["ConvTranspose"]
    assert_same(before, after)


def test_a15_between_reshapes_that_keep_the_last_axis() -> None:
    net = Net()
    y = net.op("Reshape", net.op("MatMul", "x", net.weight((8, 6))), net.integers(-1, 6))
    y = net.op("Reshape", net.batch_norm(y, 6), net.integers(2, 5, 6))
    before = net.model([2, 5, 8], y)

    report, after = checked(before)

    assert only(report, "NL101").fix.applied
    assert NORM not in ops(after)
    assert_same(before, after)


def test_a24_dead_channels_are_judged_on_the_folded_row() -> None:
    net = Net()
    weight = net.random.uniform(-1, 1, (32, 3, 3, 3))
    weight[[11, 13]] = 1e-10
    variance = net.random.uniform(0.1, 5, 32)
    variance[11], variance[13] = 1.9e-14, 3.7e-14
    y = net.batch_norm(net.op("Conv", "x", net.weight(weight)), 32, variance, epsilon=1e-3)
    before = net.model([1, 3, 6, 6], y)

    report, after = checked(before)
    _, emptied = checked(before, unsafe_fixes=True)

    assert only(report, "NL108").evidence["channels"] == [11, 13]
    assert ops(after) == ["Conv"]
    assert_same(before, after)
    assert_same(before, emptied)
    rows = numpy_helper.to_array(emptied.graph.initializer[0])
    assert not rows[[11, 13]].any()


def test_b01_batch_statistics_of_one_are_those_of_each_instance() -> None:
    net = Net(15)
    y = net.op("Reshape", "x", net.integers(1, 6, 4, 4))
    scale = [net.weight((6,)) for _ in range(4)]
    y = net.op(NORM, y, *scale, outputs=3, training_mode=1)
    before = net.model([2, 3, 4, 4], net.op("Reshape", y, net.integers(2, 3, 4, 4)))

    report, after = checked(before)

    assert only(report, "NL106").severity == "error"
    assert NORM not in ops(after)
    assert_same(before, after)


def test_b10_a_negative_variance_is_named_and_left() -> None:
    net = Net()
    y = net.batch_norm(net.op("Conv", "x", net.weight((3, 3, 1, 1))), 3, [1, -0.5, 2])

    report, after = checked(net.model([1, 3, 4, 4], y))

    finding = only(report, "NL107")
    assert finding.fix is None
    assert "channel 1" in finding.message
    assert NORM in ops(after)


def test_b10_the_first_channel_of_every_layer_points_to_the_import() -> None:
    net, y = Net(), "x"
    for _ in range(4):
        y = net.op("Relu", y)
        y = net.batch_norm(net.op("Conv", y, net.weight((3, 3, 1, 1))), 3, [-0.5, 1, 2])

    report, _ = checked(net.model([1, 3, 4, 4], y))

    assert len(found(report, "NL107")) in {1, 4}
    assert "import" in found(report, "NL107")[0].message


def test_c01_a_layer_norm_as_a_batch_norm_in_training() -> None:
    net = Net(17)
    y = net.op("Reshape", "x", net.integers(1, 10, 8, 1))
    # The runtime writes the new statistics over the old ones, so these are weights of their own.
    inputs = [net.weight(f(10)) for f in (np.ones, np.zeros, np.zeros, np.ones)]
    y = net.op(NORM, y, *inputs, outputs=3, training_mode=1, epsilon=1e-3)
    y = net.op("Mul", net.op("Reshape", y, net.integers(2, 5, 8)), net.weight((8,)))
    before = net.model([2, 5, 8], net.op("Add", y, net.weight((8,))))

    report, after = checked(before)

    assert found(report, "NL106")
    assert only(report, "NL201").fix.applied
    assert ops(after) == ["LayerNormalization"]
    assert_same(before, after)


def test_d01_without_keepdims_it_is_no_layer_norm() -> None:
    net = Net()
    before = net.model([4, 4], net.layer_norm("x", 4, keepdims=0))

    report, after = checked(before, unsafe_fixes=True)

    assert "keepdims" in str(only(report, "NL601").evidence) + only(report, "NL601").message
    assert found(report, "NL602")
    assert "LayerNormalization" not in ops(after)
    assert_same(before, after)


def test_d02_over_the_channels_of_images() -> None:
    net = Net()
    centred = net.op("Sub", "x", net.along("ReduceMean", "x", 1))
    variance = net.along("ReduceMean", net.op("Mul", centred, centred), 1)
    root = net.op("Sqrt", net.op("Add", variance, net.weight(1e-6)))
    y = net.op("Mul", net.op("Div", centred, root), net.weight((6, 1, 1)))
    before = net.model([1, 6, 4, 5], net.op("Add", y, net.weight((6, 1, 1))))

    report, after = checked(before)
    _, moved = checked(before, unsafe_fixes=True)

    assert not only(report, "NL207").fix.applied
    assert ops(after) == ops(before)
    assert_same(before, moved)


def test_e01_an_epsilon_that_is_zero_in_half() -> None:
    net = Net(13, HALF)
    before = net.model([2, 3, 8], net.layer_norm("x", 8, epsilon=1e-8))

    report, after = checked(before)
    with_op, fused = checked(before, target_opset=17)

    assert only(report, "NL502").severity == "error"
    assert found(report, "NL501")
    assert "LayerNormalization" not in ops(after)
    assert found(with_op, "NL502")
    assert "LayerNormalization" in ops(fused)


def test_e03_squares_beyond_the_range_of_half() -> None:
    net = Net(14, HALF)
    before = net.model([2, 3, 8], net.layer_norm("x", 8))

    report, _ = checked(before)
    _, fused = checked(before, target_opset=17)

    assert found(report, "NL501")
    assert "LayerNormalization" in ops(fused)
    assert_same(before, fused, tolerance=3e-2)


def squared_relu() -> onnx.ModelProto:
    net = Net(17, HALF)
    y = net.op("Relu", net.op("MatMul", "x", net.weight((8, 8))))
    y = net.op("MatMul", net.op("Mul", y, y), net.weight((8, 8)))
    y = net.op("Add", y, net.op("Mul", "x", net.weight(2.5)))
    inputs = [y, net.weight((8,)), net.weight((8,))]
    return net.model([2, 3, 8], net.op("LayerNormalization", *inputs, stash_type=1))


def test_e04_a_residual_that_grows_beyond_half() -> None:
    before = squared_relu()

    report, same = checked(before)
    _, after = checked(before, unsafe_fixes=True)

    finding = only(report, "NL501")
    assert finding.severity == "info"
    assert finding.fix is not None
    assert finding.fix.applicability == "unsafe"
    assert ops(same) == ops(before)
    assert ops(after) == ops(before)
    assert attributes(after) == {"epsilon": pytest.approx(1e-5 / 256), "stash_type": 1}
    assert not found(checked(after)[0], "NL501")


def attributes(model: onnx.ModelProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in model.graph.node[-1].attribute}


@pytest.mark.parametrize(("size", "fits"), [(0.5, True), (6.0, False), (12.0, False)])
def test_e04_the_scaled_model_computes_what_overflowed(size: float, *, fits: bool) -> None:
    before = squared_relu()
    _, after = checked(before, unsafe_fixes=True)
    x = (size * np.random.default_rng(0).uniform(1, 2, (2, 3, 8))).astype(np.float16)
    wide = squared_relu()
    truth = in_double(wide, x)

    got, old = in_own_types(after, x), in_own_types(before, x)

    assert np.abs(got - truth).max() < 3e-2
    assert bool(np.abs(old - truth).max() < 3e-2) is fits


def in_double(model: onnx.ModelProto, x: Array) -> Array:
    """Run a model with all its floats in double."""
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(float), tensor.name)
        )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x.astype(float)})[0])


def quantised(net: Net, x: str, scale: float = 0.05) -> str:
    step, zero = net.weight(scale, np.float32), net.weight(0, np.int8)
    return net.op("DequantizeLinear", net.op("QuantizeLinear", x, step, zero), step, zero)


def test_f01_every_edge_of_a_layer_norm_in_8_bits() -> None:
    net = Net()
    x = quantised(net, "x")
    mean = quantised(net, net.along("ReduceMean", x, -1))
    centred = quantised(net, net.op("Sub", x, mean))
    square = quantised(net, net.op("Pow", centred, net.weight(2.0)))
    variance = quantised(net, net.along("ReduceMean", square, -1))
    root = quantised(net, net.op("Sqrt", net.op("Add", variance, net.weight(1e-5))))
    y = quantised(net, net.op("Div", centred, root))

    report, after = checked(net.model([2, 3, 8], y))
    _, lifted = checked(net.model([2, 3, 8], y), unsafe_fixes=True)

    assert only(report, "NL402").severity == "error"
    assert ops(after).count("QuantizeLinear") == 7
    assert "LayerNormalization" in ops(lifted)
    assert ops(lifted).count("QuantizeLinear") < 7


def residual_stream(step: float | None) -> onnx.ModelProto:
    """Give a residual sum and the norm that reads it, in float or in 8 bits as in the report."""
    net = Net()

    def rounded(x: str) -> str:
        return x if step is None else quantised(net, x, step)

    one = rounded(net.op("MatMul", "x", net.weight((8, 8))))
    y = rounded(net.op("Add", rounded("x"), one))
    y = net.op("LayerNormalization", y, net.weight((8,)))
    behind = net.op("MatMul", y if step is None else quantised(net, y, 0.03), net.weight((8, 8)))
    return net.model([2, 3, 8], behind)


def test_f02_a_residual_stream_in_8_bits() -> None:
    before = residual_stream(4.35)

    report, after = checked(before)

    residual, norm = only(report, "NL403"), only(report, "NL401")
    assert residual.evidence["operands"]["0"]["range"] == pytest.approx(4.35 * 255)
    assert norm.evidence["input"]["step"] == pytest.approx(4.35)
    assert all(f.fix is not None and f.fix.applicability == "unsafe" for f in (residual, norm))
    assert ops(after) == ops(before)


def test_f02_norms_and_sums_leave_the_region_and_linear_operators_stay() -> None:
    before, truth = residual_stream(4.35), residual_stream(None)
    x = (100 * np.random.default_rng(1).standard_normal((2, 3, 8))).astype(np.float32)

    report, after = checked(before, unsafe_fixes=True)
    _, norms_alone = checked(before, unsafe_fixes=True, quantized_repair="norm")

    cosines = [cosine(run(m, x), run(truth, x)) for m in (before, norms_alone, after)]
    assert {"NL401", "NL403"} == {f.code for f in report.findings if f.fix and f.fix.applied}
    assert cosines[0] < cosines[2]
    assert cosines[1] < cosines[2]
    assert cosines[2] > 0.999
    made_by = {y: node for node in after.graph.node for y in node.output}
    (norm,) = (node for node in after.graph.node if node.op_type == "LayerNormalization")
    assert made_by[norm.input[0]].op_type == "Add"
    assert all(
        made_by[s].op_type != "DequantizeLinear"
        for s in made_by[norm.input[0]].input
        if s in made_by
    )
    assert made_by[after.graph.node[-1].input[0]].op_type == "DequantizeLinear"
    assert not found(checked(after)[0], "NL401")
    assert not found(checked(after)[0], "NL403")


def run(model: onnx.ModelProto, x: Array) -> Array:
    return np.asarray(session(model).run(None, {"x": x})[0])


def cosine(a: Array, b: Array) -> float:
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("opset", "count", "target", "said", "now"),
    [
        (18, 2, None, False, 18),
        (18, 4, 21, True, 21),
        (21, 2, None, True, 21),
    ],
)
def test_g01_group_norm_of_two_meanings(
    opset: int, count: int, target: int | None, said: bool, now: int
) -> None:
    net = Net(opset)
    inputs = ["x", net.weight((count,)), net.weight((count,))]
    y = net.op("GroupNormalization", *inputs, num_groups=2)
    model = net.model([1, 4, 2, 2], y)

    report, after = checked(model, target_opset=target)

    assert bool(found(report, "NL604")) is said
    assert after.opset_import[0].version == now
    if said:
        assert all(list(tensor.dims) == [4] for tensor in after.graph.initializer)


def test_g01_is_said_once_another_rewrite_raises_the_opset() -> None:
    net = Net(18)
    grouped = net.op("GroupNormalization", "x", net.weight((2,)), net.weight((2,)), num_groups=2)
    square = net.op("Mul", grouped, grouped)
    root = net.op("Sqrt", net.op("Add", net.along("ReduceMean", square, -1), net.weight(1e-5)))
    y = net.op("Mul", net.op("Div", grouped, root), net.weight((2,)))
    before = net.model([1, 4, 2, 2], y)

    at_18, _ = checked(before)
    report, after = checked(before, target_opset=23)

    assert not found(at_18, "NL604")
    assert found(report, "NL202")
    assert after.opset_import[0].version == 23
    assert "RMSNormalization" in ops(after)
    (node,) = (node for node in after.graph.node if node.op_type == "GroupNormalization")
    sizes = {tensor.name: list(tensor.dims) for tensor in after.graph.initializer}
    assert [sizes[name] for name in node.input[1:]] == [[4], [4]], "a value for each channel"
    assert not found(checked(after)[0], "NL604")
    truth = after.SerializeToString()
    x = np.random.default_rng(2).standard_normal((1, 4, 2, 2)).astype(np.float32)
    got = run(onnx.ModelProto.FromString(truth), x)
    assert np.abs(got - group_then_rms(before, x)).max() < 1e-5


def group_then_rms(model: onnx.ModelProto, x: Array) -> Array:
    """Compute the model of opset 18 by hand: a scale and a bias for each of two groups."""
    scale, bias, epsilon, last = (
        numpy_helper.to_array(t).astype(float)
        for t in model.graph.initializer
        if t.data_type == TensorProto.FLOAT
    )
    rows = x.astype(float).reshape(1, 2, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    normed = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)
    y = (normed * scale[:, None] + bias[:, None]).reshape(x.shape)
    return np.asarray(y / np.sqrt(np.square(y).mean(-1, keepdims=True) + epsilon) * last)


@pytest.mark.parametrize(("target", "op"), [(None, "Div"), (23, "RMSNormalization")])
def test_h01_an_operator_that_is_none_of_onnx(target: int | None, op: str) -> None:
    net = Net(14)
    attrs = {"axis": -1, "epsilon": 1e-6, "stash_type": 1}
    y = net.op("SimplifiedLayerNormalization", "x", net.weight((8,)), **attrs)
    graph = net.model([1, 8], y)
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info(y, FLOAT, [1, 8]))

    report, after = checked(graph, target_opset=target)

    assert only(report, "NL603").severity == "error"
    assert "SimplifiedLayerNormalization" not in ops(after)
    assert op in ops(after) or "Reciprocal" in ops(after) or "Mul" in ops(after)
    assert_same(graph, after)


SQUARES = ("pow", "product")
MEANS = ("mean", "sum")
ROOTS = ("div", "inverse", "reciprocal", "power")


def rms(square: str, mean: str, root: str, scale: str = "w", casts: str = "") -> onnx.ModelProto:
    net = Net(23, HALF if casts else FLOAT)
    wide = np.float32
    x = net.op("Cast", "x", to=FLOAT) if casts else "x"
    squared = net.op("Pow", x, net.weight(2.0, wide)) if square == "pow" else net.op("Mul", x, x)
    if mean == "mean":
        average = net.along("ReduceMean", squared, -1)
    else:
        average = net.op("Mul", net.along("ReduceSum", squared, -1), net.weight(0.125, wide))
    shifted = net.op("Add", average, net.weight(1e-5, wide))
    if root == "power":
        y = net.op("Mul", x, net.op("Pow", shifted, net.weight(-0.5, wide)))
    elif root == "div":
        y = net.op("Div", x, net.op("Sqrt", shifted))
    elif root == "inverse":
        y = net.op("Mul", x, net.op("Div", net.weight(1.0, wide), net.op("Sqrt", shifted)))
    else:
        y = net.op("Mul", x, net.op("Reciprocal", net.op("Sqrt", shifted)))
    if casts == "before":
        y = net.op("Cast", y, to=HALF)
    if scale == "w":
        y = net.op("Mul", y, net.weight((8,), wide if casts == "after" else None))
    elif scale == "one":
        y = net.op("Mul", y, net.op("Add", net.weight(1.0), net.weight((8,))))
    if casts == "after":
        y = net.op("Cast", y, to=HALF)
    return net.model([2, 8], y)


@pytest.mark.parametrize("spelling", list(itertools.product(SQUARES, MEANS, ROOTS)), ids="-".join)
def test_h04_rms_norm_in_all_spellings(spelling: tuple[str, str, str]) -> None:
    before = rms(*spelling)

    report, after = checked(before)

    assert only(report, "NL202").fix.applied
    assert ops(after) == ["RMSNormalization"]
    assert_same(before, after)


@pytest.mark.parametrize(
    ("scale", "casts"), [("w", "before"), ("w", "after"), ("one", ""), ("none", "")]
)
def test_h04_rms_norm_with_casts_and_scales(scale: str, casts: str) -> None:
    before = rms("pow", "mean", "reciprocal", scale, casts)

    report, after = checked(before)

    assert only(report, "NL202").fix.applied
    assert "RMSNormalization" in ops(after)
    assert "Pow" not in ops(after)
    assert_same(before, after, tolerance=1e-2 if casts else 2e-4)


@pytest.mark.parametrize("embedded", [False, True])
def test_i01_the_first_block_of_a_pre_ln_encoder(embedded: bool) -> None:
    net = Net()
    width = 8
    x = net.op("Gather", net.weight((20, width)), "x") if embedded else "x"
    for _ in range(2):
        normed = net.layer_norm(x, width)
        q, k, v = (net.op("MatMul", normed, net.weight((width, width))) for _ in range(3))
        scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
        mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
        x = net.op("Add", x, net.op("MatMul", mixed, net.weight((width, width))))
        inner = net.op("Relu", net.op("MatMul", net.layer_norm(x, width), net.weight((width, 16))))
        x = net.op("Add", x, net.op("MatMul", inner, net.weight((16, width))))
    model = net.model([2, 3] if embedded else [2, 3, width], x)
    if embedded:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64

    report = check_model(
        None,
        data=model.SerializeToString(),
        name="model",
        rules=load_rules(),
        settings=Settings(),
        options=Options(inventory=True),
    )

    assert not found(report, "NL301")
    assert [norm["placement"] for norm in report.inventory] == ["pre"] * 4


@pytest.mark.parametrize("shape", [(4,), (4, 3, 3)])
def test_j01_batch_norm_that_is_not_spatial(shape: tuple[int, ...]) -> None:
    net = Net(8)
    y = net.op(NORM, "x", *(net.weight(shape) for _ in range(4)), spatial=0)
    before = net.model([1, 4, 3, 3], y)

    report, after = checked(before)

    assert only(report, "NL110").fix.applied
    assert not any(a.name == "spatial" for node in after.graph.node for a in node.attribute)
    x = np.random.default_rng(1).standard_normal((1, 4, 3, 3))
    scale, bias, mean, variance = (
        numpy_helper.to_array(tensor).astype(np.float64).reshape(4, *shape[1:] or (1, 1))
        for tensor in before.graph.initializer
    )
    expected = (x - mean) / np.sqrt(variance + 1e-5) * scale + bias
    (got,) = onnx_run(after, x.astype(np.float32))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def onnx_run(model: onnx.ModelProto, x: Array) -> list[Array]:
    from folding import session

    return session(model).run(None, {"x": x})


def test_k01_more_than_two_gigabytes_beside_one_fold(tmp_path: Path) -> None:
    net = Net()
    y = net.batch_norm(net.op("Conv", "x", net.weight((4, 3, 3, 3))), 4)
    model = net.model([1, 3, 8, 8], y)
    huge = TensorProto(name="huge", data_type=FLOAT, dims=[600_000_000])
    huge.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "huge.data"), ("offset", "0"), ("length", "2400000000")):
        huge.external_data.add(key=key, value=value)
    model.graph.initializer.append(huge)
    side = tmp_path / "huge.data"
    with side.open("wb") as file:
        file.truncate(2_400_000_000)
    before = side.stat()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())

    report, after = checked(path)

    assert only(report, "NL101").fix.applied
    assert ops(after) == ["Conv"]
    assert side.stat() == before
