"""Streams of every kind become RMSNorm streams: how many norms convert, and that nothing moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from centring.evaluate import run
from centring.random_streams import BATCH, DOUBLE, HIDDEN, TOKENS, WIDTH, Builder
from centring.repairing import count, distance, repaired
from onnx import TensorProto, helper, numpy_helper

from normlint.context import Context, Settings
from normlint.context.centring import _Analysis, streams
from normlint.graph import build_graph
from normlint.model import open_model

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT = 1e-7


def finished(b: Builder, *outputs: str) -> onnx.ModelProto:
    # Inference passes over operators of other domains: then the results' shapes are given.
    shape = [None] * 3 if any(node.domain for node in b.nodes) else None
    graph = helper.make_graph(
        b.nodes,
        "streams",
        b.inputs,
        [helper.make_tensor_value_info(name, DOUBLE, shape) for name in outputs],
        b.constants,
    )
    imports = [helper.make_opsetid("", b.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    return onnx.shape_inference.infer_shapes(model)


def builder(opset: int = 23, seed: int = 0) -> Builder:
    return Builder(np.random.default_rng(seed), opset)


def convertible(model: onnx.ModelProto) -> tuple[int, int, int]:
    """Give how many norms can be RMSNorms, of how many, and the explicit centrings."""
    opened = open_model(model.SerializeToString())
    found = streams(Context(build_graph(opened.proto, opened.values)))
    return (
        sum(len(stream.convertible) for stream in found),
        sum(len(stream.norms) for stream in found),
        sum(len(component.explicit) for stream in found for component in stream.components),
    )


def moved(b: Builder, before: onnx.ModelProto, after: onnx.ModelProto) -> float:
    random = np.random.default_rng(5)
    feeds = {name: draw(random) for name, draw in b.feeds.items()}
    return max(
        distance(old, new) for old, new in zip(run(before, feeds), run(after, feeds), strict=True)
    )


def norm(b: Builder, x: str, width: int = WIDTH, **attrs: Any) -> str:
    scale, bias = b.weight(width), b.weight(width)
    return str(b.op("LayerNormalization", x, scale, bias, epsilon=1e-3, **attrs))


def plain_norm(b: Builder, x: str, bias: np.ndarray | None = None) -> str:  # type: ignore[type-arg]
    inputs = [x, b.constant(np.full(WIDTH, 1.5))]
    if bias is not None:
        inputs.append(b.constant(bias))
    return str(b.op("LayerNormalization", *inputs))


def feed_forward(b: Builder, x: str, width: int = WIDTH) -> str:
    wide = b.op("Relu", b.op("Add", b.op("MatMul", x, b.weight(width, HIDDEN)), b.weight(HIDDEN)))
    return str(b.op("Add", b.op("MatMul", wide, b.weight(HIDDEN, width)), b.weight(width)))


def embedded(b: Builder, table: str | None = None) -> str:
    tokens = b.input(["B", "T"], kind=TensorProto.INT64, high=9)
    return str(b.op("Gather", table or b.weight(9, WIDTH), tokens))


def head(b: Builder, x: str) -> str:
    return str(b.op("Add", b.op("MatMul", x, b.weight(WIDTH, 3)), b.weight(3)))


def pre_norm(b: Builder) -> list[str]:
    t = embedded(b)
    for _ in range(2):
        t = b.op("Add", t, feed_forward(b, norm(b, t)))
    return [head(b, norm(b, t))]


def tied(b: Builder) -> list[str]:
    table = b.weight(9, WIDTH)
    t = embedded(b, table)
    t = b.op("Add", t, feed_forward(b, norm(b, t)))
    return [b.op("MatMul", norm(b, t), b.op("Transpose", table, perm=[1, 0]))]


def parallel(b: Builder) -> list[str]:
    t = embedded(b)
    t = b.op("Add", b.op("Add", t, feed_forward(b, norm(b, t))), feed_forward(b, norm(b, t)))
    return [head(b, norm(b, t))]


def layer_scale(b: Builder) -> list[str]:
    t = embedded(b)
    t = b.op("Add", t, b.op("Mul", feed_forward(b, norm(b, t)), b.weight(WIDTH)))
    return [head(b, norm(b, t))]


def shared_layer(b: Builder) -> list[str]:
    t, down = embedded(b), b.weight(HIDDEN, WIDTH)
    for _ in range(3):
        wide = b.op("Relu", b.op("MatMul", norm(b, t), b.weight(WIDTH, HIDDEN)))
        t = b.op("Add", t, b.op("MatMul", wide, down))
    return [head(b, norm(b, t))]


def given(b: Builder) -> list[str]:
    t = b.input(["B", "T", WIDTH])
    for _ in range(2):
        t = b.op("Add", t, feed_forward(b, norm(b, t)))
    return [head(b, norm(b, t))]


def tapped(b: Builder) -> list[str]:
    t = embedded(b)
    t = b.op("Add", t, feed_forward(b, norm(b, t)))
    tap = t
    for _ in range(2):
        t = b.op("Add", t, feed_forward(b, norm(b, t)))
    return [head(b, norm(b, t)), b.op("Relu", tap)]


def post_norm(b: Builder) -> list[str]:
    t = norm(b, embedded(b))
    for _ in range(2):
        t = norm(b, b.op("Add", t, feed_forward(b, t)))
    return [head(b, t)]


def plain_post_norm(b: Builder) -> list[str]:
    """Norms without scale and bias keep a stream of mean zero."""
    t = plain_norm(b, embedded(b))
    for _ in range(2):
        t = plain_norm(b, b.op("Add", t, feed_forward(b, t)))
    return [head(b, t)]


def uniform_post_norm(b: Builder) -> list[str]:
    """The mean of what such norms write is that of their biases; linear readers make up for it."""
    t = plain_norm(b, embedded(b), b.random.normal(1, 1, WIDTH))
    for _ in range(2):
        t = plain_norm(b, b.op("Add", t, feed_forward(b, t)), b.random.normal(1, 1, WIDTH))
    return [head(b, t)]


def two_streams(b: Builder) -> list[str]:
    memory = embedded(b)
    memory = norm(b, b.op("Add", memory, feed_forward(b, norm(b, memory))))
    t = b.op("Gather", b.weight(9, WIDTH), b.input([BATCH, TOKENS], kind=TensorProto.INT64, high=9))
    scores = b.op("MatMul", norm(b, t), b.op("Transpose", memory, perm=[0, 2, 1]))
    mixed = b.op("MatMul", b.op("MatMul", b.op("Softmax", scores), memory), b.weight(WIDTH, HIDDEN))
    t = b.op("Add", t, b.op("MatMul", mixed, b.weight(HIDDEN, WIDTH)))
    return [head(b, norm(b, t))]


def class_token(b: Builder) -> list[str]:
    patches = b.op(
        "Conv", b.input([BATCH, 3, 4, 4]), b.weight(WIDTH, 3, 2, 2), b.weight(WIDTH), strides=[2, 2]
    )
    flat = b.op("Reshape", patches, b.constant([BATCH, WIDTH, 4], np.int64))
    t = b.op("Transpose", flat, perm=[0, 2, 1])
    token = b.op("Expand", b.weight(1, 1, WIDTH), b.constant([BATCH, 1, 1], np.int64))
    t = b.op("Add", b.op("Concat", token, t, axis=1), b.weight(1, 5, WIDTH))
    t = b.op("Add", t, feed_forward(b, norm(b, t)))
    last = b.op("Gather", norm(b, t), b.constant(0, np.int64), axis=1)
    return [b.op("Gemm", last, b.weight(WIDTH, 3), b.weight(3))]


def bare_products(b: Builder) -> list[str]:
    """Linear writers without a bias, into which those of the norms move, one behind a factor."""
    t = b.op("Gather", b.weight(9, WIDTH), b.input([8], kind=TensorProto.INT64, high=9))
    t = b.op("Add", t, b.op("Gemm", norm(b, t), b.weight(WIDTH, WIDTH)))
    y = b.op("Gemm", norm(b, t), b.weight(WIDTH, WIDTH), transB=1)
    t = b.op("Add", t, b.op("Mul", y, b.weight(WIDTH)))
    y = b.op("Gemm", norm(b, t), b.weight(WIDTH, WIDTH))
    t = b.op("Add", t, b.op("Div", y, b.weight(1, WIDTH)))
    return [b.op("Gemm", norm(b, t), b.weight(WIDTH, 3))]


def bare_convolutions(b: Builder) -> list[str]:
    t = b.op("Transpose", embedded(b), perm=[0, 2, 1])
    for scaled in (False, True):
        y = b.op("Transpose", norm(b, b.op("Transpose", t, perm=[0, 2, 1])), perm=[0, 2, 1])
        y = b.op("Conv", y, b.weight(WIDTH, WIDTH, 1), kernel_shape=[1])
        t = b.op("Add", t, b.op("Mul", y, b.weight(WIDTH, 1)) if scaled else y)
    return [head(b, norm(b, b.op("Transpose", t, perm=[0, 2, 1])))]


def pooled(b: Builder) -> list[str]:
    t = b.op("Conv", b.input([BATCH, 3, 8]), b.weight(WIDTH, 3, 1), b.weight(WIDTH))
    t = b.op("AveragePool", t, kernel_shape=[2], strides=[2])
    t = b.op("Add", b.op("Transpose", t, perm=[0, 2, 1]), b.weight(WIDTH))
    t = b.op("Add", t, feed_forward(b, norm(b, t)))
    return [head(b, norm(b, t))]


def several_axes(b: Builder) -> list[str]:
    """Channels that stand on two axes, and on one for the linear operators."""
    table = b.weight(9, 2, 3)
    t = b.op("Gather", table, b.input([BATCH, TOKENS], kind=TensorProto.INT64, high=9))
    shaped = b.constant([BATCH, TOKENS, 2, 3], np.int64)
    y = b.op("LayerNormalization", t, b.weight(2, 3), b.weight(2, 3), axis=-2)
    flat = b.op("Reshape", y, b.constant([BATCH, TOKENS, WIDTH], np.int64))
    t = b.op("Add", t, b.op("Reshape", feed_forward(b, flat), shaped))
    return [b.op("LayerNormalization", t, b.weight(2, 3), axis=-2)]


def differences(b: Builder) -> list[str]:
    t = embedded(b)
    weight = b.random.normal(0, 1, (WIDTH, 3))
    tap = b.op("MatMul", t, b.constant(weight - weight.mean(axis=0)))
    t = b.op("Add", t, feed_forward(b, norm(b, t)))
    return [head(b, norm(b, t)), tap]


def several_norms(b: Builder) -> list[str]:
    t = embedded(b)
    return [head(b, norm(b, t)), head(b, norm(b, t)), head(b, norm(b, b.op("Neg", t)))]


def cached(b: Builder) -> list[str]:
    """The keys of a decoder are inputs and outputs of the graph; the stream is neither."""
    t = embedded(b)
    past = b.input(["B", "P", WIDTH])
    b.feeds[past] = lambda random: random.normal(0, 1, (BATCH, 3, WIDTH))
    keys = b.op("Concat", past, b.op("MatMul", norm(b, t), b.weight(WIDTH, WIDTH)), axis=1)
    mixed = b.op(
        "MatMul",
        b.op("Relu", b.op("MatMul", norm(b, t), b.weight(WIDTH, WIDTH))),
        b.op("Transpose", keys, perm=[0, 2, 1]),
    )
    mixed = b.op("MatMul", b.op("MatMul", mixed, keys), b.weight(WIDTH, WIDTH))
    t = b.op("Add", t, mixed)
    return [head(b, norm(b, t)), keys]


def halved(b: Builder) -> list[str]:
    """Parts of a stream of which one is centred explicitly must leave the other as it is."""
    t = b.input([BATCH, TOKENS, WIDTH])
    one, other = b.op("Split", t, b.constant([2, 2], np.int64), axis=1, outputs=2)
    one = b.op("Add", one, feed_forward(b, norm(b, one)))
    one = b.op("Add", one, feed_forward(b, norm(b, one)))
    return [head(b, norm(b, one)), b.op("Relu", other)]


def fused(b: Builder, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
    return b.op(kind, *inputs, outputs=outputs, domain="com.microsoft", **attrs)


def skipping(b: Builder, t: str, *branch: str, whole: bool = True) -> tuple[str, str]:
    """Give the sum of two tensors and a bias, and its norm, by one operator."""
    inputs = (*branch, t, b.weight(WIDTH), b.weight(WIDTH), b.weight(WIDTH))
    made = fused(b, "SkipLayerNormalization", *inputs, outputs=4 if whole else 1)
    return (made[3], made[0]) if whole else ("", made)


def narrow(b: Builder, x: str) -> str:
    """Give a branch whose biases the operators around add."""
    wide = fused(b, "FastGelu", b.op("MatMul", x, b.weight(WIDTH, HIDDEN)), b.weight(HIDDEN))
    return str(b.op("MatMul", wide, b.weight(HIDDEN, WIDTH)))


def skips(b: Builder) -> list[str]:
    """A Pre-LN stream as ONNX Runtime's optimiser leaves it; the last sum has no output."""
    t = embedded(b)
    y = norm(b, t)
    for _ in range(2):
        t, y = skipping(b, t, narrow(b, y))
    _, y = skipping(b, t, narrow(b, y), whole=False)
    return [head(b, y)]


