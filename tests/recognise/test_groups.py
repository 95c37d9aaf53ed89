"""Group normalisation is recognised by what its Reshapes do, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from graphs import norm_of, norms_of, parse
from onnx.reference import ReferenceEvaluator

from normlint.normalization import Form, Kind

if TYPE_CHECKING:
    from normlint.normalization import Normalization, Parameter

EPSILON = 1e-3
VALUES = "1.5, -2, 0.5, 3"
AFFINE = f"float[4,1,1] scale = {{{VALUES}}}, float[4,1,1] bias = {{{VALUES}}}"
PLAIN = "float[2] ones = {1,1}, float[2] zeros = {0,0}"
OPERATOR = "n = InstanceNormalization<epsilon = 0.001>(r, ones, zeros)"
ARITHMETIC = """
    m = ReduceMean<axes = [-1]>(r) d = Sub(r, m) q = Mul(d, d) v = ReduceMean<axes = [-1]>(q)
    e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
"""
TAIL = "s = Mul(j, scale) y = Add(s, bias)"


def image(body: str, constants: str = "", shape: str = "2,4,3,5") -> str:
    values = ", ".join(filter(None, [PLAIN, AFFINE, "float eps = {0.001}", constants]))
    return f"g (float[{shape}] x) => (float[{shape}] y) <{values}> {{ {body} }}"


SPELLINGS = {
    "static": image(
        f"r = Reshape(x, split) {OPERATOR} j = Reshape(n, back) {TAIL}",
        "int64[3] split = {2,2,-1}, int64[4] back = {2,4,3,5}",
    ),
    "dynamic": image(
        f"r = Reshape(x, split) {OPERATOR} k = Shape(x) j = Reshape(n, k) {TAIL}",
        "int64[3] split = {0,2,-1}",
        "N,4,H,W",
    ),
    "extents one by one": image(
        f"""
        k = Shape(x) n0 = Gather(k, zero) n1 = Unsqueeze(n0, at) split = Concat<axis = 0>(n1, rest)
        r = Reshape(x, split) {OPERATOR}
        back = Slice(k, at, end) j = Reshape(n, back) {TAIL}
        """,
        "int64 zero = {0}, int64[1] at = {0}, int64[2] rest = {2,-1}, int64[1] end = {4}",
        "N,4,H,W",
    ),
    "arithmetic": image(
        f"r = Reshape(x, split) {ARITHMETIC} j = Reshape(n, back) {TAIL}",
        "int64[3] split = {2,2,-1}, int64[4] back = {2,4,3,5}",
    ),
    "unsqueezed affine": image(
        f"""
        r = Reshape(x, split) {OPERATOR} k = Shape(x) j = Reshape(n, k)
        g = Unsqueeze(flat, at) h = CastLike(g, j) s = Mul(j, h)
        b = Unsqueeze(flat, at) y = Add(b, s)
        """,
        f"int64[3] split = {{0,2,-1}}, float[4] flat = {{{VALUES}}}, int64[2] at = {{1,2}}",
    ),
    "kept axes": image(
        f"""
        r = Reshape(x, split)
        m = ReduceMean<axes = [2, 3, 4]>(r) d = Sub(r, m) q = Mul(d, d)
        v = ReduceMean<axes = [2, 3, 4]>(q) e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
        j = Reshape(n, back) {TAIL}
        """,
        "int64[5] split = {2,2,2,3,5}, int64[4] back = {2,4,3,5}",
    ),
    "rows of batch and groups": image(
        f"""
        r = Reshape(x, split) m = ReduceMean<axes = [1]>(r) d = Sub(r, m) q = Mul(d, d)
        v = ReduceMean<axes = [1]>(q) e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
        j = Reshape(n, back) {TAIL}
        """,
        "int64[2] split = {4,-1}, int64[4] back = {2,4,3,5}",
    ),
    "a fused LayerNorm": image(
        f"""
        r = Reshape(x, split) n = LayerNormalization<epsilon = 0.001>(r, o30)
        j = Reshape(n, back) {TAIL}
        """,
        f"int64[3] split = {{2,2,-1}}, int64[4] back = {{2,4,3,5}},"
        f" float[30] o30 = {{{','.join(['1'] * 30)}}}",
    ),
    "batch as channels": image(
        f"r = Reshape(x, split) n = InstanceNormalization<epsilon = 0.001>(r, o4, z4)"
        f" j = Reshape(n, back) {TAIL}",
        "int64[3] split = {1,4,-1}, int64[4] back = {2,4,3,5},"
        " float[4] o4 = {1,1,1,1}, float[4] z4 = {0,0,0,0}",
    ),
    "function body of opset 18": image(
        """
        k = Shape(x) n0 = Shape<start = 0, end = 1>(x) c = Shape<start = 1, end = 2>(x)
        size = Div(c, two) rest = Shape<start = 2>(x)
        split = Concat<axis = 0>(n0, two, size, rest)
        r5 = Reshape(x, split) r = Reshape(r5, flat)
        m = ReduceMean<axes = [2]>(r) q = Mul(r, r) v0 = ReduceMean<axes = [2]>(q) mm = Mul(m, m)
        v = Sub(v0, mm) e = Add(v, eps) o = Sqrt(e) d = Sub(r, m) n = Div(d, o)
        g = Reshape(of_groups, across) h = Reshape(shifts, across)
        s = Mul(g, n) b = Add(s, h) y = Reshape(b, k)
        """,
        "int64[1] two = {2}, int64[3] flat = {0,0,-1},"
        " int64[3] across = {1,-1,1}, float[2] of_groups = {1.5,-2}, float[2] shifts = {1,3}",
    ),
    "function body of opset 21": image(
        """
        k = Shape(x) n0 = Shape<start = 0, end = 1>(x) c = Shape<start = 1, end = 2>(x)
        size = Div(c, two) rest = Shape<start = 2>(x)
        split = Concat<axis = 0>(n0, two, size, rest)
        r5 = Reshape(x, split) r = Reshape(r5, flat)
        m = ReduceMean<axes = [2]>(r) q = Mul(r, r) v0 = ReduceMean<axes = [2]>(q) mm = Mul(m, m)
        v = Sub(v0, mm) e = Add(v, eps) o = Sqrt(e) d = Sub(r, m) n = Div(d, o)
        j = Reshape(n, k) l = Reshape(j, flat)
        g = Reshape(scale, across) h = Reshape(bias, across)
        s = Mul(g, l) b = Add(s, h) y = Reshape(b, k)
        """,
        "int64[1] two = {2}, int64[3] flat = {0,0,-1}, int64[3] across = {1,-1,1}",
    ),
    "statistics expanded to the channels": image(
        f"""
        r = Reshape(x, split) m0 = ReduceMean<axes = [2, 3, 4], keepdims = 0>(r) q = Mul(r, r)
        v0 = ReduceMean<axes = [2, 3, 4], keepdims = 0>(q) mm = Mul(m0, m0) v = Sub(v0, mm)
        m1 = Unsqueeze(m0, two) v1 = Unsqueeze(v, two)
        m2 = Expand(m1, twice) v2 = Expand(v1, twice)
        m = Reshape(m2, across) w = Reshape(v2, across)
        d = Sub(x, m) e = Add(w, eps) o = Sqrt(e) j = Div(d, o) {TAIL}
        """,
        "int64[5] split = {2,2,2,3,5}, int64[1] two = {2},"
        " int64[3] twice = {2,2,2}, int64[4] across = {2,4,1,1}",
    ),
    "statistics tiled to the channels": image(
        f"""
        r = Reshape(x, split) m0 = ReduceMean<axes = [2]>(r) q = Mul(r, r)
        v0 = ReduceMean<axes = [2]>(q) mm = Mul(m0, m0) v = Sub(v0, mm)
        m1 = Tile(m0, twice) v1 = Tile(v, twice)
        m = Reshape(m1, across) w = Reshape(v1, across)
        d = Sub(x, m) e = Add(w, eps) o = Sqrt(e) j = Div(d, o) {TAIL}
        """,
        "int64[3] split = {2,2,-1}, int64[3] twice = {1,1,2}, int64[4] across = {2,4,1,1}",
    ),
    "statistics gathered for the channels": image(
        f"""
        r = Reshape(x, split) m0 = ReduceMean<axes = [2]>(r) q = Mul(r, r)
        v0 = ReduceMean<axes = [2]>(q) mm = Mul(m0, m0) v = Sub(v0, mm)
        m1 = Gather<axis = 1>(m0, group) v1 = Gather<axis = 1>(v, group)
        m = Reshape(m1, across) w = Reshape(v1, across)
        d = Sub(x, m) e = Add(w, eps) o = Sqrt(e) j = Div(d, o) {TAIL}
        """,
        "int64[3] split = {2,2,-1}, int64[4] group = {0,0,1,1}, int64[4] across = {2,4,1,1}",
    ),
}


def applied(norm: Normalization, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Compute what the fact says."""
    assert norm.groups is not None
    last = norm.channels_last
    rows = np.moveaxis(x, -1, 1) if last else x
    grouped = rows.reshape(x.shape[0], norm.groups, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    normal = centred / np.sqrt(grouped.var(-1, keepdims=True) + norm.epsilon)
    normal = normal.reshape(rows.shape)
    normal = np.moveaxis(normal, 1, -1) if last else normal
    return normal * values(norm.scale, 1.0) + values(norm.bias, 0.0)


def values(parameter: Parameter | None, default: float) -> np.ndarray[Any, Any]:
    if parameter is None:
        return np.asarray(default)
    assert parameter.compute is not None
    return parameter.compute()


def check_meaning(text: str) -> Normalization:
    norm = norm_of(text)
    model = parse(text)
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 5)[: (norm.x.rank or 0)])
    if norm.channels_last:
        x = np.random.default_rng(0).standard_normal((2, 3, 4))
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x.astype(np.float32)})

    assert norm.kind is Kind.GROUP
    assert norm.form is Form.DECOMPOSED
    assert norm.y.name == "y"
    assert norm.epsilon == pytest.approx(EPSILON)
    np.testing.assert_allclose(applied(norm, x), expected, atol=1e-5)
    return norm


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_group_norm_is_recognised(name: str) -> None:
    norm = check_meaning(SPELLINGS[name])

    assert norm.groups == 2
    assert norm.axes == (-3, -2, -1)


