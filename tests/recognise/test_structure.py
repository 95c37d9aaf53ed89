"""Where a normalisation begins and ends, and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from normlint.context.constants import Constants
from normlint.graph import build_graph
from normlint.normalization import Form, Kind
from normlint.recognise import Recognised, recognise

if TYPE_CHECKING:
    from normlint.normalization import Normalization

LAYER_NORM = """
    m = ReduceMean <axes=[-1]> (x)
    d = Sub (x, m)
    s = Pow (d, two)
    v = ReduceMean <axes=[-1]> (s)
    ve = Add (v, eps)
    r = Sqrt (ve)
    n = Div (d, r)
"""
SUM = "l = ReduceSumSquare <axes=[-1]> (x)\n"
NOUGHT = "o = Constant <value = float {0}> ()\n l = ReduceL2 <axes=[-1]> (x)\n"
NUMBERS = "two = Constant <value = float {2}> ()\n eps = Constant <value = float {0.001}> ()\n"
VECTORS = (
    "g = Constant <value = float[4] {1, 2, 3, 4}> ()\n"
    "b = Constant <value = float[4] {4, 3, 2, 1}> ()\n"
)


def facts(
    body: str, inputs: str = "float[2,3,4] x", outputs: str = "float[2,3,4] y", opset: int = 13
) -> Recognised:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    test ({inputs}) => ({outputs}) {{ {NUMBERS} {VECTORS} {body} }}"""
    graph = build_graph(onnx.parser.parse_model(text), numpy_helper.to_array)
    return recognise(graph, Constants(graph))


def one(body: str, **options: str) -> Normalization:
    found = facts(body, **options)  # type: ignore[arg-type]
    assert len(found.norms) == 1
    assert not found.near_norms
    return found.norms[0]


def names(norm: Normalization) -> tuple[str, str]:
    return norm.x.name, norm.y.name


def test_a_layer_whose_output_several_read_is_one() -> None:
    norm = one(
        LAYER_NORM + "a = Mul (n, g)\n h = Add (a, b)\n p = Sin (h)\n q = Cos (h)\n y = Add (p, q)"
    )
    assert names(norm) == ("x", "h")
    assert [node.op for node in norm.nodes][-2:] == ["Mul", "Add"]
    assert norm.scale is not None
    assert norm.scale.tensor is not None
    assert norm.scale.shape == (1, 1, 4)


def test_casts_of_one_output_do_not_make_several_layers() -> None:
    body = LAYER_NORM + "h = Mul (n, g)\n p = Cast <to=10> (h)\n q = Cast <to=11> (h)"
    norm = one(body, outputs="float16[2,3,4] p, double[2,3,4] q")
    assert names(norm) == ("x", "h")


def test_a_view_of_the_output_is_no_second_layer() -> None:
    rows = "rows = Constant <value = int64[2] {6, 4}> ()\n"
    rows += "first = Constant <value = int64[1] {0}> ()\n"
    body = LAYER_NORM + "h = Mul (n, g)\n r2 = Reshape (h, rows)\n y = Unsqueeze (r2, first)"
    norm = one(rows + body, inputs="float[1,6,4] x", outputs="float[1,6,4] y")
    assert names(norm) == ("x", "h")


def test_two_layers_that_share_their_statistics_are_two() -> None:
    found = facts(LAYER_NORM + "p = Mul (n, g)\n q = Mul (n, b)\n s2 = Sin (q)\n y = Add (p, s2)")
    assert sorted(norm.y.name for norm in found.norms) == ["p", "q"]


def test_a_layer_that_is_smoothed_for_each_reader_is_one() -> None:
    tail = "h = Mul (n, g)\n p = Mul (h, b)\n q = Mul (h, two)\n s2 = Sin (q)\n y = Add (p, s2)"
    assert names(one(LAYER_NORM + tail)) == ("x", "h")


def test_two_layers_that_read_the_same_tensor_are_two() -> None:
    again = LAYER_NORM
    for name in ("m", "d", "s", "v", "ve", "r", "n"):
        again = again.replace(f" {name} =", f" {name}2 =").replace(f"({name},", f"({name}2,")
        again = again.replace(f"({name})", f"({name}2)").replace(f", {name})", f", {name}2)")
    found = facts(LAYER_NORM + again + "t = Sin (n2)\n y = Add (n, t)")
    assert [norm.kind for norm in found.norms] == [Kind.LAYER, Kind.LAYER]
    assert {norm.y.name for norm in found.norms} == {"n", "n2"}