def skips_of_a_given_stream(b: Builder) -> list[str]:
    """The first of these must take the mean from what is given."""
    t = b.input(["B", "T", WIDTH])
    y = norm(b, t)
    for _ in range(3):
        t, y = skipping(b, t, narrow(b, y))
    return [head(b, y)]


def skips_of_a_tapped_stream(b: Builder) -> list[str]:
    t = embedded(b)
    t, y = skipping(b, t, narrow(b, norm(b, t)))
    return [head(b, y), b.op("Relu", t)]


def skips_after_norms(b: Builder) -> list[str]:
    """Post-LN: the sum is read by nobody else, and a norm of a scale that varies writes it."""
    y = norm(b, embedded(b))
    for _ in range(2):
        _, y = skipping(b, y, narrow(b, y), whole=False)
    return [head(b, y)]


def fused_embeddings(b: Builder) -> list[str]:
    ids = b.input([BATCH, TOKENS], kind=TensorProto.INT32, high=9)
    tables = b.weight(9, WIDTH), b.weight(8, WIDTH)
    inputs = (ids, "", *tables, "", b.weight(WIDTH), b.weight(WIDTH))
    y, _, t = fused(b, "EmbedLayerNormalization", *inputs, outputs=3)
    t, y = skipping(b, t, narrow(b, y))
    _, y = skipping(b, t, fused(b, "FusedMatMul", y, b.weight(WIDTH, WIDTH), transB=1, alpha=0.5))
    return [head(b, y)]