def test_channels_may_be_the_last_axis() -> None:
    text = f"""
        g (float[2,3,4] x) => (float[2,3,4] y)
        <float eps = {{0.001}}, int64[4] split = {{-1,3,2,2}}, int64[3] back = {{-1,3,4}},
         float[1,1,2,2] scale = {{{VALUES}}}, float[1,1,2,2] bias = {{{VALUES}}}> {{
            r = Reshape(x, split)
            m = ReduceMean<axes = [1, 3]>(r) d = Sub(r, m) q = Mul(d, d)
            v = ReduceMean<axes = [1, 3]>(q) e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
            s = Mul(n, scale) a = Add(s, bias)
            y = Reshape(a, back)
        }}
    """
    norm = check_meaning(text)

    assert norm.channels_last
    assert norm.groups == 2


def test_scales_of_the_groups_and_of_the_channels_are_multiplied() -> None:
    text = image(
        "r = Reshape(x, split) n = InstanceNormalization<epsilon = 0.001>(r, twos, threes)"
        f" j = Reshape(n, back) {TAIL}",
        "int64[3] split = {2,2,-1}, int64[4] back = {2,4,3,5},"
        " float[2] twos = {2,-2}, float[2] threes = {3,1}",
    )

    assert check_meaning(text).groups == 2


