"""How values per channel get across one operator: held to what the operator computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from folding import model_of, session
from onnx import TensorProto, helper, numpy_helper

from normlint.context.constants import Constants
from normlint.context.linear import Blocked, Passage, downstream, upstream
from normlint.graph import Graph, Node, Tensor, build_graph
from normlint.rewrite.affine import Affine
from normlint.rule import Reason

SHAPE = (2, 4, 3, 6)
OPS = [
    "Identity(x)",
    "Dropout(x)",
    "Cast<to = 11>(x)",
    "Transpose(x)",
    "Transpose<perm = [0,2,3,1]>(x)",
    "Unsqueeze(x, k) k=2",
    "Unsqueeze(x, k) k=-1",
    "Unsqueeze(x, k) k=0,3",
    "Reshape(x, k) k=2,4,-1",
    "Reshape(x, k) k=0,0,-1",
    "Reshape(x, k) k=2,2,2,3,6",
    "Reshape(x, k) k=8,18",
    "Reshape(x, k) k=-1,6",
    "Reshape(x, k) k=2,12,6",
    "Flatten(x)",
    "Flatten<axis = 3>(x)",
    "Flatten<axis = -1>(x)",
    "Concat<axis = 1>(x, x2)",
    "Concat<axis = -1>(x, x2)",
    "Split<axis = 1>(x) *2",
    "Split<axis = -1>(x, k) *2 k=2,4",
    "Slice(x, k, l) k=1 l=3",
    "Slice(x, k, l, m, n) k=-1 l=-9 m=1 n=-1",
    "Slice(x, k, l, m, n) k=0 l=5 m=-1 n=2",
    'Pad<mode = "edge">(x, k) k=0,0,1,2,0,0,1,0',
    "Pad(x, k) k=0,0,1,2,0,0,1,0",
    "Pad(x, k) k=0,1,0,0,0,0,0,0",
    "MaxPool<kernel_shape = [2,2], pads = [1,1,0,0]>(x)",
    "AveragePool<kernel_shape = [2,2], pads = [1,1,0,0]>(x)",
    "AveragePool<kernel_shape = [2,2], pads = [1,1,0,0], count_include_pad = 1>(x)",
    "AveragePool<kernel_shape = [2,2], count_include_pad = 1>(x)",
    "GlobalAveragePool(x)",
    "GlobalMaxPool(x)",
    "Resize(x, , f) f=1,1,2,1.5",
    'Resize<mode = "linear">(x, , f) f=1,1,2,2',
    "Relu(x)",
    "LeakyRelu(x)",
    "PRelu(x, f) f=0.25",
    "ReduceMean<axes = [2]>(x)",
    "ReduceMean<axes = [2,-1], keepdims = 0>(x)",
    "ReduceMax<axes = [0], keepdims = 0>(x)",
    "ReduceMin<axes = [3]>(x)",
    "ReduceSum(x, k) k=2,3",
    "Expand(x, k) k=3,2,4,3,6",
    "Tile(x, k) k=1,1,2,1",
    "Tile(x, k) k=1,2,1,1",
    "Gather<axis = 1>(x, k) k=3,0,2,1",
    "Gather<axis = 2>(x, k) k=1,1",
    "Gather<axis = 1>(x, s) s=2",
    "DepthToSpace<blocksize = 2>(x)",
    'DepthToSpace<blocksize = 2, mode = "CRD">(x)',
    "Sigmoid(x)",
]


def built(op: str, shape: tuple[int, ...] = SHAPE) -> tuple[onnx.ModelProto, Graph, Node]:
    """Build a graph of one operator, followed by its number of outputs and its constants."""
    text, rest = op[: op.rindex(")") + 1], op[op.rindex(")") + 1 :].split()
    outputs = ["y"]
    constants = []
    for word in rest:
        if word.startswith("*"):
            outputs = [f"y{k}" for k in range(int(word[1:]))]
            continue
        name, _, values = word.partition("=")
        count = len(values.split(","))
        kind = "float" if name == "f" else "int64"
        rank = "" if name == "s" else f"[{count}]"
        constants.append(f"{kind}{rank} {name} = {{{values}}}")
    inputs = ", ".join(
        f"float[{','.join(map(str, shape))}] {name}" for name in ("x", "x2") if f"{name}" in text
    )
    results = ", ".join(f"float {name}" for name in outputs)
    listed = f"<{', '.join(constants)}>" if constants else ""
    model = model_of(f"g ({inputs}) => ({results}) {listed} {{ {', '.join(outputs)} = {text} }}")
    for value in model.graph.output:
        value.ClearField("type")
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = build_graph(typed, numpy_helper.to_array)
    return typed, graph, graph.nodes[0]


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(result, np.float64) for result in session(model).run(None, feed)]


def apply(affine: Affine, values: np.ndarray, axis: int) -> np.ndarray:
    place = tuple(-1 if k == axis else 1 for k in range(values.ndim))
    return affine.scale.reshape(place) * values + affine.shift.reshape(place)


def drawn(channels: int, passages: list[Passage]) -> Affine:
    """Draw a scale and shift that meets the demands."""
    random = np.random.default_rng(11)
    scale = random.standard_normal(channels)
    shift = random.standard_normal(channels)
    if any(passage.positive for passage in passages):
        scale = np.abs(scale)
    if any(passage.no_shift or passage.pad is not None for passage in passages):
        shift = np.zeros(channels)
    return Affine(scale, shift)


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    return {
        value.name: random.standard_normal(SHAPE).astype(np.float32) for value in model.graph.input
    }


def held(tensor: Tensor, axis: int, channels: int) -> bool:
    shape = tensor.shape
    return shape is not None and shape[axis] == channels


@pytest.mark.parametrize("axis", range(5))
@pytest.mark.parametrize("op", OPS)
def test_behind_is_in_front(op: str, axis: int) -> None:
    """A scale and shift of the output is one of the input, where a passage says so."""
    model, graph, node = built(op)
    output = node.outputs[0]
    if output.rank is None or axis >= output.rank:
        return
    channels = output.shape[axis]
    try:
        passages = upstream(node, output, axis, channels, Constants(graph))
    except Blocked:
        return
    if passages is None:
        assert op.startswith("Sigmoid")
        return
    affine = drawn(channels, passages)
    feed = inputs_of(model)
    wanted = apply(affine, run(model, feed)[0], axis)
    changed = dict(feed)
    for passage in passages:
        name = passage.tensor.name
        own = affine.across(passage)
        assert held(passage.tensor, passage.axis, own.channels)
        changed[name] = apply(own, feed[name], passage.axis).astype(np.float32)

    assert np.allclose(run(model, changed)[0], wanted, atol=1e-4)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("op", OPS)
def test_in_front_is_behind(op: str, axis: int) -> None:
    """A scale and shift of the input is one of the outputs, where a passage says so."""
    model, graph, node = built(op)
    channels = SHAPE[axis]
    try:
        passages = downstream(node, node.inputs[0], axis, channels, Constants(graph))
    except Blocked:
        return
    if passages is None:
        assert op.startswith("Sigmoid")
        return
    affine = drawn(channels, passages)
    feed = inputs_of(model)
    before = run(model, feed)
    after = run(model, {**feed, "x": apply(affine, feed["x"], axis).astype(np.float32)})
    names = [value.name for value in model.graph.output]
    for passage in passages:
        own = affine.across(passage)
        assert held(passage.tensor, passage.axis, own.channels)
        position = names.index(passage.tensor.name)
        assert np.allclose(after[position], apply(own, before[position], passage.axis), atol=1e-4)


PASSED = {"Identity": 4, "Transpose": 8, "Concat": 2, "Gather": 6, "Flatten": 3, "Pad": 6}


@pytest.mark.parametrize(("op", "least"), PASSED.items())
def test_most_axes_do_pass(op: str, least: int) -> None:
    count = 0
    for text in OPS:
        if not text.startswith(op):
            continue
        for axis in range(4):
            _, graph, node = built(text)
            try:
                found = downstream(node, node.inputs[0], axis, SHAPE[axis], Constants(graph))
            except Blocked:
                continue
            count += bool(found)

    assert count >= least


def test_what_is_not_known_is_refused() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Foo", ["x"], ["t"], domain="foo"),
            helper.make_node("Transpose", ["t"], ["u"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("u", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("foo", 1)]
    built_graph = build_graph(
        helper.make_model(graph, opset_imports=imports), numpy_helper.to_array
    )
    node = built_graph.nodes[1]

    with pytest.raises(Blocked) as refusal:
        upstream(node, node.y, 1, 3, Constants(built_graph))

    assert refusal.value.not_fixed.reason is Reason.SHAPE_UNKNOWN


def test_only_the_mask_of_a_dropout_does_not_pass() -> None:
    _, graph, node = built("Dropout(x) *2")

    with pytest.raises(Blocked):
        upstream(node, node.outputs[1], 1, 4, Constants(graph))