def fused_products(b: Builder) -> list[str]:
    """Feed-forward blocks of which one operator computes product, bias and activation."""
    t = embedded(b)
    for _ in range(2):
        flat = b.op("Reshape", norm(b, t), b.constant([-1, WIDTH], np.int64))
        given = (flat, b.weight(HIDDEN, WIDTH), b.weight(HIDDEN))
        wide = fused(b, "FusedGemm", *given, transB=1, activation="Relu")
        y = b.op("Gemm", wide, b.weight(HIDDEN, WIDTH), b.weight(WIDTH))
        t = b.op("Add", t, b.op("Reshape", y, b.constant([-1, TOKENS, WIDTH], np.int64)))
    return [head(b, norm(b, t))]


def turned(b: Builder) -> list[str]:
    """Behind the subtraction of the mean the channels move to the end."""
    t = b.op("Conv", b.input([BATCH, 3, 4, 4]), b.weight(WIDTH, 3, 2, 2), b.weight(WIDTH))
    centred = b.op("Sub", t, b.op("ReduceMean", t, b.constant([1], np.int64)))
    y = b.op("Transpose", centred, perm=[0, 2, 3, 1])
    variance = b.op("ReduceMean", b.op("Mul", y, y), b.constant([-1], np.int64))
    y = b.op("Div", y, b.op("Sqrt", b.op("Add", variance, b.constant(1e-3))))
    return [head(b, b.op("Add", b.op("Mul", y, b.weight(WIDTH)), b.weight(WIDTH)))]


