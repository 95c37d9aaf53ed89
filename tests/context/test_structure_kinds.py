"""Streams of networks that differ from a plain stack: stages, class tokens, fused sums, taps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from context.stacks import WIDTH, Stack, context_of, words

from normlint.context.endings import ends_bare
from normlint.context.neighbours import feature_axis, next_to_convolution, remark


def merged(stack: Stack, x: str) -> str:
    """Join each token with its neighbour, as between two stages of a Swin."""
    parts = [stack.add("Slice", x, *(stack.axes(v) for v in (start, 8, 1, 2))) for start in (0, 1)]
    return stack.add("Concat", *parts, axis=-1)


def test_stages_joined_by_a_merge_of_patches() -> None:
    stack = Stack()
    x = stack.layers("x", "pre", 2)
    wide = stack.add(
        "LayerNormalization", merged(stack, x), stack.weight(2 * WIDTH), stack.weight(2 * WIDTH)
    )
    x = stack.add("MatMul", wide, stack.weight(2 * WIDTH, WIDTH))
    y = stack.norm(stack.layers(x, "pre", 1))
    context = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)}))

    assert words(context) == ["pre"] * 4 + ["none"] + ["pre"] * 2 + ["final"]
    assert [stream.depth for stream in context.streams] == [2, 1]
    assert not ends_bare(context.streams[0], context.structure)


@pytest.mark.parametrize(("placement", "between"), [("res-post", "res-post"), ("pre", "none")])
def test_a_norm_behind_the_merge(placement: str, between: str) -> None:
    stack = Stack()
    x = stack.layers("x", placement, 1)
    x = stack.norm(stack.add("MatMul", merged(stack, x), stack.weight(2 * WIDTH, WIDTH)))
    y = stack.norm(stack.layers(x, placement, 1))
    context = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)}))

    assert words(context) == [placement] * 2 + [between] + [placement] * 2 + ["final"]


def test_class_attention_on_a_token_of_the_file() -> None:
    stack = Stack()
    patches = stack.layers("x", "pre", 2)
    token = stack.weight(1, 1, WIDTH)
    for _ in range(2):
        normed = stack.norm(stack.add("Concat", token, patches, axis=1))
        first = stack.add("Slice", normed, stack.axes(0), stack.axes(1), stack.axes(1))
        token = stack.add("Add", token, stack.attention(first, normed))
        token = stack.layer(token, "pre", stack.feed_forward)
    y = stack.norm(stack.add("Concat", token, patches, axis=1))
    context = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)}))

    assert words(context) == ["pre"] * 8 + ["final"]
    assert [stream.depth for stream in context.streams] == [2, 2]


def test_class_attention_that_norms_the_token_alone() -> None:
    stack = Stack()
    x = stack.layers("x", "pre", 1)
    token = stack.add("Slice", x, stack.axes(0), stack.axes(1), stack.axes(1))
    rest = stack.add("Slice", x, stack.axes(1), stack.axes(9), stack.axes(1))
    x = stack.add("Concat", stack.norm(token), rest, axis=1)
    mixed = stack.feed_forward(stack.add("Slice", x, stack.axes(0), stack.axes(1), stack.axes(1)))
    x = stack.add("Add", x, stack.add("Concat", mixed, rest, axis=1))
    context = context_of(stack.model(stack.norm(x), inputs={"x": (1, 9, WIDTH)}))

    assert words(context)[:2] == ["pre", "pre"]
    assert words(context)[-1] == "final"
    assert len(context.streams) == 1


def test_tokens_of_two_streams_are_not_joined_to_one() -> None:
    stack = Stack()
    left, right = stack.layers("x", "pre", 1), stack.layers("z", "pre", 1)
    both = stack.add("Concat", left, right, axis=1)
    y = stack.layers(both, "pre", 1)
    shapes = {"x": (1, 8, WIDTH), "z": (1, 8, WIDTH)}
    context = context_of(stack.model(stack.norm(y), inputs=shapes))

    assert [stream.depth for stream in context.streams] == [1, 1, 1]


def test_a_convolution_of_what_the_stream_was_before() -> None:
    stack = Stack()
    embedded = stack.norm(stack.linear("x"))
    x = stack.layers(embedded, "post", 1)
    x = stack.norm(stack.add("Add", x, stack.add("Tanh", stack.linear(embedded))))
    y = stack.layers(x, "post", 1)
    context = context_of(stack.model(y))

    assert words(context) == ["embedding"] + ["post"] * 5
    assert [stream.blocks for stream in context.streams] == [5]


def test_branches_that_are_added_to_each_other_first() -> None:
    stack = Stack()
    x = "x"
    for _ in range(2):
        normed = stack.norm(x)
        sides = stack.add("Add", stack.feed_forward(normed), stack.attention(normed))
        x = stack.add("Add", sides, x)
    context = context_of(stack.model(stack.norm(x)))

    assert words(context) == ["parallel", "parallel", "final"]
    assert context.streams[0].depth == 2


def test_experts_side_by_side_are_no_parallel_branches() -> None:
    stack = Stack()
    x = stack.layer("x", "pre", stack.attention)
    normed = stack.norm(x)
    experts = stack.add("Add", stack.feed_forward(normed), stack.feed_forward(normed))
    x = stack.norm(stack.add("Add", x, experts))
    context = context_of(stack.model(x))

    assert words(context) == ["pre", "pre", "final"]


def test_a_low_rank_update_beside_a_projection_is_no_branch_of_its_own() -> None:
    stack = Stack()

    def adapted(x: str) -> str:
        low = stack.add("MatMul", x, stack.weight(WIDTH, 1))
        update = stack.add("MatMul", low, stack.weight(1, WIDTH))
        return stack.add("Add", stack.add("MatMul", x, stack.weight(WIDTH, WIDTH)), update)

    y = stack.norm(stack.layer("x", "pre", adapted, adapted))
    context = context_of(stack.model(y))

    assert words(context) == ["pre", "pre", "final"]
    assert [stream.blocks for stream in context.streams] == [2]


def test_sums_within_linear_operators() -> None:
    stack = Stack()
    x = "x"
    for _ in range(2):
        hidden = stack.add("Relu", stack.add("Gemm", stack.norm(x), stack.weight(WIDTH, WIDTH)))
        x = stack.add("Gemm", hidden, stack.weight(WIDTH, WIDTH), x)
    context = context_of(stack.model(stack.norm(x), inputs={"x": ("B", WIDTH)}))

    assert words(context) == ["pre", "pre", "final"]
    assert context.streams[0].blocks == 2


def test_fused_embeddings() -> None:
    stack = Stack()
    tables = [stack.weight(10, WIDTH) for _ in range(3)]
    scale, bias = stack.weight(WIDTH), stack.weight(WIDTH)
    x = stack.add(
        "EmbedLayerNormalization", "ids", "types", *tables, scale, bias, domain="com.microsoft"
    )
    y = stack.layers(x, "post", 1)
    shapes = {"ids": ("B", "T"), "types": ("B", "T")}
    model = stack.model(y, inputs=shapes, integers="ids types")

    assert words(context_of(model)) == ["embedding", "post", "post"]


def test_fused_sums_with_a_bias_and_with_queries_of_the_file() -> None:
    stack = Stack()
    queries = stack.weight(1, 3, WIDTH)
    mixed = stack.attention(queries, stack.linear("x"))
    scale, bias = stack.weight(WIDTH), stack.weight(WIDTH)
    x = stack.add("SkipLayerNormalization", queries, mixed, scale, bias, domain="com.microsoft")
    branch = stack.add("MatMul", stack.add("Relu", stack.linear(x)), stack.weight(WIDTH, WIDTH))
    extra = stack.weight(WIDTH)
    y = stack.add("SkipLayerNormalization", branch, x, scale, bias, extra, domain="com.microsoft")
    context = context_of(stack.model(y))

    assert words(context) == ["post", "post"]
    assert context.streams[0].blocks == 2


def test_quantisation_at_run_time_is_looked_through() -> None:
    stack = Stack()

    def quantised(x: str) -> str:
        value = stack.add("DynamicQuantizeLinear", x, outputs=3)
        weight = stack.constant(f"q{len(stack.nodes)}", np.ones((WIDTH, WIDTH), np.int8))
        product = stack.add("MatMulInteger", value, weight, f"{value}_2")
        scale = stack.add("Mul", f"{value}_1", stack.number(0.1))
        return stack.add("Mul", stack.add("Cast", product, to=1), scale)

    y = stack.norm(stack.layer("x", "pre", quantised, quantised))
    context = context_of(stack.model(y))

    assert words(context) == ["pre", "pre", "final"]


@pytest.mark.parametrize("attribute", [False, True])
def test_a_guard_against_overflow_is_looked_through(*, attribute: bool) -> None:
    stack = Stack(opset=10 if attribute else 17, spelled=True)
    x = "x"
    for _ in range(2):
        x = stack.layer(x, "pre", stack.feed_forward)
        if attribute:
            x = stack.add("Clip", x, min=-65504.0, max=65504.0)
        else:
            x = stack.add("Clip", x, stack.number(-65504.0), stack.number(65504.0))
    context = context_of(stack.model(stack.norm(x)))

    assert words(context) == ["pre", "pre", "final"]
    assert [stream.blocks for stream in context.streams] == [2]


def test_an_argument_of_the_maximum_is_no_data() -> None:
    stack = Stack()
    best = stack.add("ArgMax", stack.linear("x"), axis=-1, keepdims=0)
    looked_up = stack.add("Gather", stack.weight(10, WIDTH), best)
    context = context_of(stack.model(stack.norm(stack.layers(looked_up, "pre", 1))))

    assert words(context) == ["pre", "pre", "final"]
    assert len(context.sequence.lookups) == 1


def test_scales_that_depend_on_a_condition() -> None:
    stack = Stack()

    def modulated(x: str) -> str:
        wide = stack.linear("c", WIDTH, 2 * WIDTH)
        scale = stack.add("Split", wide, stack.axes(WIDTH, WIDTH), outputs=2, axis=-1)
        shifted = stack.add("Add", scale, stack.number(1.0))
        return stack.add("Add", stack.add("Mul", stack.norm(x), shifted), f"{scale}_1")

    x = "x"
    for branch in (stack.attention, stack.feed_forward):
        x = stack.add("Add", x, stack.add("Mul", stack.linear("c"), branch(modulated(x))))
    shapes = {"x": (1, 8, WIDTH), "c": (1, 1, WIDTH)}
    context = context_of(stack.model(stack.linear(modulated(x)), inputs=shapes))

    assert words(context) == ["pre", "pre", "final"]


def test_a_norm_behind_the_last_norm_and_one_behind_a_pool_are_final() -> None:
    stack = Stack()
    y = stack.norm(stack.layers("x", "post", 1))
    assert words(context_of(stack.model(y))) == ["post", "post", "final"]

    stack = Stack()
    pooled = stack.add("ReduceMean", stack.layers("x", "pre", 1), axes=[1])
    y = stack.norm(stack.add("Relu", pooled))
    assert words(context_of(stack.model(y))) == ["pre", "pre", "final"]


def test_mixers_without_weights() -> None:
    stack = Stack()

    def pooled(x: str) -> str:
        channels = stack.add("Transpose", x, perm=[0, 2, 1])
        mean = stack.add("AveragePool", channels, kernel_shape=[3], pads=[1, 1])
        return stack.add("Transpose", mean, perm=[0, 2, 1])

    x = "x"
    for _ in range(3):
        x = stack.layer(x, "pre", pooled, stack.feed_forward)
    context = context_of(stack.model(stack.norm(x), inputs={"x": (1, 8, WIDTH)}))

    assert words(context) == ["pre"] * 6 + ["final"]
    assert context.streams[0].depth == 3


def test_branches_side_by_side_without_attention_are_additions_of_their_own() -> None:
    stack = Stack()
    normed = stack.norm("x")
    x = stack.add("Add", "x", stack.feed_forward(normed))
    x = stack.add("Add", x, stack.feed_forward(normed))
    context = context_of(stack.model(stack.norm(x)))

    assert "parallel" not in words(context)


def test_the_end_of_a_stream_that_is_tapped_or_mixed() -> None:
    stack = Stack()
    y = stack.layers("x", "pre", 1)
    pooled = stack.add("ReduceMean", stack.add("Relu", y), axes=[1])
    context = context_of(stack.model(stack.linear(pooled)))
    assert ends_bare(context.streams[0], context.structure)

    stack = Stack()
    y = stack.layers("x", "pre", 1)
    mixed = stack.add("MatMul", y, stack.add("Transpose", y, perm=[0, 2, 1]))
    context = context_of(stack.model(mixed))
    assert not ends_bare(context.streams[0], context.structure)

    stack = Stack()
    y = stack.layers("x", "pre", 1)
    for _ in range(100):
        y = stack.add("Relu", y)
    context = context_of(stack.model(stack.linear(y)))
    assert not ends_bare(context.streams[0], context.structure)


def conv(stack: Stack, x: str) -> str:
    return stack.add("Conv", x, stack.weight(WIDTH, WIDTH, 3), pads=[1, 1])


def moved(stack: Stack, x: str, op: str, *inputs: str, **attrs: Any) -> str:
    return stack.batch_norm(stack.add(op, x, *inputs, **attrs))


@pytest.mark.parametrize(
    ("make", "axis"),
    [
        (lambda s: s.batch_norm(s.linear("x")), 2),
        (lambda s: moved(s, s.linear("x"), "Transpose", perm=[0, 2, 1]), 1),
        (lambda s: moved(s, s.linear("x"), "Transpose"), 0),
        (lambda s: moved(s, s.linear("x"), "Reshape", s.axes(-1, WIDTH)), 1),
        (lambda s: moved(s, s.linear("x"), "Reshape", s.axes(-1, 2)), None),
        (lambda s: moved(s, s.linear("x"), "Unsqueeze", s.axes(1)), 3),
        (lambda s: s.batch_norm(s.add("Relu", conv(s, "x"))), 1),
        (lambda s: s.batch_norm(s.add("CumSum", s.linear("x"), s.constant("one", 1))), None),
        (lambda s: s.batch_norm("x"), None),
        (lambda s: s.batch_norm(s.layer(s.linear("x"), "bare", s.feed_forward)), 2),
    ],
)
def test_along_which_axis_features_lie(make: Any, axis: int | None) -> None:
    stack = Stack()
    y = make(stack)
    context = context_of(stack.model(y, inputs={"x": (2, WIDTH, WIDTH)}))
    (norm,) = (n for n in context.norms if n.nodes[0].op == "BatchNormalization")

    assert feature_axis(context.structure.step_of[norm]) == axis


@pytest.mark.parametrize("causal", [False, True])
def test_causality_of_whole_operators(*, causal: bool) -> None:
    stack = Stack()
    weights, bias = stack.weight(WIDTH, 3 * WIDTH), stack.weight(3 * WIDTH)
    attrs = {"unidirectional": 1} if causal else {}
    y = stack.add("Attention", "x", weights, bias, domain="com.microsoft", num_heads=2, **attrs)
    context = context_of(stack.model(stack.linear(y)))

    assert len(context.sequence.causal) == causal


def test_caches_of_whole_operators() -> None:
    stack = Stack()
    heads = [stack.linear("x") for _ in range(3)]
    y = stack.add(
        "GroupQueryAttention",
        *heads,
        "past_keys",
        "past_values",
        domain="com.microsoft",
        num_heads=2,
        kv_num_heads=2,
    )
    shapes = {"x": (1, "T", WIDTH), "past_keys": (1, 2, "P", 2), "past_values": (1, 2, "P", 2)}
    evidence = context_of(stack.model(y, inputs=shapes)).sequence

    assert len(evidence.caches) == 2
    assert len(evidence.causal) == 1


def test_a_decoder_that_reads_what_no_stream_wrote_is_a_stack_of_its_own() -> None:
    stack = Stack()
    memory = stack.add("Relu", stack.linear("m"))
    x = stack.layer("x", "post", stack.attention, lambda t: stack.attention(t, memory))
    shapes = {"x": (1, 8, WIDTH), "m": (1, 8, WIDTH)}
    context = context_of(stack.model(x, inputs=shapes))

    assert [len(group) for group in context.stacks] == [1]


def test_flags_and_floats_that_choose_do_not_become_streams() -> None:
    stack = Stack()
    chosen = stack.add("Where", "flag", stack.feed_forward("x"), "x")
    y = stack.norm(stack.add("Add", "x", chosen))
    model = stack.model(y, inputs={"x": (1, 8, WIDTH), "flag": (1, 8, 1)})
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BOOL

    assert words(context_of(model)) == ["post"]


def test_a_norm_whose_scale_is_data() -> None:
    stack = Stack()
    scale = stack.add("Squeeze", stack.linear("c"), stack.axes(0, 1))

    def adaptive(x: str) -> str:
        return stack.feed_forward(stack.add("LayerNormalization", x, scale))

    y = stack.norm(stack.layer("x", "bare", adaptive, adaptive))
    shapes = {"x": (1, 8, WIDTH), "c": (1, 1, WIDTH)}

    assert words(context_of(stack.model(y, inputs=shapes))) == ["pre", "pre", "final"]


def test_a_fused_sum_of_three() -> None:
    stack = Stack()
    scale, bias = stack.weight(WIDTH), stack.weight(WIDTH)
    y = stack.add(
        "SkipLayerNormalization",
        stack.feed_forward("x"),
        "x",
        scale,
        bias,
        stack.add("ReduceMax", stack.linear("x"), axes=[0, 1], keepdims=0),
        domain="com.microsoft",
    )

    assert words(context_of(stack.model(y))) == ["post"]


def batch_norm_reads(make: Any) -> bool:
    """Say whether a BatchNorm in front of an LSTM counts as one next to convolutions."""
    stack = Stack()
    x = stack.add("Transpose", stack.batch_norm(make(stack)), perm=[2, 0, 1])
    weights = [stack.weight(1, 4 * WIDTH, WIDTH) for _ in range(2)]
    y = stack.add("LSTM", x, *weights, hidden_size=WIDTH)
    context = context_of(stack.model(y, inputs={"x": (1, WIDTH, 8), "z": (1, WIDTH, 8)}))
    (norm,) = (n for n in context.norms if n.nodes[0].op == "BatchNormalization")
    return next_to_convolution(context.structure.step_of[norm])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s: conv(s, "x"), True),
        (lambda s: s.add("Relu", s.add("Add", conv(s, "x"), conv(s, "z"))), True),
        (lambda s: s.add("Add", conv(s, "x"), s.add("Add", conv(s, "x"), conv(s, "z"))), True),
        (lambda s: s.add("Add", conv(s, "x"), "z"), False),
        (lambda s: s.add("Add", conv(s, "x"), s.add("MatMul", "z", s.weight(8, 8))), False),
        (lambda s: s.add("MatMul", conv(s, "x"), s.weight(8, 8)), False),
        (lambda _: "x", False),
    ],
)
def test_what_is_next_to_convolutions(make: Any, *, expected: bool) -> None:
    assert batch_norm_reads(make) is expected


def test_one_token_of_a_sequence_is_no_sequence() -> None:
    stack = Stack()
    y = stack.layers("x", "pre", 1)
    first = stack.add("Gather", y, stack.constant("zero", 0), axis=1)
    y = stack.linear(stack.batch_norm(stack.linear(first)))
    context = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)}))
    (norm,) = (n for n in context.norms if n.nodes[0].op == "BatchNormalization")

    assert remark(norm, context) == "behind a pool or apart from the tokens"
    assert remark(context.norms[0], context) == ""
