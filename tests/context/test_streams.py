"""Streams: their layers, their ends, and what it costs to find them."""

from __future__ import annotations

import pytest
from context.stacks import WIDTH, Stack, context_of, stacked, words

from normlint.context.endings import ends_bare


def encoder_decoder(placement: str, encoder: int, decoder: int) -> Stack:
    stack = Stack()
    memory = stack.layers("x", placement, encoder)
    if placement == "pre":
        memory = stack.norm(memory)
    y = "y"
    for _ in range(decoder):
        y = stack.layer(
            y,
            placement,
            stack.attention,
            lambda t: stack.attention(t, memory),
            stack.feed_forward,
        )
    if placement == "pre":
        y = stack.norm(y)
    stack.add("Identity", y)
    return stack


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_an_encoder_and_its_decoder_are_two_streams_and_one_stack(placement: str) -> None:
    stack = encoder_decoder(placement, 2, 3)
    shapes = {"x": ("B", "S", WIDTH), "y": ("B", "T", WIDTH)}

    context = context_of(stack.model(stack.nodes[-1].output[0], inputs=shapes))

    assert [(s.depth, s.blocks) for s in context.streams] == [(2, 4), (3, 9)]
    assert [[s.index for s in group] for group in context.stacks] == [[0, 1]]
    final = ["final"] if placement == "pre" else []
    assert words(context) == [placement] * 4 + final + [placement] * 9 + final


def test_a_conformer_layer_begins_half_a_step_before_its_attention() -> None:
    stack = Stack()
    x = "x"
    for _ in range(3):
        x = stack.layer(
            x, "pre", stack.feed_forward, stack.attention, stack.convolution, stack.feed_forward
        )
        x = stack.norm(x)
    context = context_of(stack.model(x, inputs={"x": (1, 8, WIDTH)}))

    assert context.streams[0].depth == 3
    assert context.streams[0].layer_of == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)


def test_attentions_over_time_and_then_over_space_are_one_layer() -> None:
    stack = Stack()
    x = "x"
    for _ in range(3):
        x = stack.layer(x, "pre", stack.attention, stack.attention, stack.feed_forward)
    assert context_of(stack.model(x)).streams[0].depth == 3

    stack = Stack()
    x = "x"
    for _ in range(3):
        x = stack.layer(x, "pre", stack.attention)
    assert context_of(stack.model(x)).streams[0].depth == 3


def test_tokens_that_were_put_aside_are_joined_again() -> None:
    stack = Stack()

    def part(x: str, start: int, end: int) -> str:
        return stack.add("Slice", x, stack.axes(start), stack.axes(end), stack.axes(1))

    x = "x"
    for _ in range(2):
        first, rest = part(x, 0, 1), part(x, 1, 9)
        rest = stack.layer(rest, "pre", stack.attention)
        mixed = stack.attention(stack.norm(stack.add("Concat", first, rest, axis=1)))
        x = stack.add("Add", stack.add("Concat", first, rest, axis=1), mixed)
        x = stack.layer(x, "pre", stack.feed_forward)
    context = context_of(stack.model(stack.norm(x), inputs={"x": (1, 9, WIDTH)}))

    assert words(context) == ["pre"] * 6 + ["final"]
    assert (context.streams[0].depth, context.streams[0].blocks) == (2, 6)


def test_without_attention_each_addition_is_a_layer_and_turns_are_one() -> None:
    stack = Stack()
    x = "x"
    for _ in range(3):
        x = stack.layer(x, "pre", stack.feed_forward)
    assert context_of(stack.model(x)).streams[0].depth == 3

    stack = Stack()

    def tokens(t: str) -> str:
        turned = stack.add("Transpose", t, perm=[0, 2, 1])
        mixed = stack.linear(turned, 8, 8)
        return stack.add("Transpose", mixed, perm=[0, 2, 1])

    x = "x"
    for _ in range(3):
        x = stack.layer(x, "pre", tokens, stack.feed_forward)
    context = context_of(stack.model(x, inputs={"x": (1, 8, WIDTH)}))

    assert context.streams[0].depth == 3
    assert context.streams[0].blocks == 6


def test_queries_that_are_written_in_the_file_start_a_stream() -> None:
    stack = Stack()
    queries = stack.weight(1, 3, WIDTH)

    def cross(x: str) -> str:
        keys, values = stack.linear(x), stack.linear(x)
        known = stack.weight(1, 3, WIDTH)
        scores = stack.add("MatMul", known, stack.add("Transpose", keys, perm=[0, 2, 1]))
        return stack.linear(stack.add("MatMul", stack.add("Softmax", scores), values))

    y = stack.norm(stack.add("Add", queries, cross("x")))
    y = stack.norm(stack.add("Add", y, stack.feed_forward(y)))
    context = context_of(stack.model(y))

    assert words(context) == ["post", "post"]
    assert (context.streams[0].depth, context.streams[0].blocks) == (1, 2)


