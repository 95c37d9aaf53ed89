"""Where norms stand, in stacks of every placement and spelling."""

from __future__ import annotations

from itertools import pairwise

import onnx
import pytest
from context.stacks import PLACEMENTS, WIDTH, Stack, context_of, stacked, words
from onnx import helper

from normlint.context.places import Place

EXPECTED = {
    "pre": ["pre"] * 6 + ["final"],
    "post": ["post"] * 6,
    "res-post": ["res-post"] * 6 + ["final"],
    "sandwich": ["sandwich"] * 12 + ["final"],
    "deepnorm": ["deepnorm"] * 6,
    "admin": ["deepnorm"] * 6,
    "parallel": ["parallel"] * 3 + ["final"],
    "bare": ["final"],
}


@pytest.mark.parametrize("spelled", [False, True])
@pytest.mark.parametrize("placement", EXPECTED)
def test_each_placement_is_told_in_each_spelling(placement: str, *, spelled: bool) -> None:
    context = context_of(stacked(placement, 3, spelled=spelled))

    assert words(context) == EXPECTED[placement]
    assert [stream.depth for stream in context.streams] == [3]
    assert [stream.blocks for stream in context.streams] == [6]


@pytest.mark.parametrize("placement", EXPECTED)
def test_shapes_are_not_needed(placement: str) -> None:
    model = stacked(placement, 2)
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    model.graph.input[0].type.tensor_type.ClearField("shape")

    context = context_of(model)

    assert set(words(context)) == set(EXPECTED[placement])
    assert context.streams[0].depth == 2


@pytest.mark.parametrize("placement", EXPECTED)
def test_casts_and_dropout_and_quantisation_hide_nothing(placement: str) -> None:
    model = stacked(placement, 2)
    plain = words(context_of(model))
    graph = model.graph
    nodes = []
    scale, zero = helper.make_tensor("s", 1, [], [0.1]), helper.make_tensor("z", 3, [], [0])
    graph.initializer.extend([scale, zero])
    for node in graph.node:
        nodes.append(node)
        if node.op_type not in {"Add", "LayerNormalization"}:
            continue
        name = node.output[0]
        if any(name == output.name for output in graph.output):
            continue
        node.output[0] = f"{name}/raw"
        nodes += [
            helper.make_node("Dropout", [f"{name}/raw"], [f"{name}/kept"]),
            helper.make_node("QuantizeLinear", [f"{name}/kept", "s", "z"], [f"{name}/q"]),
            helper.make_node("DequantizeLinear", [f"{name}/q", "s", "z"], [name]),
        ]
    del graph.node[:]
    graph.node.extend(nodes)

    assert words(context_of(model)) == plain


def test_layers_are_numbered_along_the_stream() -> None:
    context = context_of(stacked("pre", 3))

    spots = [context.placement(norm) for norm in context.norms]

    assert [spot.depth for spot in spots] == [0, 0, 1, 1, 2, 2, 2]
    assert {spot.stream for spot in spots} == {0}
    assert all(a.depth <= b.depth for a, b in pairwise(spots))


def test_what_a_norm_follows() -> None:
    stack = Stack()
    y = stack.layer(stack.norm(stack.linear("x")), "post", stack.feed_forward)
    context = context_of(stack.model(y))

    assert [context.placement(norm).follows for norm in context.norms] == ["MatMul", "Add"]
    assert words(context) == ["embedding", "post"]


def test_norms_of_queries_and_keys_and_within_a_branch() -> None:
    stack = Stack()
    y = stack.layer("x", "pre", lambda t: stack.attention(t, normed=True))
    y = stack.layer(y, "pre", lambda t: stack.linear(stack.norm(stack.linear(t))))
    context = context_of(stack.model(stack.norm(y)))

    assert words(context) == ["pre", "qk", "qk", "pre", "branch", "final"]


def test_a_norm_of_looked_up_embeddings() -> None:
    stack = Stack()
    words_ = stack.add("Gather", stack.weight(10, WIDTH), "ids")
    positions = stack.add("Gather", stack.weight(10, WIDTH), "places")
    x = stack.norm(stack.add("Add", words_, positions))
    y = stack.layers(x, "post", 2)
    model = stack.model(y, inputs={"ids": ("B", "T"), "places": ("B", "T")}, integers="ids places")

    context = context_of(model)

    assert words(context) == ["embedding", "post", "post", "post", "post"]
    assert context.sequence.described()["token_lookups"] == 2


