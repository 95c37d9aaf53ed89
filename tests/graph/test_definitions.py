"""A node that breaks its operator's definition is of an unknown one; the file keeps its name."""

from __future__ import annotations

import pytest
from graphs import context_of, graph_of
from onnx import NodeProto, helper, numpy_helper

from normlint.graph import build_graph
from normlint.graph.definitions import UNKNOWN, operator_of
from normlint.plugins import load_rules


@pytest.mark.parametrize(
    ("node", "known"),
    [
        (helper.make_node("Mul", ["a", "b"], ["y"]), True),
        (helper.make_node("Mul", ["a"], ["y"]), False),
        (helper.make_node("Mul", ["", "b"], ["y"]), False),
        (helper.make_node("Sqrt", ["a"], []), False),
        (helper.make_node("Transpose", ["a"], ["y"], perm=[1, 0]), True),
        (helper.make_node("Transpose", ["a"], ["y"], perm=1), False),
        (helper.make_node("Concat", ["a"], ["y"], axis=0), True),
        (helper.make_node("Resize", ["a", "", "s"], ["y"]), True),
        (helper.make_node("RMSNormalization", ["a"], ["y"]), False),
        (helper.make_node("NoSuchOperator", [], []), True),
        (helper.make_node("Mul", ["a"], ["y"], domain="com.example"), True),
    ],
)
def test_a_node_is_held_to_its_definition(node: NodeProto, known: bool) -> None:
    operator = operator_of(node, node.input, node.output, node.attribute, 17)

    assert operator.startswith(UNKNOWN) is not known


def test_no_rule_stumbles_over_broken_nodes() -> None:
    text = """
        g (float[2,8] x, float[8] s) => (float[2,8] y) {
            m = ReduceMean() c = Sub(x) q = Mul(c) r = Sqrt(q) n = Div(c) k = Reshape(n)
            l = LayerNormalization(k) b = BatchNormalization(l, s) y = Add(b)
        }
    """
    context = context_of(text)

    assert context.norms == ()
    assert [list(rule.check(context)) for rule in load_rules()]


def test_the_file_keeps_its_own_name() -> None:
    graph = graph_of("g (float[2] x) => (float[2] y) { y = Mul(x) }")
    (node,) = graph.nodes

    assert node.op == f"{UNKNOWN}Mul"
    assert node.origin is not None
    assert node.origin.proto.op_type == "Mul"


def test_a_constant_of_the_wrong_type_is_no_constant() -> None:
    node = helper.make_node("Constant", [], ["c"], value_int=3)
    node.attribute[0].type = 3  # a string that is not there
    proto = helper.make_model(helper.make_graph([node], "g", [], []))

    assert build_graph(proto, numpy_helper.to_array).constants == []
