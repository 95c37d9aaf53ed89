"""Local functions: judged call by call, written back as calls."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from normlint.graph import build_graph, export_graph, functions, graph_path
from normlint.rewrite.edit import Editor
from normlint.rule import Applicability, NewNode, Replace, Rewrite

TEXT = """
<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
g (float[2] x, float[2] p) => (float[2] y, float[2] z) {
    y = local.outer <slope = 0.5> (x, p)
    z = local.outer <slope = 0.25> (x, p)
}
<domain: "local", opset_import: ["" : 20, "local" : 1]>
inner (a) => (b) { c = Neg(a)  b = Abs(c) }
<domain: "local", opset_import: ["" : 20, "local" : 1]>
outer <slope> (a, q) => (b) {
    c = local.inner(a)
    d = LeakyRelu <alpha: float = @slope> (c)
    b = Add(d, q)
}
"""


def model() -> onnx.ModelProto:
    return parser.parse_model(TEXT)


def placeholder(constant: object) -> onnx.TensorProto:
    raise AssertionError(constant)


def test_each_call_has_nodes_of_its_own() -> None:
    graph = build_graph(model(), numpy_helper.to_array)

    assert [node.op for node in graph.nodes] == ["Neg", "Abs", "LeakyRelu", "Add"] * 2
    assert [n.attrs["alpha"] for n in graph.nodes if n.op == "LeakyRelu"] == [0.5, 0.25]
    assert graph_path(graph.nodes[0]) == "fn:local::inner"
    assert graph_path(graph.nodes[3]) == "fn:local::outer"
    names = [tensor.name for node in graph.nodes for tensor in node.outputs]
    assert len(set(names)) == len(names)


def test_calls_come_back_where_nothing_was_edited() -> None:
    before = model()

    after = export_graph(build_graph(before, numpy_helper.to_array), before, placeholder)

    assert after.SerializeToString() == before.SerializeToString()


def test_only_the_edited_call_is_expanded() -> None:
    before = model()
    graph = build_graph(before, numpy_helper.to_array)
    absolute = graph.nodes[1]
    recipe = NewNode("Relu", (absolute.inputs[0],), like=absolute)
    rewrite = Rewrite("t", Applicability.SAFE, (Replace((absolute.y,), recipe),), (absolute,))

    editor = Editor(graph)
    editor.apply(rewrite)
    editor.finish()
    after = export_graph(graph, before, placeholder)

    assert [n.op_type for n in after.graph.node] == ["Neg", "Relu", "LeakyRelu", "Add", "outer"]
    assert {f.name for f in after.functions} == {"inner", "outer"}
    onnx.checker.check_model(after, full_check=True)
    session = onnxruntime.InferenceSession(after.SerializeToString())
    x, p = np.array([1, -2], np.float32), np.array([3, 4], np.float32)
    y, z = session.run(None, {"x": x, "p": p})
    assert y.tolist() == [3.0, 6.0]
    assert z.tolist() == [4.0, 6.0]


def test_functions_that_nobody_calls_any_more_go() -> None:
    before = model()
    del before.graph.node[1]
    del before.graph.output[1]
    graph = build_graph(before, numpy_helper.to_array)
    absolute = graph.nodes[1]
    recipe = NewNode("Relu", (absolute.inputs[0],), like=absolute)

    editor = Editor(graph)
    editor.apply(Rewrite("t", Applicability.SAFE, (Replace((absolute.y,), recipe),), (absolute,)))
    editor.finish()

    assert not export_graph(graph, before, placeholder).functions


def test_a_function_of_another_opset_stays_a_call() -> None:
    before = model()
    for function in before.functions:
        function.opset_import[0].version = 6

    graph = build_graph(before, numpy_helper.to_array)

    # LeakyRelu and Add were defined anew after opset 6, Neg and Abs as well.
    assert [node.op for node in graph.nodes] == ["outer", "outer"]


def test_a_function_that_calls_itself_ends() -> None:
    before = model()
    before.functions[0].node[0].op_type = "outer"
    before.functions[0].node[0].domain = "local"

    graph = build_graph(before, numpy_helper.to_array)

    assert len(graph.nodes) < 10


def test_doubling_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST_NODES", 100)
    before = model()
    for level in range(30):
        function = before.functions.add()
        function.CopyFrom(before.functions[0])
        function.name = f"level{level}"
        for node in function.node:
            node.op_type, node.domain = f"level{level + 1}", "local"
    before.graph.node[0].op_type = "level0"

    graph = build_graph(before, numpy_helper.to_array)

    assert len(graph.nodes) < 300