def test_layer_scale_and_masks_and_biases_do_not_hide_a_norm() -> None:
    stack = Stack()

    def scaled(x: str) -> str:
        return stack.add("Mul", stack.feed_forward(x), stack.weight(WIDTH))

    y = stack.layer("x", "pre", scaled, scaled)
    y = stack.add("Where", "mask", y, stack.number(0.0))
    y = stack.layer(y, "pre", scaled)
    model = stack.model(stack.norm(y), inputs={"x": (1, 8, WIDTH), "mask": (1, 8, 1)})
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BOOL

    context = context_of(model)

    assert words(context) == ["pre", "pre", "pre", "final"]
    assert len(context.streams) == 1


def test_a_class_token_in_front_stays_on_the_stream() -> None:
    stack = Stack()
    x = stack.add("Concat", stack.weight(1, 1, WIDTH), stack.linear("x"), axis=1)
    x = stack.add("Add", x, stack.weight(1, 9, WIDTH))
    y = stack.norm(stack.layers(x, "pre", 2))
    first = stack.add("Gather", y, stack.constant("zero", 0), axis=1)
    context = context_of(stack.model(stack.linear(first), inputs={"x": (1, 8, WIDTH)}))

    assert words(context) == ["pre"] * 4 + ["final"]
    assert len(context.sequence.positions) == 1


@pytest.mark.parametrize("split", [False, True])
def test_a_rotation_of_queries_and_keys_is_no_residual(*, split: bool) -> None:
    stack = Stack()

    def rotated(x: str) -> str:
        if split:
            half = stack.add("Split", x, stack.axes(2, 2), outputs=2, axis=-1)
            other = f"{half}_1"
        else:
            half = stack.add("Slice", x, stack.axes(0), stack.axes(2), stack.axes(2))
            other = stack.add("Slice", x, stack.axes(2), stack.axes(4), stack.axes(2))
        turned = stack.add("Concat", stack.add("Neg", other), half, axis=-1)
        cosine = stack.add("Mul", x, stack.weight(8, WIDTH))
        return stack.add("Add", cosine, stack.add("Mul", turned, stack.weight(8, WIDTH)))

    def attention(x: str) -> str:
        queries = rotated(stack.norm(stack.linear(x)))
        keys = rotated(stack.norm(stack.linear(x)))
        scores = stack.add("MatMul", queries, stack.add("Transpose", keys, perm=[0, 2, 1]))
        mixed = stack.add("MatMul", stack.add("Softmax", scores), stack.linear(x))
        return stack.linear(mixed)

    y = stack.norm(stack.layer("x", "pre", attention))
    context = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)}))

    assert words(context) == ["pre", "qk", "qk", "final"]
    assert context.streams[0].blocks == 1


def test_residual_networks_of_convolutions() -> None:
    stack = Stack()

    def conv(x: str) -> str:
        return stack.add("Conv", x, stack.weight(WIDTH, WIDTH, 3, 3), pads=[1, 1, 1, 1])

    x = conv("x")
    before = stack.add("Relu", stack.batch_norm(x))
    x = stack.add("Add", x, conv(before))
    y = stack.add("Relu", stack.batch_norm(stack.add("Add", x, conv(stack.batch_norm(x)))))
    behind = stack.batch_norm(conv(y))
    z = stack.add("Relu", stack.add("Add", y, behind))
    z = stack.add("Relu", stack.add("Add", z, stack.batch_norm(conv(z))))
    context = context_of(stack.model(z, inputs={"x": (1, WIDTH, 8, 8)}))

    assert words(context)[:2] == ["pre", "pre"]
    assert words(context)[-2:] == ["res-post", "res-post"]
    assert [stream.depth for stream in context.streams] == [4]