def test_quantisation_inside_is_seen_through_and_noted() -> None:
    text = image(
        f"""
        r0 = Reshape(x, split)
        q = QuantizeLinear(r0, step, zero) r = DequantizeLinear(q, step, zero)
        {OPERATOR} j = Reshape(n, back) {TAIL}
        """,
        "int64[3] split = {2,2,-1}, int64[4] back = {2,4,3,5}, float step = {0.1}, int8 zero = {0}",
    )
    norm = norm_of(text)

    assert norm.kind is Kind.GROUP
    assert norm.quantized == "inside"


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        (  # height and width change places
            f"r = Reshape(x, split) {OPERATOR} j = Reshape(n, back) {TAIL}",
            "int64[3] split = {2,2,-1}, int64[4] back = {2,4,5,3}",
        ),
        (  # three groups cut channels in two
            f"""
            r = Reshape(x, split) n = InstanceNormalization(r, o3, z3) j = Reshape(n, back) {TAIL}
            """,
            """
            int64[3] split = {2,3,-1}, int64[4] back = {2,4,3,5},
            float[3] o3 = {1,1,1}, float[3] z3 = {0,0,0}
            """,
        ),
        (  # the batch is split instead
            f"r = Reshape(x, split) {OPERATOR} j = Reshape(n, back) {TAIL}",
            "int64[3] split = {4,2,-1}, int64[4] back = {2,4,3,5}",
        ),
    ],
)
def test_other_reshapes_make_no_group_norm(body: str, constants: str) -> None:
    text = image(body, constants).replace("=> (float[2,4,3,5] y)", "=> (float[A,B,C,D] y)")

    assert all(norm.kind is not Kind.GROUP for norm in norms_of(text))


