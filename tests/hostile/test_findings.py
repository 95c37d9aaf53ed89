"""What fuzzing found, kept: each of these was a traceback, a hang, or memory without bound."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import context_of, parse
from hostile.running import look, read, repair
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from normlint.context.axes import through_reshape
from normlint.context.growth import MOST_ELEMENTS
from normlint.contradiction import contradiction
from normlint.model import ValuesUnavailable, open_model

CONV = """
    g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {1,2}, float[2] b = {0,1}, float[2] m = {1,2},
     float[2] v = {1,2}> {
        c = Conv(x, w)
        y = BatchNormalization(c, s, b, m, v)
    }
"""


def altered(change: Any, text: str = CONV) -> bytes:
    model = parse(text)
    change(model)
    return bytes(model.SerializeToString())


def no_extent(model: onnx.ModelProto) -> None:
    model.graph.value_info.add(name="c").type.tensor_type.elem_type = 1
    for extent in (1, -7, 4, 4):
        model.graph.value_info[0].type.tensor_type.shape.dim.add(dim_value=extent)


def two_producers(model: onnx.ModelProto) -> None:
    model.graph.node.append(model.graph.node[0])


def calls_that_double(model: onnx.ModelProto) -> None:
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for level in range(40):
        calls = [helper.make_node(f"F{level + 1}", ["a"], [k], domain="own") for k in ("b", "c")]
        model.functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], calls, opset))
    last = [helper.make_node("Relu", ["a"], ["b"])]
    model.functions.append(helper.make_function("own", "F40", ["a"], ["b"], last, opset))
    model.opset_import.extend(opset[1:])
    model.graph.node.append(helper.make_node("F0", ["x"], ["z"], domain="own"))


def a_reference_outside_of_functions(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Squeeze", ["y"], ["z"]))
    model.graph.node[-1].attribute.add(name="axes", ref_attr_name="absent")


def an_attribute_of_another_type(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.add(name="group", type=AttributeProto.STRING, s=b"two")
    model.graph.node[0].attribute.add(name="pads", type=AttributeProto.INT, i=1)


def no_inputs(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        del node.input[:]


def an_opset_beyond_numbers(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 1 << 62


def a_cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "y"


def newlines_and_markup(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name = "[bold]a[/]\n::error::\x1b[31m\u2028"


CHANGES = (
    *(no_extent, two_producers, calls_that_double, a_reference_outside_of_functions, no_inputs),
    *(an_attribute_of_another_type, an_opset_beyond_numbers, a_cycle, newlines_and_markup),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_makes_no_sense(change: Any) -> None:
    data = altered(change)
    start = time.process_time()

    read(data)
    look(data)
    repair(data)

    assert time.process_time() - start < 15


def test_a_contradiction_is_not_sought_along_calls_without_end() -> None:
    """The checker follows each call: forty functions that call the next one twice are 2^40."""
    model = onnx.ModelProto.FromString(altered(calls_that_double))
    start = time.process_time()

    assert contradiction(model) is None
    model.graph.node[0].input[0] = "nowhere"
    assert contradiction(model) is not None

    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "node",
    [
        "huge = ConstantOfShape(extents)",
        "huge = Expand(one, extents)",
        "huge = Tile(one, extents)",
        "huge = Range(zero, limit, step)",
        "huge = Mul(column, row)",
    ],
)
def test_constants_that_a_few_bytes_make_huge_are_not_computed(node: str) -> None:
    many = MOST_ELEMENTS
    context = context_of(
        f"""
        g (float x) => (float[N,M] y)
        <int64[2] extents = {{{many}, 2}}, float[1,1] one = {{1}}, float zero = {{0}},
         float limit = {{1e12}}, float step = {{1}}> {{
            tall = Constant<value = int64[2] {{9000, 1}}>()
            wide = Constant<value = int64[2] {{1, 9000}}>()
            column = Expand(one, tall)
            row = Expand(one, wide)
            {node}
            y = Mul(x, huge)
        }}
        """
    )
    huge = next(n for n in context.graph.nodes if n.outputs[0].name == "huge").y

    assert context.constants.is_constant(huge)
    with pytest.raises(ValuesUnavailable, match="too large"):
        context.constants.values(huge)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_reshape_that_claims_any_number_of_channels(channels: int) -> None:
    assert through_reshape((channels, 4), 0, channels, (1 << 40,)) is None


def test_a_location_that_is_no_utf_8_is_a_fault_and_no_traceback() -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="placexx")
    model = parse(CONV)
    model.graph.initializer.append(tensor)
    data = model.SerializeToString().replace(b"placexx", b"place\xff\xfe")

    model_file = open_model(data)

    with pytest.raises(ValuesUnavailable):
        model_file.values(model_file.proto.graph.initializer[-1])


def test_a_large_constant_is_computed_from_the_graph_as_it_was() -> None:
    """Weights that are normalised at every run, too large to be kept in memory."""
    text = """
        g (float[2,600] x) => (float[2,600] y) {
            centred = Sub(w, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            normal = Div(centred, root)
            y = MatMul(x, normal)
        }
    """
    model = parse(text)
    model.graph.node.insert(0, helper.make_node("ReduceMean", ["w"], ["mean"], axes=[-1]))
    weight = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    epsilon = np.array(1e-5, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(epsilon, "epsilon"))

    report = repair(model.SerializeToString())

    assert [f.code for f in report.findings if f.fix is not None and f.fix.applied] == ["NL213"]


@pytest.mark.parametrize("exponent", [np.inf, -np.inf, np.nan, 1e38])
def test_an_exponent_that_is_no_number(exponent: float) -> None:
    model = parse(
        """
        g (float[2,8] x) => (float[2,8] y) <float e = {0.001}> {
            mean = ReduceMean<axes = [-1]>(x)
            difference = Sub(x, mean)
            square = Pow(difference, exponent)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, e)
            root = Sqrt(shifted)
            y = Div(difference, root)
        }
        """
    )
    values = np.array(exponent, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(values, "exponent"))

    assert not [f for f in look(model.SerializeToString()).findings if f.code == "NL201"]


@pytest.mark.parametrize("extent", [4096, 1 << 20, 1 << 40])
def test_a_proof_needs_no_image_of_full_size(extent: int) -> None:
    def huge(model: onnx.ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output):
            for axis in (2, 3):
                value.type.tensor_type.shape.dim[axis].dim_value = extent

    start = time.process_time()

    report = repair(altered(huge))

    assert [f.code for f in report.findings if f.fix is not None and f.fix.applied] == ["NL101"]
    assert time.process_time() - start < 5