def test_a_stage_that_starts_with_a_projected_skip_counts_its_first_block() -> None:
    stack = Stack()

    def conv(x: str, size: int = 3) -> str:
        pads = [size // 2] * 4
        return stack.add("Conv", x, stack.weight(WIDTH, WIDTH, size, size), pads=pads)

    x = "x"
    for _ in range(2):
        branch = conv(stack.add("Relu", conv(x)))
        x = stack.add("Relu", stack.add("Add", branch, conv(x, 1)))
        branch = conv(stack.add("Relu", conv(x)))
        x = stack.add("Relu", stack.add("Add", branch, x))
    context = context_of(stack.model(x, inputs={"x": (1, WIDTH, 8, 8)}))

    assert sum(stream.blocks for stream in context.streams) == 4


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_streams_in_a_function_and_in_a_branch_of_an_if_are_seen(placement: str) -> None:
    inner = Stack()
    y = inner.layers("x", placement, 2)
    expected = words(context_of(inner.model(y)))
    body = inner.model(y)
    function = helper.make_function(
        "local",
        "Encoder",
        ["x", *inner.initializers],
        [y],
        inner.nodes,
        [helper.make_opsetid("", 17)],
    )
    call = helper.make_node("Encoder", ["x", *inner.initializers], ["out"], domain="local")
    outer = inner.model("out")
    del outer.graph.node[:]
    outer.graph.node.append(call)
    outer.functions.append(function)
    outer.opset_import.append(helper.make_opsetid("local", 1))

    assert words(context_of(outer)) == expected

    branch = helper.make_graph(inner.nodes, "then", [], [body.graph.output[0]])
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["same"])],
        "else",
        [],
        [helper.make_tensor_value_info("same", 1, None)],
    )
    choice = helper.make_node("If", ["flag"], ["out"], then_branch=branch, else_branch=other)
    chosen = inner.model("out", inputs={"x": (1, 8, WIDTH), "flag": ()})
    chosen.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    del chosen.graph.node[:]
    chosen.graph.node.append(choice)
    context = context_of(chosen)

    assert words(context) == expected
    assert context.streams[0].graph is not context.graph


def test_fused_operators_that_add_before_they_norm() -> None:
    stack = Stack()
    x = "x"
    for branch in (stack.attention, stack.feed_forward) * 2:
        scale, bias = stack.weight(WIDTH), stack.weight(WIDTH)
        x = stack.add("SkipLayerNormalization", branch(x), x, scale, bias, domain="com.microsoft")
    context = context_of(stack.model(x))

    assert words(context) == ["post"] * 4
    assert context.streams[0].depth == 2


def test_a_pre_norm_stack_of_fused_operators_goes_on_with_their_sums() -> None:
    stack = Stack()
    normed, total = stack.norm("x"), "x"
    for branch in (stack.feed_forward,) * 3:
        node = stack.add(
            "SkipLayerNormalization",
            total,
            branch(normed),
            stack.weight(WIDTH),
            domain="com.microsoft",
            outputs=4,
        )
        normed, total = node, f"{node}_3"
    context = context_of(stack.model(stack.linear(normed)))

    assert words(context) == ["pre", "pre", "pre", "final"]
    assert context.streams[0].blocks == 3


def test_whole_attention_operators() -> None:
    stack = Stack()

    def fused(x: str) -> str:
        weights, bias = stack.weight(WIDTH, 3 * WIDTH), stack.weight(3 * WIDTH)
        return stack.linear(
            stack.add("Attention", x, weights, bias, domain="com.microsoft", num_heads=2)
        )

    def heads(x: str) -> str:
        queries, keys, values = (stack.linear(x) for _ in range(3))
        return stack.linear(
            stack.add(
                "MultiHeadAttention", queries, keys, values, domain="com.microsoft", num_heads=2
            )
        )

    y = stack.layer("x", "pre", fused, stack.feed_forward)
    y = stack.norm(stack.layer(y, "pre", heads, stack.feed_forward))
    context = context_of(stack.model(y))

    assert words(context) == ["pre"] * 4 + ["final"]
    assert context.streams[0].depth == 2
    assert len(context.sequence.attentions) == 2


def test_norms_apart_from_any_stream_have_no_place() -> None:
    stack = Stack()
    context = context_of(stack.model(stack.norm(stack.linear(stack.norm("x")))))

    assert words(context) == ["none", "none"]
    assert context.streams == ()


def test_a_norm_of_another_model_is_unknown() -> None:
    other = context_of(stacked("pre", 1)).norms[0]

    assert context_of(stacked("pre", 1)).placement(other).word is Place.UNKNOWN


def test_a_fused_sum_of_looked_up_tokens_and_a_table_is_no_attention() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (int64[1,2] ids) => (float[1,2,4] y)
        <float[3,4] words = {1,2,3,4,5,6,7,8,9,8,7,6}, float[1,2,4] places = {1,2,3,4,5,6,7,8},
         float[4] scale = {1,2,3,4}> {
            tokens = Gather(words, ids)
            y = com.microsoft.SkipLayerNormalization(tokens, places, scale, scale)
        }
    """
    context = context_of(onnx.parser.parse_model(text))

    assert words(context) == ["none"]