def test_heads_of_an_attention_are_no_groups() -> None:
    text = """
        g (float[2,6,8] x) => (float[2,6,8] y)
        <int64[4] split = {2,6,4,2}, int64[3] back = {2,6,8}, float eps = {0.001}> {
            r = Reshape(x, split)
            m = ReduceMean<axes = [-1]>(r) d = Sub(r, m) q = Mul(d, d)
            v = ReduceMean<axes = [-1]>(q) e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
            y = Reshape(n, back)
        }
    """

    assert norm_of(text).kind is Kind.LAYER


def test_rows_of_a_sequence_are_no_groups() -> None:
    text = """
        g (float[2,6,8] x) => (float[2,6,8] y)
        <int64[2] split = {12,8}, int64[3] back = {2,6,8}, float eps = {0.001},
         float[8] s = {1,2,3,4,5,6,7,8}> {
            r = Reshape(x, split)
            m = ReduceMean<axes = [-1]>(r) d = Sub(r, m) q = Mul(d, d)
            v = ReduceMean<axes = [-1]>(q) e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
            j = Reshape(n, back) y = Mul(j, s)
        }
    """

    assert norm_of(text).kind is Kind.LAYER


def test_an_instance_norm_takes_the_affine_behind_it() -> None:
    text = image(
        "n = InstanceNormalization<epsilon = 0.001>(x, o4, z4) s = Mul(n, scale) y = Add(s, bias)",
        "float[4] o4 = {1,1,1,1}, float[4] z4 = {0,0,0,0}",
    )
    norm = norm_of(text)

    assert norm.kind is Kind.INSTANCE
    assert norm.y.name == "y"
    assert values(norm.scale, 1.0).reshape(-1).tolist() == [1.5, -2, 0.5, 3]


def test_statistics_may_be_spread_over_channels_that_come_last() -> None:
    text = f"""
        g (float[2,3,4] x) => (float[2,3,4] y)
        <float eps = {{0.001}}, int64[4] split = {{2,3,2,2}},
         int64[1] two = {{2}}, int64[3] twice = {{2,2,2}}, int64[3] across = {{2,1,4}},
         float[4] scale = {{{VALUES}}}, float[4] bias = {{{VALUES}}}> {{
            r = Reshape(x, split) m0 = ReduceMean<axes = [1, 3], keepdims = 0>(r) q = Mul(r, r)
            v0 = ReduceMean<axes = [1, 3], keepdims = 0>(q) mm = Mul(m0, m0) v = Sub(v0, mm)
            m1 = Unsqueeze(m0, two) v1 = Unsqueeze(v, two)
            m2 = Expand(m1, twice) v2 = Expand(v1, twice)
            m = Reshape(m2, across) w = Reshape(v2, across)
            d = Sub(x, m) e = Add(w, eps) o = Sqrt(e) u = Reciprocal(o) f = Mul(u, scale)
            s = Mul(d, f) y = Add(s, bias)
        }}
    """
    norm = check_meaning(text)

    assert norm.channels_last
    assert norm.groups == 2