KINDS: dict[Callable[[Builder], list[str]], tuple[int, int, int]] = {
    pre_norm: (3, 3, 0),
    tied: (2, 2, 0),
    parallel: (3, 3, 0),
    layer_scale: (2, 2, 0),
    shared_layer: (4, 4, 0),
    given: (3, 3, 1),
    tapped: (3, 4, 1),
    post_norm: (1, 3, 0),
    plain_post_norm: (3, 3, 0),
    uniform_post_norm: (3, 3, 0),
    two_streams: (4, 4, 0),
    class_token: (2, 2, 0),
    bare_products: (4, 4, 0),
    bare_convolutions: (3, 3, 0),
    pooled: (2, 2, 0),
    several_axes: (2, 2, 0),
    differences: (2, 2, 0),
    several_norms: (3, 3, 0),
    cached: (3, 3, 0),
    halved: (3, 3, 1),
    skips: (4, 4, 0),
    skips_of_a_given_stream: (4, 4, 1),
    skips_of_a_tapped_stream: (0, 2, 0),
    skips_after_norms: (1, 3, 0),
    fused_embeddings: (3, 3, 0),
    fused_products: (3, 3, 0),
    turned: (1, 1, 0),
}
"""What can convert, of how many norms, with how many explicit centrings."""
LEFT = {fused_embeddings: 1}
"""Norms whose operator has no form without the mean."""


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_kind_of_stream(make: Callable[[Builder], list[str]]) -> None:
    b = builder()
    model = finished(b, *make(b))
    assert convertible(model) == KINDS[make]
    result = repaired(model)
    assert count(result.proto) == KINDS[make][0] - LEFT.get(make, 0)
    assert moved(b, model, result.proto) < EXACT
    assert not repaired(result.proto).fixed
    onnx.checker.check_model(result.proto, full_check=True)


