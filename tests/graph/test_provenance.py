"""Where a node comes from, as exporters write it down."""

import onnx
import pytest
from onnx import helper, numpy_helper

from normlint.graph import Addresses, Node, build_graph, module, source

FRAMES = """File "/home/me/net.py", line 118, in forward
    x = self.ln_f(x)
  File "/home/me/net.py", line 88, in forward
    x = x + self.attention(self.norm1(x))
  File "{library}", line 228, in forward
    return F.layer_norm("""


def node(name: str = "", **metadata: str) -> Node:
    proto = helper.make_node("Neg", ["x"], ["y"], name=name)
    for key, value in metadata.items():
        proto.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([proto], "g", [value("x", 1, [2])], [value("y", 1, [2])])
    return build_graph(helper.make_model(graph), numpy_helper.to_array).nodes[0]


@pytest.mark.parametrize(
    "library",
    [
        "torch/nn/modules/normalization.py",
        "/usr/lib/python3/dist-packages/torch/nn/functional.py",
        "/venv/lib/python3.11/site-packages/transformers/models/bert/modeling_bert.py",
        "C:\\\\venv\\\\Lib\\\\site-packages\\\\timm\\\\layers.py",
    ],
)
def test_the_line_is_one_that_the_user_wrote(library: str) -> None:
    assert source(node(stack_trace=FRAMES.format(library=library))) == "/home/me/net.py:88"


def test_a_line_of_a_library_is_better_than_none() -> None:
    trace = 'File "/x/site-packages/timm/layers.py", line 3, in forward'

    assert source(node(stack_trace=trace)) == "/x/site-packages/timm/layers.py:3"
    assert source(node()) is None


def test_modules_of_both_exporters() -> None:
    assert module(node(name_scopes="['', 'h', 'h.0', 'h.0.norm1', 'layer_norm']")) == "h.0.norm1"
    assert module(node("/encoder/layer.3/norm/ReduceMean")) == "encoder.layer.3.norm"
    assert module(node("ReduceMean_7")) is None
    assert module(node(name_scopes="__import__('os')")) is None


def test_addresses_are_total_and_unique() -> None:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="same"),
        helper.make_node("Abs", ["a"], ["b"], name="same"),
        helper.make_node("Exp", ["b"], ["c"]),
        helper.make_node("Log", ["c"], ["d"], name="own"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2])], [value("d", 1, [2])])
    built = build_graph(onnx.helper.make_model(graph), numpy_helper.to_array)

    address = Addresses(built)

    assert [address(n) for n in built.nodes] == ["#0:Neg@a", "#1:Abs@b", "#2:Exp@c", "own"]
