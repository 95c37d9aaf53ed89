"""GlobalResponseNorm is told apart from the five kinds."""

import pytest
from graphs import norms_of

from normlint.normalization import Kind

TEXT = """
grn (float[N,6,6,8] x) => (float[N,6,6,8] y)
<float[8] scale = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[8] bias = {{0, 1, 0, 1, 0, 1, 0, 1}},
 float epsilon = {{1e-6}}, int64[2] space = {{1, 2}}, int64[1] channels = {{-1}}> {{
    length = ReduceL2<keepdims = {keep}>(x, space)
    mean = ReduceMean(length, {over})
    shifted = Add({sum})
    quotient = Div(length, shifted)
    response = Mul({product})
    scaled = Mul(scale, response)
    moved = Add(scaled, bias)
    y = Add(moved, x)
}}
"""


@pytest.mark.parametrize("total", ["mean, epsilon", "epsilon, mean"])
@pytest.mark.parametrize("product", ["x, quotient", "quotient, x"])
def test_it_is_no_norm_of_the_five_kinds(total: str, product: str) -> None:
    found = norms_of(TEXT.format(keep=1, over="channels", sum=total, product=product), opset=18)

    assert [(norm.kind, norm.axes) for norm in found] == [(Kind.OTHER, (-3, -2))]
    assert found[0].epsilon == pytest.approx(1e-6)
    assert found[0].y.name == "response"


@pytest.mark.parametrize(
    ("keep", "over"), [(1, "space"), (0, "channels")], ids=["the same axes", "axes that are gone"]
)
def test_what_only_looks_like_it_is_left_alone(keep: int, over: str) -> None:
    text = TEXT.format(keep=keep, over=over, sum="mean, epsilon", product="x, quotient")

    assert not [norm for norm in norms_of(text, opset=18) if norm.kind is Kind.OTHER]
