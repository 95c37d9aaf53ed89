"""Means that accelerators are given as pools and products with equal weights are means."""

from __future__ import annotations

import pytest
from graphs import norm_of, norms_of

from normlint.normalization import Kind

TAIL = "e = Add(v, eps) o = Sqrt(e) n = Div(d, o) s = Mul(n, scale) y = Add(s, bias)"
EQUAL = "float[4,1] mean = {0.25,0.25,0.25,0.25}"
POINT = "float[1,4,1,1] mean = {0.25,0.25,0.25,0.25}"


def rows(mean: str, variance: str, constants: str) -> str:
    return f"""
        g (float[2,3,4] x) => (float[2,3,4] y)
        <float eps = {{0.001}}, float[4] scale = {{1,2,-3,4}}, float[4] bias = {{1,2,0,4}},
         {constants}> {{
            m = {mean} d = Sub(x, m) q = Mul(d, d) v = {variance} {TAIL}
        }}
    """


def image(mean: str, variance: str, constants: str = "float none = {0}") -> str:
    return f"""
        g (float[2,4,3,5] x) => (float[2,4,3,5] y)
        <float eps = {{0.001}}, float[4,1,1] scale = {{1,2,-3,4}}, float[4,1,1] bias = {{1,2,0,4}},
         {constants}> {{
            m = {mean} d = Sub(x, m) q = Mul(d, d) v = {variance} {TAIL}
        }}
    """


def test_a_product_with_a_column_of_equal_weights_is_a_mean() -> None:
    norm = norm_of(rows("MatMul(x, mean)", "MatMul(q, mean)", EQUAL))

    assert norm.kind is Kind.LAYER
    assert norm.axes == (-1,)
    assert norm.epsilon == pytest.approx(1e-3)
    assert norm.scale is not None
    assert norm.bias is not None


def test_a_convolution_to_one_channel_is_a_mean_over_channels() -> None:
    norm = norm_of(image("Conv(x, mean)", "Conv(q, mean)", POINT))

    assert norm.kind is Kind.LAYER
    assert norm.axes == (-3,)


def test_a_pool_over_the_whole_image_is_a_mean() -> None:
    pool = "AveragePool<kernel_shape = [3, 5]>"
    norm = norm_of(image(f"{pool}(x)", f"{pool}(q)"))

    assert norm.kind is Kind.INSTANCE
    assert norm.axes == (-2, -1)


@pytest.mark.parametrize(
    "text",
    [
        rows("MatMul(x, mean)", "MatMul(q, mean)", "float[4,1] mean = {0.25,0.5,0.25,0.25}"),
        image("Conv(x, mean)", "Conv(q, mean)", "float[1,4,1,1] mean = {0.2,0.3,0.25,0.25}"),
        image(
            "AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
            "AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(q)",
        ),
        image(
            "AveragePool<kernel_shape = [3, 5], pads = [1, 2, 1, 2]>(x)",
            "AveragePool<kernel_shape = [3, 5], pads = [1, 2, 1, 2]>(q)",
        ),
    ],
)
def test_other_products_and_pools_are_no_means(text: str) -> None:
    assert not norms_of(text)


def test_equal_weights_that_are_not_one_by_n_make_no_difference_from_the_mean() -> None:
    text = rows("MatMul(x, mean)", "MatMul(q, mean)", "float[4,1] mean = {0.3,0.3,0.3,0.3}")

    assert norm_of(text).kind is Kind.RMS
    assert norm_of(text).x.name == "d"


@pytest.mark.parametrize(
    "attributes",
    ["kernel_shape = 3", 'kernel_shape = "x"', "kernel_shape = [3, 5], pads = 1", "strides = 2"],
)
def test_attributes_of_other_types_are_borne(attributes: str) -> None:
    pool = f"AveragePool<{attributes}>"

    norms_of(image(f"{pool}(x)", f"{pool}(q)"))
    norms_of(image(f"Conv<{attributes}>(x, mean)", f"Conv<{attributes}>(q, mean)", POINT))
