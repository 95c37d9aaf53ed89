"""Edits keep names, readers and what was dead before."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from normlint.graph import Constant, Graph, build_graph, export_graph
from normlint.rewrite.edit import Editor
from normlint.rule import Applicability, Computed, Edit, NewNode, Redirect, Replace, Rewrite


def inline(constant: Constant) -> TensorProto:
    return numpy_helper.from_array(constant.values, constant.name)


def edited(model: onnx.ModelProto, graph: Graph, *edits: Edit) -> onnx.ModelProto:
    editor = Editor(graph)
    editor.apply(Rewrite("t", Applicability.SAFE, edits, ()))
    editor.finish()
    after = export_graph(graph, model, inline)
    onnx.checker.check_model(after, full_check=True)
    return after


def parse(text: str, ir_version: int = 10) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : 17]>\n{text}')


def run(model: onnx.ModelProto, **inputs: object) -> list[np.ndarray]:
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return ReferenceEvaluator(model).run(None, arrays)


CHAIN = """
g (float[2] x) => (float[2] y, float[2] b) <float[2] w = {2, 3}, float[2] kept = {1, 1}> {
    dead = Mul(x, kept)
    a = Mul(x, w)
    b = Neg(a)
    y = Abs(b)
}
"""


def test_a_replaced_tensor_keeps_its_name_and_readers() -> None:
    model = parse(CHAIN)
    graph = build_graph(model, numpy_helper.to_array)
    negation = graph.nodes[2]
    weight = Computed((2,), 1, lambda: np.array([-2.0, -3.0]), "w")
    recipe = NewNode("Mul", (graph.inputs[0], weight), like=graph.nodes[1])

    after = edited(model, graph, Replace((negation.y,), recipe))

    assert [node.op_type for node in after.graph.node] == ["Mul", "Mul", "Abs"]
    assert list(after.graph.node[0].output) == ["dead"]
    assert list(after.graph.node[1].output) == ["b"]
    assert [t.name for t in after.graph.initializer] == ["kept", "w_1"]
    assert run(after, x=np.float32([1, -1]))[1].tolist() == [-2.0, 3.0]


@pytest.mark.parametrize("ir_version", [3, 10])
def test_initializers_that_are_gone_are_no_inputs_either(ir_version: int) -> None:
    model = parse(CHAIN, ir_version)
    if ir_version < 4:
        model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [2]))
        model.graph.input.append(onnx.helper.make_tensor_value_info("kept", 1, [2]))
    graph = build_graph(model, numpy_helper.to_array)
    weight = Computed((2,), 1, lambda: np.array([-2.0, -3.0]))
    recipe = NewNode("Mul", (graph.inputs[0], weight))

    after = edited(model, graph, Replace((graph.nodes[2].y,), recipe))

    assert "w" not in {value.name for value in after.graph.input}
    assert all(value.name in {"x", "kept"} for value in after.graph.input)
    assert run(after, x=np.float32([1, -1]), kept=np.float32([1, 1]))[1].tolist() == [-2.0, 3.0]


def test_redirecting_a_graph_output_keeps_the_output() -> None:
    model = parse(CHAIN)
    graph = build_graph(model, numpy_helper.to_array)

    after = edited(model, graph, Redirect(graph.nodes[2].y, graph.nodes[1].y))

    assert [value.name for value in after.graph.output] == ["y", "b"]
    assert run(after, x=np.float32([1, -1]))[0].tolist() == [2.0, 3.0]
    assert run(after, x=np.float32([1, -1]))[1].tolist() == [2.0, -3.0]


def test_readers_in_subgraphs_see_the_new_value() -> None:
    model = parse(
        """
        g (float[2] x, bool c) => (float[2] y) {
            a = Neg(x)
            y = If(c) <
                then_branch = t () => (float[2] v) { v = Abs(a) },
                else_branch = e () => (float[2] u) { u = Neg(a) }
            >
        }
        """
    )
    graph = build_graph(model, numpy_helper.to_array)
    recipe = NewNode("Identity", (graph.inputs[0],))

    after = edited(model, graph, Replace((graph.nodes[0].y,), recipe))

    assert run(after, x=np.float32([1, -1]), c=np.bool_(False))[0].tolist() == [-1.0, 1.0]


def test_editing_inside_a_subgraph() -> None:
    model = parse(
        """
        g (float[2] x, bool c) => (float[2] y) <float[2] outer = {1, 2}> {
            y = If(c) <
                then_branch = t () => (float[2] v) { u = Mul(x, outer)  v = Abs(u) },
                else_branch = e () => (float[2] w) { w = Neg(x) }
            >
        }
        """
    )
    graph = build_graph(model, numpy_helper.to_array)
    then = next(scope for scope in graph.subgraphs() if scope.name == "t")
    product = then.nodes[0]
    weight = Computed((2,), 1, lambda: product.inputs[1].values * 10.0, "outer")

    recipe = NewNode("Mul", (product.inputs[0], weight), like=product)
    after = edited(model, graph, Replace((product.y,), recipe))

    assert run(after, x=np.float32([1, -1]), c=np.bool_(True))[0].tolist() == [10.0, 20.0]
    assert not after.graph.initializer


def test_new_nodes_bear_the_metadata_of_those_they_replace() -> None:
    model = parse(CHAIN)
    model.graph.node[2].metadata_props.add(key="namespace", value="layer.norm")
    model.graph.node[2].name = "/layer/norm/Neg"
    graph = build_graph(model, numpy_helper.to_array)
    old = graph.nodes[2]

    after = edited(model, graph, Replace((old.y,), NewNode("Abs", (old.inputs[0],), like=old)))

    assert after.graph.node[2].metadata_props[0].value == "layer.norm"
    assert after.graph.node[2].name == "/layer/norm/Abs"


def test_a_wrong_shape_is_a_fault() -> None:
    model = parse(CHAIN)
    graph = build_graph(model, numpy_helper.to_array)
    weight = Computed((2,), 1, lambda: np.zeros(3))

    with pytest.raises(ValueError, match="promised"):
        edited(
            model, graph, Replace((graph.nodes[2].y,), NewNode("Mul", (graph.inputs[0], weight)))
        )