def narrowed(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """Give a model with another float type in place of double."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    graph = made.graph
    values = [a.t for node in graph.node for a in node.attribute if a.HasField("t")]
    for tensor in (*graph.initializer, *values):
        if tensor.data_type == DOUBLE:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == DOUBLE:
            value.type.tensor_type.elem_type = kind
    return made


IN_HALF = {differences: (2, 2, 1)}
"""Columns that sum to zero no longer do so once they are rounded."""
PRECISIONS = {TensorProto.FLOAT: 1e-5, TensorProto.FLOAT16: 2e-2, TensorProto.BFLOAT16: 0.15}
"""Error that weights leave which are rounded once more, through a few layers."""


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_kind_of_stream_in_every_precision(
    make: Callable[[Builder], list[str]], kind: int
) -> None:
    b = builder()
    model = narrowed(finished(b, *make(b)), kind)
    expected = KINDS[make] if kind == TensorProto.FLOAT else IN_HALF.get(make, KINDS[make])
    assert convertible(model) == expected
    result = repaired(model)
    assert count(result.proto) == KINDS[make][0] - LEFT.get(make, 0)
    assert moved(b, model, result.proto) < PRECISIONS[kind]
    assert not repaired(result.proto).fixed


@pytest.mark.parametrize("opset", [11, 13, 16])
def test_what_is_spelled_out_gets_fewer_nodes_below_the_operator(opset: int) -> None:
    b = builder(opset)
    t = embedded(b)
    mean = b.op("ReduceMean", t, axes=[-1])
    centred = b.op("Sub", t, mean)
    variance = b.op("ReduceMean", b.op("Pow", centred, b.constant(2.0)), axes=[-1])
    root = b.op("Sqrt", b.op("Add", variance, b.constant(1e-5)))
    y = b.op("Mul", b.op("Div", centred, root), b.weight(WIDTH))
    model = finished(b, head(b, b.op("Add", y, b.weight(WIDTH))))
    result = repaired(model, Settings())
    ops = [node.op_type for node in result.proto.graph.node]
    assert "Sub" not in ops
    before = [node.op_type for node in model.graph.node if node.op_type != "Constant"]
    assert len(ops) == len(before) - 3, "mean, difference and bias are gone"
    assert moved(b, model, result.proto) < EXACT


def test_channels_first_streams_are_spelled_without_the_mean() -> None:
    b = builder()
    x = b.input([BATCH, 3, 4, 4])
    t = b.op("Conv", x, b.weight(WIDTH, 3, 1, 1), b.weight(WIDTH))
    axes = b.constant([1], np.int64)
    centred = b.op("Sub", t, b.op("ReduceMean", t, axes))
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), axes)
    root = b.op("Sqrt", b.op("Add", variance, b.constant(1e-5)))
    y = b.op("Mul", b.op("Div", centred, root), b.weight(WIDTH, 1, 1))
    model = finished(b, b.op("Add", y, b.weight(WIDTH, 1, 1)))
    assert convertible(model) == (1, 1, 0)
    result = repaired(model, Settings())
    assert "Sub" not in [node.op_type for node in result.proto.graph.node]
    assert moved(b, model, result.proto) < EXACT


@pytest.mark.parametrize(
    ("settings", "made"),
    [
        ({}, 0),
        ({"target_opset": 22}, 0),
        ({"target_opset": 23}, 2),
        ({"target_opset": 23, "targets": frozenset({"openvino"})}, 0),
        ({"target_opset": 23, "rms_norm_policy": "always"}, 3),
    ],
)
def test_an_operator_is_replaced_by_an_operator_only(settings: dict[str, Any], made: int) -> None:
    b = builder(17)
    t = embedded(b)
    y = head(b, norm(b, t))
    t = b.op("Add", t, feed_forward(b, norm(b, t)))
    model = finished(b, y, norm(b, t))
    assert count(repaired(model, Settings(**settings)).proto) == made


def test_biases_of_uniform_norms_move_past_the_residual_sums() -> None:
    b = builder()
    model = finished(b, *uniform_post_norm(b))
    result = repaired(model, Settings(target_opset=23))
    ops = [node.op_type for node in result.proto.graph.node if node.op_type != "Constant"]
    assert ops.count("RMSNormalization") == 3
    assert len(ops) == len([n for n in model.graph.node if n.op_type != "Constant"])
    assert moved(b, model, result.proto) < EXACT


def test_a_named_runtime_gets_the_spelling_that_it_fuses() -> None:
    b = builder(17)
    model = finished(b, head(b, norm(b, embedded(b))))
    settings = Settings(targets=frozenset({"onnxruntime"}))
    result = repaired(model, settings)
    ops = [node.op_type for node in result.proto.graph.node]
    assert ops == ["Gather", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "MatMul", "Add"]
    assert moved(b, model, result.proto) < EXACT


def test_copies_are_counted_where_others_read_the_same_weights() -> None:
    b = builder()
    model = finished(b, *tied(b))
    result = repaired(model)
    copied = [finding for finding in result.fixed if finding.code == "NL203"]
    assert copied[0].evidence["extra_bytes"] == 9 * WIDTH * 8
    names = {tensor.name for tensor in result.proto.graph.initializer}
    assert model.graph.node[0].input[0] in names


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_weights_are_rounded_once_to_their_own_type(kind: int) -> None:
    b = builder()
    tokens = b.input([BATCH, TOKENS], kind=TensorProto.INT64, high=9)
    numpy_type = helper.tensor_dtype_to_np_dtype(kind)
    table = b.random.normal(0.5, 1, (9, WIDTH)).astype(numpy_type)
    b.constants.append(numpy_helper.from_array(table, "table"))
    b.constants.append(numpy_helper.from_array(np.ones(WIDTH, numpy_type), "scale"))
    b.nodes.append(helper.make_node("Gather", ["table", tokens], ["t"]))
    b.nodes.append(helper.make_node("LayerNormalization", ["t", "scale"], ["y"]))
    model = finished(b, "y")
    model.graph.output[0].type.tensor_type.elem_type = kind
    result = repaired(onnx.shape_inference.infer_shapes(model))
    assert count(result.proto) == 1
    new = next(t for t in result.proto.graph.initializer if list(t.dims) == [9, WIDTH])
    assert new.data_type == kind
    wide = table.astype(np.float64)
    exact = (wide - wide.mean(axis=1, keepdims=True)).astype(numpy_type)
    assert (numpy_helper.to_array(new) == exact).all()


def test_a_long_stream_that_does_not_pay_is_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One norm at its end does not pay for the mean of what is given, wherever it is subtracted."""
    b = builder()
    t = b.input(["B", "T", WIDTH])
    for _ in range(30):
        t = b.op("Add", t, feed_forward(b, t))
    model = finished(b, head(b, norm(b, t)))
    rounds = []
    connected = _Analysis._connected

    def counted(self: _Analysis) -> Any:
        rounds.append(self)
        return connected(self)

    monkeypatch.setattr(_Analysis, "_connected", counted)
    assert convertible(model) == (0, 1, 0)
    assert len(rounds) <= 2
