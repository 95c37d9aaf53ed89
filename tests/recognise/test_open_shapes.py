"""Normalisations of tensors whose shapes the file does not tell, or tells in symbols."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, numpy_helper

from normlint.context.constants import Constants
from normlint.graph import Graph, Tensor, build_graph
from normlint.normalization import Kind, Normalization
from normlint.recognise import recognise

HEADER = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'
CONSTANTS = """
two = Constant <value = float {2}> ()
one = Constant <value = float {1}> ()
eps = Constant <value = float {0.125}> ()
zero = Constant <value = int64 {0}> ()
first = Constant <value = int64[1] {0}> ()
second = Constant <value = int64[1] {1}> ()
last = Constant <value = int64[1] {-1}> ()
minus = Constant <value = int64[1] {-1}> ()
three = Constant <value = int64[1] {3}> ()
rest = Constant <value = int64[2] {1, -1}> ()
"""
TAIL = """
e = Add (v, eps)
r = Sqrt (e)
y = Div (d, r)
"""


def model(body: str, given: str, opset: int = 13) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        test ({given}) => (float y) {{ {CONSTANTS} {body} }}"""
    )


def graph_of(body: str, given: str, opset: int = 13) -> Graph:
    made = model(body, given, opset)
    return build_graph(made, numpy_helper.to_array)


def norm_of(body: str, given: str, opset: int = 13) -> Normalization:
    graph = graph_of(body, given, opset)
    found = recognise(graph, Constants(graph))
    assert len(found.norms) == 1
    return found.norms[0]


@pytest.mark.parametrize(
    "number",
    [
        "n = Gather (shape, two_)\n n1 = Cast <to=1> (n)",
        "n = Gather (shape, last)\n n0 = ReduceProd <keepdims=0> (n)\n n1 = Cast <to=1> (n0)",
        "n = Slice (shape, last_, end)\n n0 = Squeeze (n, first)\n n1 = Cast <to=1> (n0)",
    ],
)
@pytest.mark.parametrize("shape", ["N,T,4", "N,T,H"])
def test_a_count_that_is_computed_from_the_shape(number: str, shape: str) -> None:
    body = f"""two_ = Constant <value = int64 {{2}}> ()
    last_ = Constant <value = int64[1] {{2}}> ()
    end = Constant <value = int64[1] {{3}}> ()
    shape = Shape (x)
    {number}
    s = ReduceSum (x, last)
    m = Div (s, n1)
    d = Sub (x, m)
    q = Mul (d, d)
    t = ReduceSum (q, last)
    v = Div (t, n1)
    {TAIL}"""
    norm = norm_of(body, f"float[{shape}] x")
    assert (norm.kind, norm.axes, norm.x.name, norm.y.name) == (Kind.LAYER, (-1,), "x", "y")
    assert norm.epsilon == pytest.approx(0.125)


def test_a_corrected_variance_with_a_computed_count() -> None:
    body = f"""shape = Shape (x)
    n = Gather (shape, last)
    n0 = ReduceProd <keepdims=0> (n)
    n1 = Cast <to=1> (n0)
    less = Sub (n1, one)
    m = ReduceMean <axes=[-1]> (x)
    d = Sub (x, m)
    q = Mul (d, d)
    v0 = ReduceMean <axes=[-1]> (q)
    v1 = Mul (v0, n1)
    v = Div (v1, less)
    {TAIL}"""
    norm = norm_of(body, "float[N,T,5] x")
    assert norm.epsilon == pytest.approx(0.125 * 4 / 5)


def test_flattened_pixels_and_expanded_statistics() -> None:
    body = f"""shape = Shape (x)
    n = Gather (shape, first)
    c = Gather (shape, second)
    rows = Concat <axis=0> (n, c, minus)
    flat = Reshape (x, rows)
    m0 = ReduceMean <axes=[2], keepdims=0> (flat)
    one_ = Constant <value = int64[1] {{1}}> ()
    back = Concat <axis=0> (n, c, one_, one_)
    m1 = Reshape (m0, back)
    ones = Constant <value = int64[4] {{1, 1, 1, 1}}> ()
    keep = Constant <value = int64[4] {{-1, -1, -1, -1}}> ()
    is_kept = Equal (shape, keep)
    full = Where (is_kept, ones, shape)
    m = Expand (m1, full)
    d = Sub (x, m)
    xx = Mul (flat, flat)
    q0 = ReduceMean <axes=[2]> (xx)
    q = Reshape (q0, back)
    mm = Mul (m1, m1)
    v = Sub (q, mm)
    {TAIL}"""
    norm = norm_of(body, "float[N,5,H,W] x")
    assert (norm.kind, norm.axes, norm.one_pass) == (Kind.INSTANCE, (-2, -1), True)


