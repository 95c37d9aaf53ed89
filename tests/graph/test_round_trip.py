"""What was not edited comes back as it was read, byte by byte."""

import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from normlint.graph import build_graph, export_graph


def exported(model: onnx.ModelProto) -> onnx.ModelProto:
    graph = build_graph(model, numpy_helper.to_array)

    def unexpected(constant: object) -> TensorProto:
        raise AssertionError(f"nothing was edited, yet {constant} is new")

    return export_graph(graph, model, unexpected)


def with_metadata() -> onnx.ModelProto:
    model = parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 20, "com.example" : 3], producer_name: "p",
         domain: "d", model_version: 7, doc_string: "whole">
        g (float[N,4] x) => (float[N,4] y, float[N,4] z)
        <float[4] w = {1, 2, 3, 4}, float unused = {5}>
        {
            a = Mul(x, w)
            c = Constant<value_float = 2.0>()
            dead = Add(x, x)
            b = com.example.Odd<level = 3>(a, c)
            y = Add(a, b)
            z = Identity(y)
        }
        """
    )
    model.metadata_props.add(key="k", value="v")
    node = model.graph.node[0]
    node.doc_string = "node"
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layer']")
    odd = model.graph.node[3]
    odd.attribute.append(helper.make_attribute("bytes", b"\xff\xfe"))
    odd.attribute.append(helper.make_attribute("types", [helper.make_tensor_type_proto(1, [2])]))
    odd.attribute.append(
        helper.make_attribute("tensors", [numpy_helper.from_array(numpy_helper.np.ones(2))])
    )
    model.graph.quantization_annotation.add(tensor_name="a").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="w"
    )
    model.training_info.add().algorithm.name = "training"
    return model


def test_everything_survives() -> None:
    model = with_metadata()

    assert exported(model).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("ir_version", [3, 4, 10])
def test_initializers_among_the_inputs(ir_version: int) -> None:
    model = with_metadata()
    model.ir_version = ir_version
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]))

    graph = build_graph(model, numpy_helper.to_array)

    weight = graph.nodes[0].inputs[1]
    assert weight.is_constant == (ir_version < 4)
    assert exported(model).SerializeToString() == model.SerializeToString()


def test_duplicate_and_empty_names_stay_apart() -> None:
    model = parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[2] x, bool c) => (float[2] y) {
            y = If(c) <
                then_branch = t () => (float[2] v) { v = Neg(x) },
                else_branch = e () => (float[2] v) { u = Abs(x)  v = Sqrt(u) }
            >
        }
        """
    )

    graph = build_graph(model, numpy_helper.to_array)

    then, other = graph.subgraphs()
    assert then.outputs[0].name == other.outputs[0].name
    assert then.outputs[0] != other.outputs[0]
    assert then.nodes[0].inputs[0] is other.nodes[0].inputs[0] is graph.inputs[0]
    assert exported(model).SerializeToString() == model.SerializeToString()


def test_an_empty_graph() -> None:
    model = helper.make_model(helper.make_graph([], "empty", [], []))

    assert exported(model).SerializeToString() == model.SerializeToString()


def test_a_cycle_is_kept_as_it_is() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "cycle", [value("x", 1, [2])], [value("a", 1, [2])])
    model = helper.make_model(graph)

    assert exported(model).SerializeToString() == model.SerializeToString()


def test_graphsurgeon_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    exported(with_metadata())

    assert capsys.readouterr().out == ""


def test_hundred_thousand_nodes_in_a_row() -> None:
    count = 100_000
    nodes = [helper.make_node("Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "deep", [value("t0", 1, [2])], [value(f"t{count}", 1, [2])])

    graph_seen = build_graph(helper.make_model(graph), numpy_helper.to_array)

    assert len(graph_seen.nodes) == count