def test_norms_of_queries_that_are_written_in_the_file() -> None:
    stack = Stack()
    rows = stack.add("Slice", stack.add("Shape", "x"), stack.axes(0), stack.axes(1))
    shape = stack.add("Concat", rows, stack.axes(3, WIDTH), axis=0)
    z = stack.add("Expand", stack.weight(3, WIDTH), shape)
    z = stack.layer(z, "pre", lambda t: stack.attention(t, stack.linear("x")))
    z = stack.norm(stack.layer(z, "pre", stack.feed_forward))
    context = context_of(stack.model(z))

    assert words(context) == ["pre", "pre", "final"]
    assert context.streams[0].blocks == 2


def test_a_first_layer_that_sees_queries_of_the_file_alone() -> None:
    stack = Stack()
    rows = stack.add("Slice", stack.add("Shape", "x"), stack.axes(0), stack.axes(1))
    shape = stack.add("Concat", rows, stack.axes(3, WIDTH), axis=0)
    table = stack.add("Expand", stack.weight(3, WIDTH), shape)
    queries = stack.norm(stack.add("Add", table, stack.linear(table)))

    y = stack.norm(stack.add("Add", queries, stack.attention(queries, stack.linear("x"))))
    y = stack.norm(stack.add("Add", y, stack.feed_forward(y)))
    context = context_of(stack.model(y))

    assert words(context) == ["post", "post", "post"]


def test_writers_and_readers() -> None:
    context = context_of(stacked("pre", 1))

    stream = context.streams[0]

    assert [tensor.name for tensor in stream.roots] == ["x"]
    assert [node.op for node in stream.writers] == ["MatMul", "MatMul"]
    assert [node.op for node in stream.readers] == ["LayerNormalization"] * 2
    assert len(stream.norms) == 3


@pytest.mark.parametrize(
    ("ending", "bare"), [("norm", False), ("head", True), ("output", True), ("stage", False)]
)
def test_how_a_stream_ends(ending: str, *, bare: bool) -> None:
    stack = Stack()
    y = stack.layers("x", "pre", 1)
    if ending == "norm":
        y = stack.linear(stack.norm(y))
    elif ending == "head":
        y = stack.linear(y)
    elif ending == "stage":
        y = stack.norm(stack.layers(stack.linear(y), "pre", 1))
    context = context_of(stack.model(y))

    assert ends_bare(context.streams[0], context.structure) is bare


def test_a_single_addition_within_a_branch_is_no_stream_of_its_own() -> None:
    stack = Stack()

    def branch(x: str) -> str:
        inner = stack.add("Relu", stack.linear(x))
        return stack.linear(stack.add("Add", inner, stack.linear(inner)))

    y = stack.layer("x", "pre", branch, branch, branch)
    context = context_of(stack.model(y))

    assert [stream.blocks for stream in context.streams] == [3]


@pytest.mark.parametrize("placement", ["pre", "post", "parallel"])
def test_the_cost_grows_with_the_nodes_and_no_faster(placement: str) -> None:
    costs = []
    for count in (20, 40, 80):
        context = context_of(stacked(placement, count))
        assert context.streams[0].depth == count
        costs.append(context.structure.residuals.visited / len(context.structure.flow.steps))

    assert max(costs) <= 1.1 * min(costs)


def test_nested_skips_over_everything_stay_within_the_budget() -> None:
    stack = Stack()
    values = ["x"]
    for _ in range(400):
        values.append(stack.add("Relu", stack.linear(values[-1])))
    y = values[-1]
    for skip in reversed(values[:-1]):
        y = stack.add("Add", stack.linear(y), skip)
    context = context_of(stack.model(y))

    steps = len(context.structure.flow.steps)
    assert context.streams
    assert context.structure.residuals.visited <= 32 * steps + 400 * 256 + (1 << 17)


def test_a_very_deep_chain_needs_no_recursion() -> None:
    stack = Stack()
    y = "x"
    for _ in range(5000):
        y = stack.add("Identity", y)
    y = stack.layers(y, "post", 1)
    context = context_of(stack.model(y))

    assert words(context) == ["post", "post"]


def test_a_cycle_ends() -> None:
    model = stacked("post", 1)
    model.graph.node[0].input[0] = model.graph.node[-1].output[0]

    assert len(words(context_of(model))) == 2
