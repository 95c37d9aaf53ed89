"""A BatchNorm that is added to a convolution of the same input goes into its kernel."""

from __future__ import annotations

import pytest
from folding import NORM, assert_same, folded, ops, reasons, repaired
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers import Layers
from rewrite.test_fold_maps import runs

KERNEL = "float[2,2,3,3] w = {" + ",".join(str(k % 7 - 3) for k in range(36)) + "}"
POINT = "float[2,2,1,1] u = {1,2,3,-4}"
BATCH_NORM = "BatchNormalization"


def block(conv: str = "Conv<pads = [1,1,1,1]>(x, w)", total: str = "Add(c, n)") -> str:
    return f"""
        g (float[N,2,5,5] x) => (float[N,2,H,W] y) <{KERNEL}, {POINT}, {NORM}> {{
            n = BatchNormalization(x, s, b, m, v)
            c = {conv}
            t = {total}
            y = Relu(t)
        }}"""


@pytest.mark.parametrize("total", ["Add(c, n)", "Add(n, c)", "Sum(n, c)"])
def test_the_middle_of_a_kernel_takes_it_up(total: str) -> None:
    assert ops(folded(block(total=total))) == ["Conv", "Relu"]


def test_a_block_of_three_branches_becomes_two_convolutions() -> None:
    text = block(total="Add(p, n)").replace("t = ", "d = Conv(x, u)\np = Add(c, d)\nt = ")
    nested = block(total="Add(p, d)").replace("t = ", "d = Conv(x, u)\np = Add(c, n)\nt = ")
    several = block(total="Sum(n, d, c)").replace("t = ", "d = Conv(x, u)\nt = ")

    assert sorted(ops(folded(text))) == ["Add", "Conv", "Conv", "Relu"]
    assert sorted(ops(folded(nested))) == ["Add", "Conv", "Conv", "Relu"]
    assert sorted(ops(folded(several))) == ["Conv", "Conv", "Relu", "Sum"]


def test_an_output_of_the_graph_keeps_its_name() -> None:
    after = folded(block().replace("t = Add", "y = Add").replace("y = Relu(t)\n", ""))

    assert ops(after) == ["Conv"]
    assert [value.name for value in after.graph.output] == ["y"]


@pytest.mark.parametrize(
    "conv",
    [
        "Conv<pads = [1,1,1,1], strides = [1,1], dilations = [1,1]>(x, w)",
        'Conv<auto_pad = "SAME_UPPER">(x, w)',
        "Conv<pads = [2,0,0,2]>(x, w)",
        "Conv<pads = [2,2,2,2], dilations = [2,2]>(x, w)",
    ],
)
def test_every_tap_may_be_the_one(conv: str) -> None:
    assert ops(folded(block(conv))) == ["Conv", "Relu"]


def test_no_other_arrangement_is_taken_for_one() -> None:
    assert BATCH_NORM in ops(folded(block(total="Sub(c, n)")))
    assert BATCH_NORM in ops(folded(block(total="Mul(c, n)")))
    other = block("Conv<pads = [1,1,1,1]>(z, w)").replace(
        "float[N,2,5,5] x", "float[N,2,5,5] x, float[N,2,5,5] z"
    )
    assert reasons(other) == ["no-linear-neighbour"]
    between = block("Conv<pads = [1,1,3,3], dilations = [2,2]>(x, w)")
    assert BATCH_NORM in ops(folded(between))
    read = block().replace("float[N,2,H,W] y)", "float[N,2,H,W] y, float[N,2,H,W] z)")
    assert BATCH_NORM in ops(folded(read.replace("t = ", "z = Sigmoid(c)\nt = ")))
    fused = block('com.microsoft.FusedConv<activation = "Relu", pads = [1,1,1,1]>(x, w)')
    assert BATCH_NORM in ops(folded(fused))
    quantised = block().replace(
        "> {", ", int8[2,2,3,3] q = {" + "5," * 35 + "5}, float k = {0.1}> {", 1
    )
    quantised = quantised.replace("c = Conv", "r = DequantizeLinear(q, k)\nc = Conv").replace(
        "x, w)", "x, r)"
    )
    assert BATCH_NORM in ops(folded(quantised))


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_it_is_exact_for_every_convolution_that_keeps_the_extents(seed: int) -> None:
    layers = Layers(seed)
    choose = layers.choose
    count = choose.randint(1, 3)
    shape = (2, 4, *(choose.randint(2, 5) for _ in range(count)))
    kernel = [choose.randint(1, 3) for _ in range(count)]
    groups = choose.choice((1, 2, 4))
    dilations = [choose.randint(1, 2) for _ in kernel]
    before = [choose.randrange(k) * d for k, d in zip(kernel, dilations, strict=True)]
    after = [d * (k - 1) - p for k, d, p in zip(kernel, dilations, before, strict=True)]
    x = layers.input(shape)
    weight = layers.floats(4, 4 // groups, *kernel)
    bias = [layers.floats(4)] if choose.random() < 0.5 else []
    pads = [*before, *after]
    c = layers.op("Conv", [x, weight, *bias], shape, group=groups, dilations=dilations, pads=pads)
    pair = [c, layers.batch_norm(x)]
    choose.shuffle(pair)
    layers.give(layers.op("Add", pair, shape))
    model = layers.model()
    if not runs(model):
        return

    _, folded_model = repaired(model, verify="region")

    assert BATCH_NORM not in ops(folded_model)
    assert_same(model, folded_model)
