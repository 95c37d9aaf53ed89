"""Whole residual streams times a power of two: what overflowed fits, and no digit changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from precision.half_norms import in_own_types, model

from normlint import apply, check
from normlint.context import Context, Settings
from normlint.graph import build_graph, export_graph
from normlint.rewrite.edit import Editor
from normlint.rewrite.rescale import rescaled_stream
from normlint.rule import NotFixed, Reason, Rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from normlint.results import Finding

WIDTH, HIDDEN, ROWS, BLOCKS = 16, 24, 12, 3
Weights = dict[str, np.ndarray[Any, Any]]


class Net:
    """A Pre-LN stack on rows of a table, in pieces that a test may change."""

    def __init__(self, dtype: type = np.float32, size: float = 1.0) -> None:
        self.random = np.random.default_rng(4)
        self.dtype = dtype
        self.size = size
        self.nodes: list[onnx.NodeProto] = []
        self.weights: Weights = {}

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        outputs = [f"{name}_{k}" for k in range(2)] if kind == "Split" else [name]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attrs))
        return outputs[0]

    def weight(self, *shape: int, size: float = 1.0) -> str:
        name = f"w{len(self.weights)}"
        values = size * self.random.standard_normal(shape)
        self.weights[name] = np.asarray(values).astype(self.dtype)
        return name

    def linear(self, x: str, rows: int, columns: int, size: float = 1.0) -> str:
        product = self.op("MatMul", x, self.weight(rows, columns, size=size / rows**0.5))
        return self.op("Add", product, self.weight(columns, size=0.1 * size))

    def integers(self, *values: int) -> str:
        name = f"i{len(self.weights)}"
        self.weights[name] = np.array(values)
        return name

    def norm(self, x: str, **attrs: Any) -> str:
        parameters = self.weight(WIDTH), self.weight(WIDTH)
        return self.op("LayerNormalization", x, *parameters, epsilon=1e-5, **attrs)

    def block(self, x: str) -> str:
        h = self.op("Relu", self.linear(self.norm(x), WIDTH, HIDDEN))
        return self.op("Add", x, self.linear(h, HIDDEN, WIDTH, self.size))

    def start(self) -> str:
        return self.op("Gather", self.weight(ROWS, WIDTH), "x")

    def model(self, y: str, *taps: str) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        made = model(self.nodes, self.weights, [1, 5, WIDTH], kind, 17)
        made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.INT64, [1, 5]))
        del made.graph.output[:]
        for name in (y, *taps):
            made.graph.output.append(helper.make_tensor_value_info(name, kind, None))
        return onnx.shape_inference.infer_shapes(made)


def plain(net: Net) -> str:
    x = net.start()
    for _ in range(BLOCKS):
        x = net.block(x)
    return net.linear(net.norm(x), WIDTH, WIDTH)


def layer_scaled(net: Net) -> str:
    x = net.start()
    for _ in range(BLOCKS):
        h = net.op("Tanh", net.linear(net.norm(x), WIDTH, WIDTH))
        branch = net.op("Mul", h, net.weight(WIDTH))
        x = net.op("Add", x, branch)
    return net.norm(x)


def masked(net: Net) -> str:
    mask = net.op("Cast", net.op("Unsqueeze", "x", net.integers(-1)), to=1)
    x = net.op("Mul", net.start(), mask)
    return net.norm(net.block(x))


def deepnorm(net: Net) -> str:
    x = net.norm(net.start())
    for _ in range(BLOCKS):
        h = net.op("Relu", net.linear(x, WIDTH, HIDDEN))
        total = net.op("Add", net.op("Mul", x, net.weight()), net.linear(h, HIDDEN, WIDTH))
        x = net.norm(total)
    return x


def with_classes(net: Net) -> str:
    x = net.op("Concat", net.weight(1, 1, WIDTH), net.start(), axis=1)
    x = net.block(net.op("Add", x, net.weight(1, 6, WIDTH)))
    first = net.op("Gather", x, net.integers(0), axis=1)
    return net.norm(first)


def ungated(net: Net) -> str:
    x = net.start()
    for _ in range(BLOCKS):
        x = net.op("Add", x, net.op("Tanh", net.linear(net.norm(x), WIDTH, WIDTH)))
    return net.norm(x)


def spelled(net: Net) -> str:
    x = net.block(net.start())
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
    net.weights |= {"two": np.array(2, net.dtype), "epsilon": np.array(1e-5, net.dtype)}
    variance = net.op("ReduceMean", net.op("Pow", centred, "two"), axes=[-1])
    return net.op("Div", centred, net.op("Sqrt", net.op("Add", variance, "epsilon")))


def gated(net: Net) -> str:
    x = net.start()
    gate = net.op("Sigmoid", net.linear(net.norm(x), WIDTH, WIDTH))
    branch = net.op("Mul", gate, net.linear(net.norm(x), WIDTH, WIDTH))
    return net.norm(net.op("Add", x, branch))


STREAMS: dict[str, tuple[Callable[[Net], str], int, int]] = {
    "plain": (plain, BLOCKS + 1, 0),
    "layer scaled": (layer_scaled, BLOCKS + 1, 0),
    "masked": (masked, 2, 0),
    "DeepNorm, of which each sum is a stream": (deepnorm, 1, 0),
    "classes in front": (with_classes, 2, 0),
    "spelled out": (spelled, 2, 0),
    "gated": (gated, 3, 0),
    "nothing writes": (ungated, BLOCKS + 1, BLOCKS),
}
"""Networks, how many norms read their streams, and how many operands need a node of their own."""


def rescaled(before: onnx.ModelProto, exponent: int) -> tuple[onnx.ModelProto, int]:
    """Scale the stream that the last norm reads; give the number of norms on it besides."""
    context = Context(build_graph(before, numpy_helper.to_array), Settings())
    found = rescaled_stream(context, context.norms[-1], exponent)
    assert isinstance(found.outcome, Rewrite), found.outcome
    editor = Editor(context.graph)
    editor.apply(found.outcome)
    editor.finish()
    placeholder = lambda constant: numpy_helper.from_array(constant.values, constant.name)  # noqa: E731
    return export_graph(context.graph, before, placeholder), len(found.norms)


def run(of: onnx.ModelProto, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    with np.errstate(all="ignore"):
        return [np.asarray(y) for y in ReferenceEvaluator(of).run(None, {"x": x})]


@pytest.mark.parametrize("exponent", [2, 6, 10])
@pytest.mark.parametrize("network", STREAMS.values(), ids=STREAMS.keys())
def test_no_digit_changes(network: tuple[Callable[[Net], str], int, int], exponent: int) -> None:
    make, norms, explicit = network
    net = Net()
    before = net.model(make(net))
    x = np.random.default_rng(5).integers(0, ROWS, (1, 5))

    after, count = rescaled(before, exponent)

    assert count == norms
    assert len(after.graph.node) == len(before.graph.node) + explicit
    assert np.array_equal(run(after, x)[0], run(before, x)[0])
    onnx.checker.check_model(after, full_check=True)


@pytest.mark.parametrize(
    ("tap", "reason"),
    [("output", Reason.GRAPH_OUTPUT), ("Relu", None), ("Tanh", Reason.OTHER_READER)],
)
def test_who_wants_the_values_as_they_are(tap: str, reason: Reason | None) -> None:
    net = Net()
    x = net.block(net.block(net.start()))
    y = net.norm(x)
    taps = [] if tap == "output" else [net.norm(net.op(tap, x))]
    before = net.model(y, *(taps or [x]))
    context = Context(build_graph(before, numpy_helper.to_array), Settings())

    found = rescaled_stream(context, context.norms[2], 4).outcome

    assert (found.reason if isinstance(found, NotFixed) else None) is reason


def test_downstream_of_a_tap_one_product_does() -> None:
    net = Net()
    middle = net.block(net.start())
    before = net.model(net.norm(net.block(middle)), middle)

    after, count = rescaled(before, 4)

    x = np.random.default_rng(5).integers(0, ROWS, (1, 5))
    assert count == 1
    assert len(after.graph.node) == len(before.graph.node) + 1
    assert all(np.array_equal(a, b) for a, b in zip(run(after, x), run(before, x), strict=True))


def test_a_table_that_the_head_shares_is_copied() -> None:
    net = Net()
    x = net.block(net.start())
    head = net.op("MatMul", net.norm(x), net.op("Transpose", "w0", perm=[1, 0]))
    before = net.model(head)

    after, _ = rescaled(before, 4)

    x_values = np.random.default_rng(5).integers(0, ROWS, (1, 5))
    assert np.array_equal(run(after, x_values)[0], run(before, x_values)[0])


def overflowing(folder: Path, size: float) -> tuple[onnx.ModelProto, Settings]:
    """Give a stream in half precision whose branches write `size` times as much, with data."""
    net = Net(np.float16, size)
    path = folder / "data.npz"
    np.savez(path, x=np.random.default_rng(5).integers(0, ROWS, (8, 1, 5)))
    return net.model(plain(net)), Settings(data=path)


@pytest.mark.parametrize(("size", "severity"), [(1.0, None), (4e3, "info"), (6e4, "warning")])
def test_data_shows_a_stream_that_overflows(
    tmp_path: Path, size: float, severity: str | None
) -> None:
    before, settings = overflowing(tmp_path, size)

    found = findings(before, settings)

    assert [f.severity.value for f in found] == ([severity] if severity else [])
    assert {f.severity.value for f in findings(before, Settings())} <= {"info"}, "a bias is large"


def test_the_repaired_stream_fits(tmp_path: Path) -> None:
    before, settings = overflowing(tmp_path, 6e4)
    target = tmp_path / "repaired.onnx"
    wide = Net(np.float64, 6e4)
    truth = run(wide.model(plain(wide)), np.load(settings.data)["x"][0])[0]

    unsafe = replace(settings, unsafe_fixes=True)
    report = apply(before, target, select=["NL501"], settings=unsafe)
    after = onnx.load(target)

    x = np.load(settings.data)["x"][0]
    assert report.fixed == 1
    assert not np.allclose(in_own_types(before, x), truth, rtol=0.1), "it overflowed"
    assert np.abs(in_own_types(after, x) - truth).max() < 2e-2 * np.abs(truth).max()
    assert findings(after, settings) == []


def findings(of: onnx.ModelProto, settings: Settings) -> list[Finding]:
    return list(check(of, select=["NL501"], settings=settings).models[0].findings)


def test_a_table_that_hardly_fits_is_enough() -> None:
    net = Net(np.float16)
    before = net.model(plain(net))
    for tensor in before.graph.initializer:
        if tensor.name == "w0":
            values = numpy_helper.to_array(tensor) * np.float16(2e4)
            tensor.CopyFrom(numpy_helper.from_array(values, "w0"))

    (found,) = findings(before, Settings())

    assert found.fix is not None
    assert found.evidence["norms"] == BLOCKS + 1


@pytest.mark.parametrize("size", [1.0, 6e4])
def test_a_deep_stream_is_scaled_once_and_not_where_data_shows_room(
    tmp_path: Path, size: float
) -> None:
    net = Net(np.float16, 1.0)
    x = net.op("Mul", net.start(), net.weight(WIDTH, size=size / 10))
    for _ in range(33):
        x = net.op("Add", x, net.linear(net.norm(x), WIDTH, WIDTH))
    before = net.model(net.norm(x))
    path, target = tmp_path / "data.npz", tmp_path / "repaired.onnx"
    np.savez(path, x=np.random.default_rng(5).integers(0, ROWS, (8, 1, 5)))

    shown = check(before, select=["NL305"], settings=Settings(data=path)).models[0].findings
    report = apply(before, target, select=["NL305"], settings=Settings(unsafe_fixes=True))

    assert len(shown) == (0 if size == 1.0 else 1)
    assert report.fixed == 1
    assert check(target, select=["NL305"]).models[0].findings == ()
