"""A shift in front of a convolution that pads with zeros: a constant image, if one wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from folding import CONV, NORM, assert_same, folded, model_of, ops, reason_of, reasons, repaired
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers import Layers

if TYPE_CHECKING:
    import onnx

PADDED = f"""
    g (float[N,2,5,5] x) => (float[N,2,H,W] y) <{CONV}, {NORM}> {{
        n = BatchNormalization(x, s, b, m, v)
        y = Conv<pads = [1,1,1,1]>(n, w)
    }}"""
TRANSPOSED = PADDED.replace("Conv<pads = [1,1,1,1]>", "ConvTranspose<strides = [2,2]>")


def random_convolution(seed: int) -> Layers:
    """A BatchNorm and a convolution of any kind, with or without zeros around."""
    layers = Layers(seed)
    choose = layers.choose
    count = choose.randint(1, 3)
    groups = choose.choice((1, 1, 2, 4))
    space = tuple(choose.randint(2, 6) for _ in range(count))
    kernel = tuple(choose.randint(1, 3) for _ in space)
    strides = [choose.randint(1, 2) for _ in space]
    dilations = [choose.randint(1, 2) for _ in space]
    attrs: dict[str, object] = {"strides": strides, "dilations": dilations, "group": groups}
    x = layers.batch_norm(layers.input((2, 4, *space)))
    if choose.random() < 0.5:
        weight = layers.floats(4, 2, *kernel)
        if choose.random() < 0.6:
            attrs["pads"] = [choose.randint(0, 1) for _ in range(2 * count)]
            attrs["output_padding"] = [choose.randint(0, step - 1) for step in strides]
        op, made = "ConvTranspose", 2 * groups
    else:
        weight = layers.floats(4, 4 // groups, *kernel)
        way = choose.choice(("pads", "SAME_UPPER", "SAME_LOWER", "VALID"))
        if way == "pads":
            attrs["pads"] = [choose.randint(0, 2) for _ in range(2 * count)]
        else:
            attrs["auto_pad"] = way
        op, made = "Conv", 4
    inputs = [x, weight, *([layers.floats(made)] if choose.random() < 0.5 else [])]
    layers.give(layers.op(op, inputs, (2, made, *(1,) * count), **attrs))
    return layers


def runs(model: onnx.ModelProto) -> bool:
    try:
        assert_same(model, model)
    except Exception:  # noqa: BLE001 - the runtime refuses these attributes
        return False
    return True


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_it_is_exact_for_every_kind_of_convolution(seed: int) -> None:
    model = random_convolution(seed).model()
    if not runs(model):
        return

    _, after = repaired(model, bias_maps=True)

    assert "BatchNormalization" not in ops(after)
    assert_same(model, after)


def test_a_single_place_may_see_a_part_of_the_kernel_only() -> None:
    single = PADDED.replace("float[N,2,5,5]", "float[N,2,1,1]").replace(
        "pads = [1,1,1,1]", "pads = [1,1,0,0]"
    )

    assert ops(folded(single)) == ["Conv"]


@pytest.mark.parametrize("text", [PADDED, TRANSPOSED])
def test_it_is_made_only_where_one_asks_and_says_what_it_costs(text: str) -> None:
    report, after = repaired(model_of(text))
    made, new = repaired(model_of(text), bias_maps=True, verify="region")

    assert [reason_of(finding) for finding in report.findings] == ["padding"]
    assert "bias-maps" in (report.findings[0].not_fixed or report).detail  # type: ignore[union-attr]
    assert "BatchNormalization" in ops(after)
    image = next(t for t in new.graph.initializer if t.name.endswith("_bias_map"))
    cost = made.findings[0].evidence["bias_map_bytes"]
    assert cost == int(np.prod(image.dims)) * 4
    assert f"{cost} bytes" in made.findings[0].message
    assert f"{cost} bytes" in report.findings[0].message


def test_it_is_as_large_as_it_has_to_be() -> None:
    wide = PADDED.replace("[1,1,1,1]", "[1,0,1,0]").replace("float[N,2,5,5]", "float[N,2,5,W]")

    _, after = repaired(model_of(wide), bias_maps=True)

    image = next(t for t in after.graph.initializer if t.name.endswith("_bias_map"))
    assert list(image.dims) == [1, 2, 6, 1]
    assert_same(model_of(wide), after, shapes={"x": (2, 2, 5, 7)})


def test_it_needs_the_extents_of_the_image() -> None:
    unknown = PADDED.replace("float[N,2,5,5]", "float[N,2,A,B]")

    assert reasons(unknown, bias_maps=True) == ["padding"]


def test_two_of_them_are_more_than_what_they_stand_for() -> None:
    twice = PADDED.replace(
        "y = Conv<pads = [1,1,1,1]>(n, w)",
        "c = Conv<pads = [1,1,1,1]>(n, w)\nd = Conv<pads = [1,1,1,1]>(n, w)\ny = Mul(c, d)",
    )

    assert reasons(twice, bias_maps=True) == ["padding"]


def test_an_activation_inside_of_the_convolution_keeps_it_out() -> None:
    fused = PADDED.replace(
        "Conv<pads = [1,1,1,1]>",
        'com.microsoft.FusedConv<activation = "Relu", pads = [1,1,1,1]>',
    )

    assert reasons(fused, bias_maps=True) == ["padding"]


def test_a_pointwise_transposed_convolution_needs_none() -> None:
    text = PADDED.replace("Conv<pads = [1,1,1,1]>", "ConvTranspose").replace(
        CONV, "float[2,3,1,1] w = {1,2,3,4,-1,0.5}"
    )

    assert ops(folded(text.replace("float[N,2,H,W]", "float[N,3,H,W]"))) == ["ConvTranspose"]


def test_a_chain_of_arithmetic_takes_one_too() -> None:
    text = f"""
        g (float[N,2,5,5] x) => (float[N,2,6,6] y)
        <{CONV}, float[2,1,1] k = {{2,-3}}, float[1,2,1,1] t = {{1,5}}> {{
            a = Sub(x, t)
            d = Div(a, k)
            y = Conv<pads = [1,1,1,1]>(d, w)
        }}"""

    assert ops(folded(text)) == ["Sub", "Div", "Conv"]
    assert ops(folded(text, bias_maps=True)) == ["Conv", "Add"]