@pytest.mark.parametrize("outputs", ["float[2,3,4] y, float[2,3,4] n", "float[2,3,4] n, float y"])
def test_a_value_that_is_read_elsewhere_ends_the_norm(outputs: str) -> None:
    tail = "y = Mul (n, g)" if outputs.startswith("float[2,3,4] y") else "y = ReduceMax (n)"
    assert names(one(LAYER_NORM + tail, outputs=outputs)) == ("x", "n")


def test_an_adaptive_scale_stays_outside() -> None:
    norm = one(
        LAYER_NORM + "a = Mul (n, u)\n y = Add (a, u)", inputs="float[2,3,4] x, float[2,1,4] u"
    )
    assert names(norm) == ("x", "n")
    assert norm.scale is None


def test_an_adaptive_scale_that_comes_first_is_a_parameter_without_values() -> None:
    body = LAYER_NORM.replace("n = Div (d, r)", "i = Div (u, r)\n y = Mul (d, i)")
    norm = one(body, inputs="float[2,3,4] x, float[4] u")
    assert norm.y.name == "y"
    assert norm.scale is not None
    assert not norm.scale.is_constant


def test_an_embedding_that_is_added_afterwards_is_no_bias() -> None:
    numbers = ", ".join(str(number) for number in range(12))
    table = f"e = Constant <value = float[3,4] {{{numbers}}}> ()\n"
    assert names(one(LAYER_NORM + table + "y = Add (n, e)")) == ("x", "n")


def test_what_runs_along_another_axis_is_no_scale() -> None:
    body = LAYER_NORM.replace("axes=[-1]", "axes=[1]") + "y = Mul (n, g)"
    norm = one(body)
    assert (norm.kind, norm.axes, norm.y.name, norm.scale) == (Kind.LAYER, (-2,), "n", None)


def test_a_scale_that_enlarges_is_no_scale() -> None:
    body = LAYER_NORM + "y = Mul (n, g)"
    norm = one(body, inputs="float[2,3,1] x")
    assert (norm.axes, norm.y.name, norm.scale) == ((-1,), "n", None)


def test_the_larger_norm_wins() -> None:
    norm = one(LAYER_NORM + "y = Mul (n, g)")
    assert (norm.kind, norm.centred, norm.x.name) == (Kind.LAYER, True, "x")


def test_a_half_fused_layer_norm_is_one_layer_norm() -> None:
    body = """m = ReduceMean <axes=[-1]> (x)
    d = Sub (x, m)
    n = RMSNormalization <axis=-1, epsilon=0.01> (d, g)
    y = Add (n, b)"""
    text = body.replace("<axes=[-1]> (x)", "<keepdims=1> (x, last)")
    norm = one("last = Constant <value = int64[1] {-1}> ()\n" + text, opset=23)  # type: ignore[arg-type]
    assert (norm.kind, norm.form, norm.op_type) == (Kind.LAYER, Form.DECOMPOSED, None)
    assert norm.epsilon == pytest.approx(0.01)
    assert norm.bias is not None
    assert names(norm) == ("x", "y")


def test_the_parts_are_named() -> None:
    norm = one(LAYER_NORM + "a = Mul (n, g)\n y = Add (a, b)")
    assert {part: node.y.name for part, node in norm.steps.items()} == {
        "mean": "m",
        "difference": "d",
        "square": "s",
        "variance": "v",
        "epsilon": "ve",
        "root": "r",
        "quotient": "n",
        "scale": "a",
        "bias": "y",
    }
    assert not norm.one_pass


def test_one_pass_is_told_from_two() -> None:
    body = """m = ReduceMean <axes=[-1]> (x)
    mm = Mul (m, m)
    xx = Mul (x, x)
    q = ReduceMean <axes=[-1]> (xx)
    v = Sub (q, mm)
    ve = Add (v, eps)
    r = Sqrt (ve)
    d = Sub (x, m)
    y = Div (d, r)"""
    assert one(body).one_pass


def test_the_type_of_the_statistics_is_kept() -> None:
    wide = "x = Cast <to=1> (h)\n" + LAYER_NORM + "c = Cast <to=10> (n)\n y = Identity (c)"
    norm = one(wide, inputs="float16[2,3,4] h", outputs="float16[2,3,4] y")
    assert (names(norm), norm.dtype, norm.statistics_dtype) == (("h", "c"), 10, 1)
    one_branch = LAYER_NORM.replace("s = Pow (d, two)", "w = Cast <to=1> (d)\n s = Pow (w, two)")
    one_branch = one_branch.replace("n = Div (d, r)", "n = Div (w, r)\n")
    body = one_branch + "y = Cast <to=10> (n)"
    norm = one(body, inputs="float16[2,3,4] x", outputs="float16[2,3,4] y")
    assert (names(norm), norm.dtype, norm.statistics_dtype) == (("x", "y"), 10, 10)


