"""A scale and shift behind a sum, a Concat or a product of what several operators compute."""

from __future__ import annotations

import numpy as np
import pytest
from folding import CONV, NORM, assert_same, folded, model_of, ops, reason_of, reasons, repaired
from onnx import TensorProto, helper, numpy_helper

OTHER = "float[2,2,2,2] u = {1,0,3,4,-1,1.5,2,1,0.25,-2,1,2,3,-1,2,0.5}"
BATCH_NORM = "BatchNormalization"


def summed(op: str = "Add(c, d)", left: str = "Conv(x, w)", right: str = "Conv(x, u)") -> str:
    return f"""
        g (float[1,2,5,5] x) => (float[1,2,N,M] y) <{CONV}, {OTHER}, {NORM}> {{
            c = {left}
            d = {right}
            t = {op}
            y = BatchNormalization(t, s, b, m, v)
        }}"""


@pytest.mark.parametrize("op", ["Add(c, d)", "Sub(c, d)", "Sub(d, c)", "Sum(c, d)"])
def test_every_part_of_a_sum_takes_the_scale_and_one_the_shift(op: str) -> None:
    after = folded(summed(op))

    assert ops(after) == ["Conv", "Conv", op[:3]]
    shifts = [node for node in after.graph.node if node.op_type == "Conv" and len(node.input) > 2]
    assert len(shifts) == 1


def test_the_shift_goes_where_it_costs_nothing() -> None:
    text = f"""
        g (float[3,2] x) => (float[3,2] y)
        <float[2,2] w = {{1,2,3,4}}, float[2] k = {{1,2}}, {NORM}> {{
            c = MatMul(x, w)
            d = Gemm(x, w, k)
            t = Add(c, d)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert ops(folded(text)) == ["MatMul", "Gemm", "Add"]


def test_sums_of_sums_and_of_several_are_followed() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y) <{CONV}, {OTHER}, {NORM}> {{
            c = Conv(x, w)
            d = Conv(x, u)
            e = Conv(x, u)
            f = BatchNormalization(e, s, b, m, v)
            i = Sub(c, d)
            t = Sum(i, f, b4)
            y = BatchNormalization(t, s, b, m, v)
        }}""".replace("> {", ", float[1,2,1,1] b4 = {1,2}> {", 1)

    assert ops(folded(text)) == ["Conv", "Conv", "Sub", "Conv", "Sum"]


def test_norms_around_a_sum_are_merged() -> None:
    text = f"""
        g (float[1,2,5,5] x, float[1,2,5,5] z) => (float[1,2,5,5] y) <{NORM}> {{
            c = BatchNormalization(x, s, b, m, v)
            d = BatchNormalization<epsilon = 0.1>(z, s, m, b, v)
            t = Add(c, d)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert ops(folded(text)) == [BATCH_NORM, BATCH_NORM, "Add"]


def test_a_part_that_broadcasts_along_other_axes_is_a_part() -> None:
    pooled = summed(right="GlobalAveragePool(e)").replace("d = ", "e = Conv(x, u)\nd = ")
    assert BATCH_NORM not in ops(folded(pooled))

    alike = summed(right="ReduceMean<axes = [1]>(e)").replace("d = ", "e = Conv(x, u)\nd = ")
    assert reasons(alike) == ["broadcast"]


def test_a_pure_shift_needs_one_part_only() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y) <{CONV}, {OTHER}, float[2,1,1] k = {{1,2}}> {{
            c = Conv(x, w)
            d = Conv(x, u)
            e = Relu(d)
            t = Add(e, c)
            y = Add(t, k)
        }}"""

    after = folded(text)

    assert sorted(ops(after)) == ["Add", "Conv", "Conv", "Relu"]
    assert {"w", "u"} <= {tensor.name for tensor in after.graph.initializer}


def test_what_is_added_must_be_able_to_take_it_up() -> None:
    assert reasons(summed(right="Relu(e)").replace("d = ", "e = Conv(x, u)\nd = ")) == [
        "activation-between"
    ]
    residual = summed(left="Conv<pads = [1,1,0,0]>(x, w)", right="Identity(x)")
    assert reasons(residual) == ["no-linear-neighbour"]
    assert reasons(summed("Add(c, c)")) == ["other-reader"]
    read = summed().replace("float[1,2,N,M] y)", "float[1,2,N,M] y, float[1,2,4,4] z)")
    assert reasons(read.replace("y = ", "z = Sigmoid(d)\ny = ")) == ["other-reader"]
    assert reasons(read.replace("y = ", "z = Sigmoid(t)\ny = ")) == ["other-reader"]


