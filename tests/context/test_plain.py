"""What numpy computes of constants is what onnx's reference evaluator computes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from graphs import graph_of

from normlint.context import Context, constants
from normlint.context.plain import evaluated_plainly

if TYPE_CHECKING:
    from normlint.graph import Node

INT, F, H = np.int64, np.float32, np.float16
PLAIN = [
    ("Add(a, b)", [np.array([1, 2], INT), np.array([[3], [-4]], INT)]),
    ("Add(a, b)", [np.array([60000, 1], H), np.array([60000, 1e-7], H)]),
    ("Sub(a, b)", [np.array(5, INT), np.array([1, 2], INT)]),
    ("Sub(a, b)", [np.array([2**62], INT), np.array([-(2**62)], INT)]),
    ("Mul(a, b)", [np.array([1.5, np.inf], F), np.array([0, 0], F)]),
    ("Div(a, b)", [np.array([1, -1, 0], F), np.array([0, 3, 0], F)]),
    ("Pow(a, b)", [np.array([4, -2, 0], F), np.array([0.5, 3, -1], F)]),
    ("Sqrt(a)", [np.array([4, -1, 1e-30], F)]),
    ("Identity(a)", [np.array([[1, 2]], INT)]),
    ("Concat<axis = 0>(a, b)", [np.array([1], INT), np.array([2, 3], INT)]),
    ("Concat<axis = -1>(a, b)", [np.ones((2, 1), F), np.zeros((2, 3), F)]),
    ("Gather(a, b)", [np.array([7, 8, 9], INT), np.array(-1, INT)]),
    ("Gather<axis = 1>(a, b)", [np.arange(6, dtype=F).reshape(2, 3), np.array([[0, 2]], INT)]),
    ("Unsqueeze(a, b)", [np.array(3, INT), np.array([0], INT)]),
    ("Unsqueeze(a, b)", [np.ones((2, 3), F), np.array([-1, 0], INT)]),
    ("Slice(a, b, c)", [np.arange(5), np.array([1], INT), np.array([2**63 - 1], INT)]),
    ("Slice(a, b, c)", [np.arange(5), np.array([-99], INT), np.array([-1], INT)]),
    (
        "Slice(a, b, c, d, e)",
        [
            np.arange(24, dtype=F).reshape(4, 6),
            np.array([0, -5], INT),
            np.array([9, -1], INT),
            np.array([-2, 1], INT),
            np.array([2, 3], INT),
        ],
    ),
]
NOT_PLAIN = [
    ("Div(a, b)", [np.array([-7], INT), np.array([2], INT)]),
    ("Pow(a, b)", [np.array([2], F), np.array([2], INT)]),
    ("Slice(a, b, c, d, e)", [np.arange(5), *(np.array([v], INT) for v in (-1, -9, 0, -1))]),
    ("Add(a, b)", [np.ones(5000, F), np.ones(5000, F)]),
    ("Gather(a, b)", [np.array([7], INT), np.array(3, INT)]),
    ("Concat<axis = 4>(a, b)", [np.array([1], INT), np.array([2], INT)]),
    ("Relu(a)", [np.array([1], F)]),
]


def node_of(call: str, inputs: list[np.ndarray]) -> Node:
    kinds = {np.dtype(INT): "int64", np.dtype(F): "float", np.dtype(H): "float16"}
    given = ", ".join(
        f"{kinds[values.dtype]}[{','.join(map(str, values.shape))}] {name}"
        if values.shape
        else f"{kinds[values.dtype]} {name}"
        for name, values in zip("abcde", inputs, strict=False)
    )
    return graph_of(f"g ({given}) => ({kinds[inputs[0].dtype]} y) {{ y = {call} }}").nodes[0]


@pytest.mark.parametrize(("call", "inputs"), PLAIN)
def test_what_is_plain(
    call: str, inputs: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(call, inputs)

    plain = evaluated_plainly(node, inputs)
    monkeypatch.setattr(constants, "evaluated_plainly", lambda *_: None)
    [expected] = constants.evaluate_node(node, inputs)

    assert plain is not None
    assert plain.dtype == expected.dtype
    np.testing.assert_array_equal(plain, expected, strict=True)


@pytest.mark.parametrize(("call", "inputs"), NOT_PLAIN)
def test_what_is_not(call: str, inputs: list[np.ndarray]) -> None:
    assert evaluated_plainly(node_of(call, inputs), inputs) is None


def test_constants_of_an_export_need_no_reference_evaluator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    graph = graph_of(
        """
        g (float[2,3,4] x) => (float[2,12] y)
        <int64 k = {1}, int64[1] first = {0}, int64[1] rest = {12}> {
            s = Shape(x)
            n = Gather(s, k)
            m = Unsqueeze(n, first)
            t = Concat<axis = 0>(m, rest)
            y = Reshape(x, t)
        }
        """
    )
    context = Context(graph)

    assert context.constants.integers(graph.nodes[3].outputs[0]) == (3, 12)