def test_a_cast_that_is_not_taken_back_is_left_out() -> None:
    norm = one("x = Cast <to=1> (h)\n" + LAYER_NORM + "y = Mul (n, g)", inputs="float16[2,3,4] h")
    assert (names(norm), norm.dtype) == (("x", "y"), 1)


def test_an_integer_is_no_float() -> None:
    norm = one("x = Cast <to=1> (h)\n" + LAYER_NORM + "y = Identity (n)", inputs="int32[2,3,4] h")
    assert norm.x.name == "x"
    rounded = "i = Cast <to=6> (x)\n j = Cast <to=1> (i)\n"
    found = facts(rounded + LAYER_NORM.replace("Sub (x, m)", "Sub (j, m)") + "y = Identity (n)")
    assert not any(norm.kind is Kind.LAYER for norm in found.norms)


PAIR = (
    "scale = Constant <value = float {0.1}> ()\n zero = Constant <value = int8 {0}> ()\n"
    "q = QuantizeLinear (t, scale, zero)\n x = DequantizeLinear (q, scale, zero)\n"
)


@pytest.mark.parametrize(
    ("body", "quantized", "x"),
    [
        (PAIR + LAYER_NORM + "y = Identity (n)", "input", "x"),
        (
            PAIR.replace("(t,", "(x,").replace(" x = ", " z = ")
            + LAYER_NORM.replace("(s)", "(z2)").replace(
                "v =",
                "q2 = QuantizeLinear (s, scale, zero)\n"
                "z2 = DequantizeLinear (q2, scale, zero)\n v =",
            )
            + "y = Identity (n)",
            "inside",
            "x",
        ),
        (
            LAYER_NORM + PAIR.replace("(t,", "(n,").replace(" x = ", " y = "),
            "output",
            "x",
        ),
        (
            PAIR
            + LAYER_NORM
            + "q2 = QuantizeLinear (n, scale, zero)\n y = DequantizeLinear (q2, scale, zero)",
            "both",
            "x",
        ),
    ],
)
def test_pairs_of_quantisation_are_looked_through(body: str, quantized: str, x: str) -> None:
    given = "float[2,3,4] t" if "(t," in body else "float[2,3,4] x"
    norm = one(body, inputs=given)
    assert norm.kind is Kind.LAYER
    assert (norm.quantized, norm.x.name) == (quantized, x)


def test_one_pair_for_each_reader_is_still_a_quantised_input() -> None:
    body = PAIR + "q3 = QuantizeLinear (t, scale, zero)\n z = DequantizeLinear (q3, scale, zero)\n"
    norm = one(
        body + LAYER_NORM.replace("Sub (x, m)", "Sub (z, m)") + "y = Identity (n)",
        inputs="float[2,3,4] t",
    )
    assert (norm.kind, norm.x.name, norm.quantized) == (Kind.LAYER, "t", "input")


def test_constants_are_normalised_apart() -> None:
    weight = "x = Constant <value = float[2,4] {1, 2, 3, 4, 5, 6, 7, 9}> ()\n"
    found = facts(
        weight + LAYER_NORM + "y = Mul (n, t)", inputs="float[2,4] t", outputs="float[2,4] y"
    )
    assert not found.norms
    assert [norm.kind for norm in found.constant_norms] == [Kind.LAYER]
    assert found.constant_norms[0].constant


def test_a_branch_reads_x_and_constants_of_the_outer_graph() -> None:
    branch = LAYER_NORM.replace("(x", "(o") + "t1 = Mul (n, g)"
    body = f"""o = Identity (x)
    c = Constant <value = bool {{1}}> ()
    y = If (k) <then_branch = yes () => (float[2,3,4] t1) {{ {branch} }},
                else_branch = no () => (float[2,3,4] t2) {{ t2 = Sin (o) }}>"""
    norm = one(body, inputs="float[2,3,4] x, bool k")
    assert names(norm) == ("o", "t1")
    assert norm.graph.path != "graph"
    assert norm.scale is not None
    assert norm.scale.compute is not None
    np.testing.assert_array_equal(norm.scale.compute(), np.array([[[1, 2, 3, 4]]]))