def test_statistics_of_other_groups_make_no_group_norm() -> None:
    text = image(
        f"""
        r = Reshape(x, split) m0 = ReduceMean<axes = [2]>(r) q = Mul(r, r)
        v0 = ReduceMean<axes = [2]>(q) mm = Mul(m0, m0) v = Sub(v0, mm)
        m1 = Gather<axis = 1>(m0, group) v1 = Gather<axis = 1>(v, group)
        m = Reshape(m1, across) w = Reshape(v1, across)
        d = Sub(x, m) e = Add(w, eps) o = Sqrt(e) j = Div(d, o) {TAIL}
        """,
        "int64[3] split = {2,2,-1}, int64[4] group = {0,1,0,1}, int64[4] across = {2,4,1,1}",
    )

    assert not norms_of(text)


@pytest.mark.parametrize("given", ["float[2] s, float[2] b", "float[N] s, float[N] b"])
def test_a_vector_that_the_caller_gives_is_a_scale(given: str) -> None:
    text = f"""
        g (float[2,4,3,5] x, {given}) => (float[2,4,3,5] y)
        <int64[3] split = {{2,2,-1}}, int64[4] back = {{2,4,3,5}}, int64[3] across = {{1,-1,1}},
         float eps = {{0.001}}> {{
            r = Reshape(x, split) {ARITHMETIC}
            g = Reshape(s, across) h = Reshape(b, across)
            t = Mul(n, g) u = Add(t, h) y = Reshape(u, back)
        }}
    """
    kind = Kind.GROUP if "2" in given else Kind.LAYER
    norm = norm_of(text)

    assert norm.kind is kind
    assert (norm.scale is not None) == (kind is Kind.GROUP)
    assert norm.scale is None or norm.scale.compute is None


def test_rows_may_be_merged_while_the_groups_become_channels_again() -> None:
    text = f"""
        g (float[2,3,4] x) => (float[6,4] y)
        <float eps = {{0.001}}, int64[4] split = {{2,3,2,2}}, int64[2] rows = {{-1,4}},
         float[1,1,2,2] scale = {{{VALUES}}}, float[1,1,2,2] bias = {{{VALUES}}}> {{
            r = Reshape(x, split)
            m = ReduceMean<axes = [1, 3]>(r) d = Sub(r, m) q = Mul(d, d)
            v = ReduceMean<axes = [1, 3]>(q) e = Add(v, eps) o = Sqrt(e) n = Div(d, o)
            s = Mul(n, scale) a = Add(s, bias)
            y = Reshape(a, rows)
        }}
    """
    norm = norm_of(text)

    assert norm.kind is Kind.GROUP
    assert norm.groups == 2
    assert norm.channels_last
    assert norm.axes == (-2, -1)
    assert norm.scale is not None
    assert norm.scale.shape == (1, 1, 4)


def test_rows_of_groups_may_come_from_any_axes() -> None:
    text = f"""
        g (float[2,3,4] x) => (float[6,4] y)
        <int64[3] split = {{6,2,2}}, int64[2] rows = {{6,4}}, {PLAIN},
         float[4] scale = {{{VALUES}}}, float[4] bias = {{{VALUES}}}> {{
            r = Reshape(x, split) {OPERATOR} j = Reshape(n, rows) {TAIL}
        }}
    """
    norm = norm_of(text)

    assert norm.kind is Kind.GROUP
    assert norm.groups == 2
    assert norm.scale is not None
    assert norm.scale.shape == (1, 4)
    assert norm.elements == 2


def test_rows_of_groups_without_an_affine_stay_instances() -> None:
    text = f"""
        g (float[2,3,4] x) => (float[6,4] y)
        <int64[3] split = {{6,2,2}}, int64[2] rows = {{6,4}}, {PLAIN}> {{
            r = Reshape(x, split) {OPERATOR} y = Reshape(n, rows)
        }}
    """

    assert norm_of(text).kind is Kind.INSTANCE