def test_parts_of_a_concat_may_be_of_any_kind() -> None:
    text = f"""
        g (float[1,2,4,4] x) => (float[1,10,4,4] y)
        <float[2,2,1,1] w = {{1,2,3,4}}, float[2,2,1,1] u = {{1,-2,3,0.5}}, float[4,4] p = {{
         1,2,3,4,-1,0.5,2,1,0.25,-2,1,1,3,-1,2,0.5}}, {NORM}, float[1,2,4,4] k = {{
         1,2,3,4,-1,0.5,2,1,0.25,-2,1,1,3,-1,2,0.5,1,2,3,4,-1,0.5,2,1,0.25,-2,1,1,3,-1,2,0.5}},
         float[10] s10 = {{1,2,-1,3,0.5,1,2,-2,1,4}}, float[10] b10 = {{1,2,-1,3,0.5,1,2,-2,1,4}},
         float[10] v10 = {{1,2,1,3,0.5,1,2,2,1,4}}> {{
            a = Conv(x, w)
            b1 = ConvTranspose(x, u)
            c = BatchNormalization(x, s, b, m, v)
            d = Conv(x, u)
            e = Conv(x, w)
            f = Add(d, e)
            h = Concat<axis = 1>(a, b1, c, f, k)
            y = BatchNormalization(h, s10, b10, b10, v10)
        }}"""

    after = ops(folded(text))

    assert after.count(BATCH_NORM) == 1
    assert after[-1] == "Concat"


def dynamically_quantised(
    kind: str, *, per_channel: bool, biased: bool, factors: tuple[float, ...]
) -> tuple[list[TensorProto], list]:  # type: ignore[type-arg]
    """What dynamic quantisation makes of a linear operator, and a BatchNorm behind it."""
    random = np.random.default_rng(4)
    conv = kind == "ConvInteger"
    along = (3, 1, 1) if conv else (3,)
    tensors = {
        "q": random.integers(-100, 100, (3, 2, 2, 2) if conv else (2, 3)).astype(np.int8),
        "k": random.uniform(0.01, 0.05, along if per_channel else ()).astype(np.float32),
        "z": np.int8(0),
        "bias": random.standard_normal(along).astype(np.float32),
        "s": np.array(factors, np.float32),
        "b": random.standard_normal(3).astype(np.float32),
        "m": random.standard_normal(3).astype(np.float32),
        "v": random.uniform(0.5, 2, 3).astype(np.float32),
    }
    last = "a" if biased else "f"
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        helper.make_node(kind, ["xq", "q", "xz", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["j"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["xs", "k"], ["scales"]),
        helper.make_node("Mul", ["j", "scales"], ["f"]),
    ]
    if biased:
        nodes.append(helper.make_node("Add", ["f", "bias"], ["a"]))
    nodes.append(helper.make_node(BATCH_NORM, [last, "s", "b", "m", "v"], ["y"]))
    return [numpy_helper.from_array(np.asarray(v), name) for name, v in tensors.items()], nodes


@pytest.mark.parametrize("kind", ["ConvInteger", "MatMulInteger"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_the_scale_of_an_integer_product_takes_the_factor(
    kind: str, *, per_channel: bool, biased: bool
) -> None:
    tensors, nodes = dynamically_quantised(
        kind, per_channel=per_channel, biased=biased, factors=(1.5, -2.0, 0.0)
    )
    shape = [2, 2, 5, 5] if kind == "ConvInteger" else [4, 2]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        tensors,
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    report, after = repaired(before, verify="region")

    assert "NL104" in [finding.code for finding in report.findings]
    assert ops(after) == ["DynamicQuantizeLinear", kind, "Cast", "Mul", "Mul", "Add"]
    assert "q" in {tensor.name for tensor in after.graph.initializer}
    assert_same(before, after)


def test_an_integer_product_that_is_read_twice_stays() -> None:
    tensors, nodes = dynamically_quantised(
        "MatMulInteger", per_channel=False, biased=False, factors=(1.5, -2.0, 0.5)
    )
    nodes.append(helper.make_node("Sigmoid", ["f"], ["u"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in "yu"],
        tensors,
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    report, _ = repaired(before)

    assert [reason_of(finding) for finding in report.findings] == ["other-reader"]


def test_a_factor_that_is_no_small_one_lets_nothing_pass() -> None:
    gated = summed("Mul(c, d)", right="Sigmoid(e)").replace("d = ", "e = Conv(x, u)\nd = ")

    assert reasons(gated) == ["activation-between"]
    assert BATCH_NORM in ops(repaired(model_of(gated))[1])