def test_a_sum_of_products_of_a_value_with_itself() -> None:
    body = """q = Einsum <equation="bsd,bsd->bs"> (x, x)
    q1 = Unsqueeze (q, last)
    four = Constant <value = float {4}> ()
    v = Div (q1, four)
    d = Identity (x)
    """
    assert norm_of(body + TAIL, "float[N,T,4] x").kind is Kind.RMS
    for equation in ("bsd,bde->bse", "bsd,bsd->sb", "bsd,bsd"):
        graph = graph_of(body.replace("bsd,bsd->bs", equation) + TAIL, "float[4,4,4] x")
        assert not recognise(graph, Constants(graph)).norms


def test_axes_from_the_front_need_the_rank() -> None:
    body = """m = ReduceMean <axes=[{}]> (x)
    d = Sub (x, m)
    q = Mul (d, d)
    v = ReduceMean <axes=[{}]> (q)
    """
    unknown = "x = Reshape (t, s)\n"
    given = "float[N] t, int64[R] s"
    assert norm_of(unknown + body.format(-1, -1) + TAIL, given).kind is Kind.LAYER
    graph = graph_of(unknown + body.format(2, 2) + TAIL, given)
    assert not recognise(graph, Constants(graph)).norms
    known = given.replace("int64[R]", "int64[3]")
    assert norm_of(unknown + body.format(2, 2) + TAIL, known).axes == (-1,)


GELU = "a = com.microsoft.Gelu (x)\n"
COLUMN = "w = Constant <value = float[4,1] {1, 2, 3, 4}> ()\n"
KERNEL = "w = Constant <value = float[1,3,1] {1, 2, 3}> ()\n"
SHAPES = [
    ("y = com.microsoft.Gelu (x)", ("N", 3, 4)),
    (GELU + "y = Add (a, x)", ("N", 3, 4)),
    (GELU + COLUMN + "y = MatMul (a, w)", ("N", 3, 1)),
    (GELU + "y = Transpose <perm=[1, 2, 0]> (a)", (3, 4, "N")),
    (GELU + "y = Transpose (a)", (4, 3, "N")),
    (GELU + "y = ReduceMean <axes=[1]> (a)", ("N", 1, 4)),
    (GELU + "y = ReduceMean <axes=[1], keepdims=0> (a)", ("N", 4)),
    (GELU + "y = ReduceMax (a)", (None, None, None)),
    (GELU + "y = Unsqueeze (a, first)", (1, "N", 3, 4)),
    (GELU + "b = Unsqueeze (a, first)\n y = Squeeze (b, first)", ("N", 3, 4)),
    (GELU + "y = Gather <axis=1> (a, zero)", ("N", 4)),
    (GELU + "y = Concat <axis=1> (a, x)", (None, None, None)),
    (GELU + "y, z = Split <axis=2> (a)", (None, None, None)),
    (GELU + KERNEL + "y = Conv (a, w)", ("N", 1, None)),
    (GELU + "y = GlobalAveragePool (a)", ("N", 3, 1)),
    (GELU + "y = com.microsoft.Mystery (a)", None),
]


@pytest.mark.parametrize(("body", "expected"), SHAPES)
def test_shapes_behind_operators_of_other_domains(
    body: str, expected: tuple[int | str | None, ...] | None
) -> None:
    graph = graph_of(body, "float[N,3,4] x")
    tensor: Tensor = next(node for node in graph.nodes if node.y.name == "y").y
    tensor.shape = None
    assert Constants(graph).shapes.of(tensor) == expected


def test_shapes_in_a_long_chain_need_no_recursion() -> None:
    nodes = [helper.make_node("Gelu", ["x"], ["t0"], domain="com.microsoft")]
    nodes += [helper.make_node("Add", [f"t{k}", "x"], [f"t{k + 1}"]) for k in range(5000)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "long", [value("x", 1, [2, 3])], [value("t5000", 1, None)])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    built = build_graph(helper.make_model(graph, opset_imports=opsets), numpy_helper.to_array)
    last = built.nodes[-1].y
    last.shape = None
    assert Constants(built).shapes.of(last) == (2, 3)


def test_a_cast_tells_its_type_where_inference_stopped() -> None:
    text = """
        g (float16[2,3] x) => (float16[2,3] y) {
            strange = acme.Unknown(x)
            wide = Cast<to = 11>(strange)
            y = Cast<to = 10>(wide)
        }
    """
    graph = build_graph(onnx.parser.parse_model(f"{HEADER}{text}"), numpy_helper.to_array)

    constants = Constants(graph)

    assert constants.shapes is not None
    assert [node.y.dtype for node in graph.nodes[1:]] == [11, 10]
