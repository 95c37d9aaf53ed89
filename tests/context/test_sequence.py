"""What shows that a model works on sequences."""

from __future__ import annotations

import numpy as np
import pytest
from context.stacks import WIDTH, Stack, context_of, stacked


def masked(stack: Stack, mask: str) -> str:
    """Give an attention with a mask on its scores."""
    queries, keys, values = (stack.linear("x") for _ in range(3))
    scores = stack.add("MatMul", queries, stack.add("Transpose", keys, perm=[0, 2, 1]))
    weights = stack.add("Softmax", stack.add("Add", scores, mask))
    return stack.linear(stack.add("MatMul", weights, values))


def test_attention_by_its_products() -> None:
    evidence = context_of(stacked("pre", 3)).sequence

    assert len(evidence.attentions) == 3
    assert evidence.is_sequence
    assert not evidence.is_autoregressive
    assert evidence.time_axes == ("T",)


def test_a_softmax_spelled_out() -> None:
    stack = Stack()
    scores = stack.add("MatMul", stack.linear("x"), stack.add("Transpose", "x", perm=[0, 2, 1]))
    shifted = stack.add("Sub", scores, stack.add("ReduceMax", scores, axes=[-1]))
    powers = stack.add("Exp", shifted)
    total = stack.add("ReduceSum", powers, stack.axes(-1))
    weights = stack.add("Div", powers, total)
    context = context_of(stack.model(stack.add("MatMul", weights, stack.linear("x"))))

    assert len(context.sequence.attentions) == 1


def test_heads_that_talk_to_each_other() -> None:
    stack = Stack()
    scores = stack.add("MatMul", stack.linear("x"), stack.add("Transpose", "x", perm=[0, 2, 1]))
    mixed = stack.add("MatMul", scores, stack.weight(8, 8))
    weights = stack.add("MatMul", stack.add("Softmax", mixed), stack.weight(8, 8))
    context = context_of(
        stack.model(stack.add("MatMul", weights, "x"), inputs={"x": (1, 8, WIDTH)})
    )

    assert len(context.sequence.attentions) == 1


def test_a_router_is_no_attention() -> None:
    stack = Stack()
    gates = stack.add("Softmax", stack.linear("x"))
    experts = stack.add("Mul", gates, stack.linear("x"))
    context = context_of(stack.model(stack.add("ReduceSum", experts, stack.axes(-1))))

    assert not context.sequence.is_sequence


def causal_constant(stack: Stack) -> str:
    return stack.constant("mask", np.triu(np.full((8, 8), -1e9, np.float32), 1))


def causal_trilu(stack: Stack) -> str:
    ones = stack.constant("ones", np.ones((8, 8), np.float32))
    return stack.add("Mul", stack.add("Trilu", ones), stack.number(-1e9))


def causal_positions(stack: Stack) -> str:
    places = [stack.number(float(k)) for k in (0, 8, 1)]
    row = stack.add("Unsqueeze", stack.add("Range", *places), stack.axes(0))
    column = stack.add("Unsqueeze", stack.add("Range", *places), stack.axes(1))
    later = stack.add("Cast", stack.add("Greater", row, column), to=1)
    return stack.add("Mul", later, stack.number(-1e9))


@pytest.mark.parametrize("mask", [causal_constant, causal_trilu, causal_positions])
def test_causal_masks(mask: object) -> None:
    stack = Stack()
    y = masked(stack, mask(stack))  # type: ignore[operator]

    evidence = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)})).sequence

    assert len(evidence.causal) == 1


def test_a_mask_of_padding_is_not_causal() -> None:
    stack = Stack()
    y = masked(stack, stack.constant("mask", np.zeros((8, 8), np.float32)))

    evidence = context_of(stack.model(y, inputs={"x": (1, 8, WIDTH)})).sequence

    assert evidence.causal == ()


def test_a_cache_of_keys_and_values() -> None:
    stack = Stack()

    def heads(x: str) -> str:
        split = stack.add("Reshape", stack.linear(x), stack.axes(1, -1, 2, 2))
        return stack.add("Transpose", split, perm=[0, 2, 1, 3])

    keys = stack.add("Concat", "past_keys", heads("x"), axis=2)
    values = stack.add("Concat", "past_values", heads("x"), axis=2)
    scores = stack.add("MatMul", heads("x"), stack.add("Transpose", keys, perm=[0, 1, 3, 2]))
    y = stack.add("MatMul", stack.add("Softmax", scores), values)
    shapes = {"x": (1, "T", WIDTH), "past_keys": (1, 2, "P", 2), "past_values": (1, 2, "P", 2)}

    evidence = context_of(stack.model(y, inputs=shapes)).sequence

    assert {tensor.name for tensor in evidence.caches} == {"past_keys", "past_values"}
    assert evidence.is_autoregressive


def test_recurrences() -> None:
    stack = Stack()
    weights = [stack.weight(1, 4 * WIDTH, WIDTH) for _ in range(2)]
    y = stack.add("LSTM", "x", *weights, hidden_size=WIDTH)

    evidence = context_of(stack.model(y)).sequence

    assert [node.op for node in evidence.recurrences] == ["LSTM"]
    assert evidence.is_sequence