@pytest.mark.parametrize(
    ("body", "kind", "clipped"),
    [
        ("l = ReduceL2 <axes=[-1]> (x)\n y = Div (x, l)", Kind.L2, False),
        ("l = ReduceL2 <axes=[-1]> (x)\n c = Clip (l, eps)\n y = Div (x, c)", Kind.L2, True),
        ("l = ReduceL2 <axes=[-1]> (x)\n c = Max (eps, l)\n y = Div (x, c)", Kind.L2, True),
        (  # 1e-12 is zero in half precision
            NOUGHT + "c = Clip (l, o)\n n = Div (x, c)\n y = Mul (n, two)",
            Kind.L2,
            True,
        ),
        (
            SUM + "c = Max (l, eps)\n r = Sqrt (c)\n y = Div (x, r)",
            Kind.L2,
            True,
        ),
        (
            SUM + "c = Add (l, eps)\n r = Sqrt (c)\n y = Div (x, r)",
            Kind.L2,
            False,
        ),
        (
            "l = ReduceL2 <axes=[-1]> (x)\n c = Div (l, two)\n y = Div (x, c)",
            Kind.RMS,
            False,
        ),
        ("v = ReduceL2 <axes=[0, 1, 2]> (x)\n y = Div (x, v)", Kind.L2, False),
    ],
)
def test_a_unit_length_is_told_from_a_unit_mean_square(
    body: str, kind: Kind, clipped: bool
) -> None:
    norm = one(body)
    assert (norm.kind, norm.clipped, norm.centred) == (kind, clipped, False)


def test_a_length_over_symbolic_extents_is_a_length() -> None:
    body = "l = ReduceL2 <axes=[1]> (x)\n y = Div (x, l)"
    norm = one(body, inputs="float[N,T,4] x", outputs="float[N,T,4] y")
    assert (norm.kind, norm.axes, norm.scale) == (Kind.L2, (-2,), norm.scale)


def test_a_filter_response_norm_is_no_rms_norm() -> None:
    body = """s = Mul (x, x)
    v = ReduceMean <axes=[2, 3]> (s)
    ve = Add (v, eps)
    r = Sqrt (ve)
    n = Div (x, r)
    w = Constant <value = float[3,1,1] {1, 2, 3}> ()
    y = Mul (n, w)"""
    norm = one(body, inputs="float[2,3,4,4] x", outputs="float[2,3,4,4] y")
    assert (norm.kind, norm.axes) == (Kind.OTHER, (-2, -1))


def test_a_clipped_deviation_is_no_layer_norm() -> None:
    body = LAYER_NORM.replace("n = Div (d, r)", "c = Max (r, eps)\n y = Div (d, c)")
    assert one(body).kind is Kind.OTHER


def test_softmax_and_squeeze_and_excite_are_none() -> None:
    found = facts(
        """e = Exp (x)
        s = ReduceSum (e)
        p = Div (e, s)
        a = GlobalAveragePool (p)
        h = Sigmoid (a)
        y = Mul (p, h)"""
    )
    assert not found.norms
    assert not found.near_norms


def test_a_squared_deviation_over_the_variance_is_not_nearly_a_norm() -> None:
    body = LAYER_NORM.replace("n = Div (d, r)", "z = Div (s, ve)\n h = Sigmoid (z)\n")
    found = facts(body + "y = Mul (x, h)")
    assert not found.norms
    assert not found.near_norms


def test_nodes_that_an_edit_appended_are_read_in_order() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 13]>
    test (float[2,3,4] x) => (float[2,3,4] y) {{ {NUMBERS} {LAYER_NORM} y = Identity (n) }}"""
    graph = build_graph(onnx.parser.parse_model(text), numpy_helper.to_array)
    graph.nodes.reverse()
    norms = recognise(graph, Constants(graph)).norms
    assert [names(norm) for norm in norms] == [("x", "n")]
    assert [node.y.name for node in norms[0].nodes] == ["m", "d", "s", "v", "ve", "r", "n"]


def test_transposed_between_its_parts() -> None:
    body = LAYER_NORM.replace("n = Div (d, r)", "") + (
        "dt = Transpose <perm=[2, 0, 1]> (d)\n rt = Transpose <perm=[2, 0, 1]> (r)\n"
        "y = Div (dt, rt)"
    )
    norm = one(body, outputs="float[4,2,3] y")
    assert (norm.kind, norm.axes, norm.permutation) == (Kind.LAYER, (-1,), (2, 0, 1))


def test_cycles_and_repeated_names_do_no_harm() -> None:
    body = LAYER_NORM.replace("n = Div (d, r)", "n = Div (d, r)\n x2 = Add (n, y)\n")
    found = facts(body + "y = Identity (x2)\n m2 = ReduceMean <axes=[-1]> (y)")
    assert len(found.norms) == 1
