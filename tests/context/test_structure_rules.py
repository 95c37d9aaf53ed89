"""What the structural rules say of whole networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from context.stacks import WIDTH, Stack, context_of, stacked

from normlint.context import Context, Intent, Settings
from normlint.context.neighbours import is_batch_norm, remark
from normlint.plugins import load_rules
from normlint.rule import Diagnostic, Severity

if TYPE_CHECKING:
    from onnx import ModelProto

RULES = {rule.code: rule for rule in load_rules()}


def found(code: str, model: ModelProto, **settings: Any) -> list[Diagnostic]:
    return list(RULES[code].check(context_of(model, **settings)))


@pytest.mark.parametrize("spelled", [False, True])
@pytest.mark.parametrize(
    ("placement", "layers", "due"),
    [
        ("post", 11, False),
        ("post", 12, True),
        ("post", 24, True),
        ("pre", 24, False),
        ("sandwich", 24, False),
        ("res-post", 24, False),
        ("deepnorm", 24, False),
        ("admin", 24, False),
        ("parallel", 24, False),
    ],
)
def test_deep_post_norm_stacks(placement: str, layers: int, *, due: bool, spelled: bool) -> None:
    diagnostics = found("NL301", stacked(placement, layers, spelled=spelled))

    assert [d.evidence["depth"] for d in diagnostics] == ([layers] if due else [])


def test_post_norm_is_a_warning_only_where_the_model_is_trained() -> None:
    model = stacked("post", 12)

    assert [d.severity for d in found("NL301", model)] == [Severity.INFO]
    assert [d.severity for d in found("NL301", model, intent=Intent.TRAIN)] == [Severity.WARNING]
    assert found("NL301", model, post_norm_depth=13) == []


def batch_norm_on_tokens(
    *, mask: bool = False, on_positions: bool = False, training: bool = False
) -> ModelProto:
    stack = Stack()
    places = stack.add("Gather", stack.weight(10, WIDTH), "ids")
    x = stack.linear(places)
    if on_positions:
        x = stack.batch_norm(x, 8)
    else:
        turned = stack.add("Transpose", x, perm=[0, 2, 1])
        normed = stack.batch_norm(turned)
        if training:
            node = stack.nodes[-1]
            node.attribute.extend(onnx_attribute("training_mode", 1))
            node.output.extend([f"{normed}_mean", f"{normed}_var"])
        x = stack.add("Transpose", normed, perm=[0, 2, 1])
    queries, keys, values = (stack.linear(x) for _ in range(3))
    scores = stack.add("MatMul", queries, stack.add("Transpose", keys, perm=[0, 2, 1]))
    if mask:
        ones = stack.constant("ones", [[1.0] * 8] * 8)
        scores = stack.add("Add", scores, stack.add("Cast", stack.add("Trilu", ones), to=1))
    y = stack.linear(stack.add("MatMul", stack.add("Softmax", scores), values))
    return stack.model(y, inputs={"ids": (2, 8)}, integers="ids")


def onnx_attribute(name: str, value: int) -> list[Any]:
    from onnx import helper

    return [helper.make_attribute(name, value)]


@pytest.mark.parametrize(
    ("options", "severity", "key"),
    [
        ({}, Severity.WARNING, None),
        ({"mask": True}, Severity.ERROR, "autoregressive"),
        ({"on_positions": True}, Severity.ERROR, "token_axis"),
        ({"training": True}, Severity.ERROR, "batch_statistics"),
    ],
)
def test_batch_norm_on_tokens(options: Any, severity: Severity, key: str | None) -> None:
    (diagnostic,) = found("NL302", batch_norm_on_tokens(**options))

    assert diagnostic.severity is severity
    told = ("autoregressive", "token_axis", "batch_statistics")
    assert [name for name in told if diagnostic.evidence[name]] == ([key] if key else [])


def conformer() -> ModelProto:
    stack = Stack()
    x = "x"
    for _ in range(2):
        x = stack.layer(
            x, "pre", stack.feed_forward, stack.attention, stack.convolution, stack.feed_forward
        )
    return stack.model(x, inputs={"x": (1, 8, WIDTH)})


def hybrid() -> ModelProto:
    stack = Stack()
    x = stack.add("Conv", "x", stack.weight(WIDTH, 3, 4, 4), strides=[4, 4])
    x = stack.add("Relu", stack.batch_norm(x))
    x = stack.add("Reshape", x, stack.axes(1, WIDTH, 4))
    x = stack.add("Transpose", x, perm=[0, 2, 1])
    y = stack.norm(stack.layers(x, "pre", 2))
    return stack.model(y, inputs={"x": (1, 3, 8, 8)})


def temporal_convolutions() -> ModelProto:
    stack = Stack()
    x = "x"
    for _ in range(3):
        branch = stack.add("Conv", x, stack.weight(WIDTH, WIDTH, 3), pads=[1, 1])
        x = stack.add("Add", x, stack.add("Relu", stack.batch_norm(branch)))
    return stack.model(x, inputs={"x": (1, WIDTH, "T")})


def residual_convolutions_in_front_of_a_recurrence() -> ModelProto:
    stack = Stack()

    def conv(x: str) -> str:
        return stack.add("Conv", x, stack.weight(WIDTH, WIDTH, 3), pads=[1, 1])

    x = conv("x")
    x = stack.add("Add", x, conv(stack.add("Relu", stack.batch_norm(conv(x)))))
    x = stack.add("Relu", stack.batch_norm(x))
    x = stack.batch_norm(stack.add("MaxPool", stack.add("Relu", conv(x)), kernel_shape=[2]))
    weights = [stack.weight(1, 3 * WIDTH, WIDTH) for _ in range(2)]
    steps = stack.add("Transpose", x, perm=[2, 0, 1])
    y = stack.add("GRU", steps, *weights, hidden_size=WIDTH)
    return stack.model(y, inputs={"x": (1, WIDTH, 8)})


def head_behind_attention() -> ModelProto:
    stack = Stack()
    y = stack.norm(stack.layers("x", "pre", 2))
    pooled = stack.add("ReduceMean", y, axes=[1], keepdims=0)
    return stack.model(stack.linear(stack.batch_norm(pooled)), inputs={"x": (1, 8, WIDTH)})


USUAL = [
    conformer,
    hybrid,
    temporal_convolutions,
    residual_convolutions_in_front_of_a_recurrence,
    head_behind_attention,
]


@pytest.mark.parametrize("make", USUAL)
def test_batch_norm_next_to_convolutions_or_behind_a_pool_is_usual(make: Any) -> None:
    model = make()

    assert found("NL302", model) == []
    context = context_of(model)
    told = {remark(norm, context) for norm in context.norms if is_batch_norm(norm)}
    assert all(told) is bool(context.sequence.is_sequence)


@pytest.mark.parametrize("layers", [2, 5])
def test_batch_norm_transformers(layers: int) -> None:
    stack = Stack()

    def on_tokens(x: str) -> str:
        normed = stack.batch_norm(stack.add("Transpose", x, perm=[0, 2, 1]))
        return stack.add("Transpose", normed, perm=[0, 2, 1])

    x = "x"
    for _ in range(layers):
        for branch in (stack.attention, stack.feed_forward):
            x = on_tokens(stack.add("Add", x, branch(x)))
    model = stack.model(x)

    assert len(found("NL302", model)) == 2 * layers
    assert found("NL301", model, post_norm_depth=1) == []
    assert {context_of(model).streams[0].placement.value} == {"post"}


def test_layers_that_differ_are_named() -> None:
    stack = Stack()
    x = stack.layers("x", "pre", 3)
    x = stack.layer(x, "res-post", stack.attention, stack.feed_forward)
    x = stack.norm(stack.layers(x, "pre", 2))

    (diagnostic,) = found("NL304", stack.model(x))

    assert diagnostic.evidence["layers"] == {"3": ["res-post"]}
    assert diagnostic.evidence["usual"] == ["pre"]


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "res-post", "parallel", "bare"])
def test_layers_that_are_alike_are_not_reported(placement: str) -> None:
    model = stacked(placement, 4)

    assert found("NL304", model) == []
    assert found("NL303", model) == []


def test_rules_do_not_change_the_graph() -> None:
    context = Context(context_of(stacked("post", 12)).graph, Settings())
    before = [node.op for node in context.graph.nodes]
    for code in ("NL301", "NL302", "NL303", "NL304"):
        list(RULES[code].check(context))

    assert [node.op for node in context.graph.nodes] == before
