"""Single folds: what goes where, and what must not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from folding import (
    CONV,
    NORM,
    assert_same,
    folded,
    model_of,
    ops,
    reason_of,
    reasons,
    repaired,
)
from onnx import TensorProto, helper, numpy_helper

BATCH_NORM = "BatchNormalization"


def between(op: str, shape: str = "float[1,2,N,M]") -> str:
    """A convolution, an operator, a BatchNorm."""
    return f"""
        g (float[1,2,5,5] x) => ({shape} y) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            t = {op}(c)
            y = BatchNormalization(t, s, b, m, v)
        }}"""


def behind(op: str, conv: str = "Conv", norm: str = NORM) -> str:
    """A BatchNorm, an operator, a convolution."""
    return f"""
        g (float[1,2,5,5] x) => (float[1,2,N,M] y) <{CONV}, {norm}> {{
            n = BatchNormalization(x, s, b, m, v)
            t = {op}(n)
            y = {conv}(t, w)
        }}"""


POSITIVE = NORM.replace("1.5,-2", "1.5,2")
SCALE_ONLY = POSITIVE.replace("b = {0.5,1}", "b = {0,0}").replace("m = {0.1,-0.3}", "m = {0,0}")


@pytest.mark.parametrize(
    "op",
    [
        "Identity",
        "Dropout",
        "AveragePool<kernel_shape = [2,2]>",
        "AveragePool<kernel_shape = [2,2], pads = [1,1,1,1]>",
        "GlobalAveragePool",
    ],
)
def test_a_norm_goes_backward_through_what_commutes(op: str) -> None:
    assert BATCH_NORM not in ops(folded(between(op)))


def test_a_maximum_lets_positive_scales_pass_only() -> None:
    pool = "MaxPool<kernel_shape = [2,2]>"

    assert reasons(between(pool)) == ["activation-between"]
    assert ops(folded(between(pool).replace(NORM, POSITIVE))) == ["Conv", "MaxPool"]


def test_an_average_that_counts_padding_lets_no_shift_pass() -> None:
    pool = "AveragePool<kernel_shape = [2,2], pads = [1,1,1,1], count_include_pad = 1>"

    assert reasons(between(pool)) == ["padding"]
    assert ops(folded(between(pool).replace(NORM, SCALE_ONLY))) == ["Conv", "AveragePool"]


def test_relu_lets_positive_scales_without_shift_pass_only() -> None:
    assert reasons(between("Relu")) == ["activation-between"]
    assert reasons(between("Relu").replace(NORM, POSITIVE)) == ["activation-between"]
    assert ops(folded(between("Relu").replace(NORM, SCALE_ONLY))) == ["Conv", "Relu"]


@pytest.mark.parametrize("op", ["Sigmoid", "HardSwish", "Softmax<axis = 1>", "Clip"])
def test_other_activations_let_nothing_pass(op: str) -> None:
    assert reasons(between(op).replace(NORM, SCALE_ONLY)) == ["activation-between"]


def test_a_gated_activation_is_named() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            gate = Sigmoid(c)
            t = Mul(c, gate)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert reasons(text) == ["activation-between"]


def test_zero_padding_keeps_a_shift_in_front() -> None:
    text = behind("Identity").replace("Conv(t, w)", "Conv<pads = [1,1,1,1]>(t, w)")

    assert reasons(text) == ["padding"]
    assert ops(folded(text.replace(NORM, SCALE_ONLY))) == ["Identity", "Conv"]


def test_automatic_padding_counts_as_padding() -> None:
    text = behind("Identity").replace("Conv(t, w)", 'Conv<auto_pad = "SAME_UPPER">(t, w)')
    pointwise = text.replace(CONV, "float[2,2,1,1] w = {1,2,3,4}").replace(
        "Conv<", "Conv<strides = [2,2], "
    )

    assert reasons(text) == ["padding"]
    assert ops(folded(pointwise)) == ["Identity", "Conv"]


def test_the_same_shift_for_all_becomes_the_value_of_a_pad() -> None:
    same = "float[2] s = {2,-4}, float[2] b = {0,0}, float[2] m = {0.5,0.5}, float[2] v = {0.5,2}"
    text = behind("Identity").replace("Conv(t, w)", "Conv<pads = [1,0,1,2]>(t, w)")

    assert ops(folded(text.replace(NORM, same))) == ["Identity", "Pad", "Conv"]


def test_a_transposed_convolution_takes_a_scale_only() -> None:
    assert reasons(behind("Identity", "ConvTranspose")) == ["padding"]
    scaled = behind("Identity", "ConvTranspose", SCALE_ONLY)
    assert ops(folded(scaled)) == ["Identity", "ConvTranspose"]


def test_every_reader_takes_it_up_or_none() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y, float[1,2,4,4] z) <{CONV}, {NORM}> {{
            n = BatchNormalization(x, s, b, m, v)
            y = Conv(n, w)
            z = Conv(n, w)
        }}"""

    assert ops(folded(text)) == ["Conv", "Conv"]
    assert reasons(text.replace("z = Conv(n, w)", "z = Sigmoid(n)")) == ["other-reader"]


def test_a_reader_of_extents_alone_is_in_nobodys_way() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y, int64[4] z) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            z = Shape(c)
            y = BatchNormalization(c, s, b, m, v)
        }}"""

    assert ops(folded(text)) == ["Conv", "Shape"]
    typed = text.replace("int64[4] z", "float z").replace("z = Shape(c)", "z = CastLike(k, c)")
    typed = typed.replace("> {", ", double k = {0.5}> {", 1)
    assert ops(folded(typed)) == ["Conv", "CastLike"]


def test_an_output_keeps_its_values() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y, float[1,2,4,4] c) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            y = BatchNormalization(c, s, b, m, v)
        }}"""

    assert reasons(text) == ["graph-output"]


def test_a_norm_goes_through_a_concat_into_every_part() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,4,4,4] y)
        <{CONV}, float[2,2,2,2] u = {{1,0,3,4,-1,1.5,2,1,0.25,-2,1,2,3,-1,2,0.5}},
         float[4] s = {{1.5,-2,1,3}}, float[4] b = {{0.5,1,0,2}}, float[4] m = {{0.1,-0.3,1,2}},
         float[4] v = {{0.5,2,1,3}}> {{
            c = Conv(x, w)
            d = Conv(x, u)
            t = Concat<axis = 1>(c, d)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert ops(folded(text)) == ["Conv", "Conv", "Concat"]
    assert reasons(text.replace("d = Conv(x, u)", "e = Conv(x, u)\nd = Relu(e)")) == [
        "activation-between"
    ]


def test_one_part_of_a_split_changes_and_the_others_stay() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
        <float[4,2,2,2] w = {{1,2,3,4,-1,0.5,2,1,0.25,-2,1,1,3,-1,2,0.5,
         1,0,3,4,-1,1.5,2,1,0.25,-2,1,2,3,-1,2,0.5}}, {NORM}> {{
            c = Conv(x, w)
            t, u = Split<axis = 1>(c)
            z = Sigmoid(u)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert BATCH_NORM not in ops(folded(text))


def test_rows_of_the_data_are_no_channels_of_the_weight() -> None:
    text = f"""
        g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {{1,2,3,4,-1,0.5}}, {NORM}> {{
            p = MatMul(x, w)
            t = Transpose<perm = [1,0]>(p)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert reasons(text) == ["channel-axis-moved"]
    turned = text.replace("MatMul(x, w)", "MatMul(wt, xt)").replace(
        "p = ", "wt = Transpose(w)\nxt = Transpose(x)\np = "
    )
    assert BATCH_NORM not in ops(folded(turned))


def test_a_token_axis_is_no_channel_axis() -> None:
    text = f"""
        g (float[3,2,4] x) => (float[3,2,2] y)
        <float[4,2] w = {{1,2,3,4,-1,0.5,2,1}}, {NORM}> {{
            p = MatMul(x, w)
            y = BatchNormalization(p, s, b, m, v)
        }}"""

    assert reasons(text) == ["channel-axis-moved"]


def test_norms_in_a_row_are_merged() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,5,5] y) <{NORM}> {{
            c = BatchNormalization(x, s, b, m, v)
            d = BatchNormalization(c, s, b, m, v)
            y = BatchNormalization<epsilon = 0.1>(d, s, b, m, v)
        }}"""

    assert ops(folded(text)) == [BATCH_NORM]


def test_a_norm_takes_up_arithmetic_around_it() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,5,5] y)
        <{NORM}, float[2,1,1] k = {{2,-3}}, float[1,2,1,1] t = {{1,5}}> {{
            a = Mul(k, x)
            c = BatchNormalization(a, s, b, m, v)
            d = Sub(t, c)
            y = Div(d, k)
        }}"""

    assert ops(folded(text)) == [BATCH_NORM]


def test_the_bias_of_a_product_stays_where_it_is() -> None:
    text = """
        g (float[N,3] x) => (float[N,2] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] t = {1,5}, float[2,2] u = {1,2,3,4},
         float[2] b = {1,2}> {
            p = MatMul(x, w)
            q = Add(p, t)
            r = MatMul(q, u)
            y = Add(r, b)
        }"""

    assert ops(folded(text)) == ["MatMul", "Add", "MatMul", "Add"]


def test_a_shift_joins_the_bias_that_follows() -> None:
    text = f"""
        g (float[N,2] x) => (float[N,2] y)
        <{NORM}, float[2,2] w = {{1,2,3,4}}, float[2] t = {{1,5}}> {{
            n = BatchNormalization(x, s, b, m, v)
            p = MatMul(n, w)
            y = Sub(t, p)
        }}"""

    assert ops(folded(text)) == ["MatMul", "Add"]


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_recurrence_takes_up_its_input(op: str, biased: bool, direction: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    count = 2 if direction == "bidirectional" else 1
    random = np.random.default_rng(3)

    def tensor(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)

    weights = [tensor("w", count, gates * 3, 2), tensor("r", count, gates * 3, 3)]
    weights += [tensor(name, 2) for name in "sbm"]
    weights.append(numpy_helper.from_array(np.array([0.5, 2], np.float32), "v"))
    if biased:
        weights.append(tensor("bias", count, 2 * gates * 3))
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=[2, 0, 1]),
        helper.make_node(
            op,
            ["t", "w", "r", *(["bias"] if biased else [])],
            ["", "h"],
            hidden_size=3,
            direction=direction,
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2, 5])],
        [helper.make_tensor_value_info("h", TensorProto.FLOAT, [count, 2, 3])],
        weights,
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)

    _, after = repaired(before)

    assert ops(after) == ["Transpose", op]
    assert_same(before, after)


def test_a_weight_that_others_read_is_copied() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y, float[1,2,4,4] z, float[2,2,2,2] w)
        <{CONV}, {NORM}> {{
            c = Conv(x, w)
            y = BatchNormalization(c, s, b, m, v)
            z = Conv(x, w)
        }}"""

    after = folded(text)

    assert ops(after) == ["Conv", "Conv"]
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in after.graph.initializer}
    before = {t.name: numpy_helper.to_array(t) for t in model_of(text).graph.initializer}
    assert (kept["w"] == before["w"]).all()


def overridable(ir_version: int) -> onnx.ModelProto:
    model = model_of(f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            y = BatchNormalization(c, s, b, m, v)
        }}""")
    for tensor in model.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)
    model.ir_version = ir_version
    model.opset_import[0].version = 8
    return model


def test_listed_initializers_were_constants_until_ir_4() -> None:
    before = overridable(3)

    report, after = repaired(before)

    assert [finding.code for finding in report.findings] == ["NL101"]
    assert ops(after) == ["Conv"]
    assert [value.name for value in after.graph.input] == ["x"]
    assert_same(before, after)


def test_initializers_that_may_be_overridden_stay() -> None:
    report, after = repaired(overridable(4))

    assert [reason_of(finding) for finding in report.findings] == ["overridable-input"]
    assert ops(after) == ["Conv", BATCH_NORM]


def test_overriding_is_given_up_where_the_user_says_so() -> None:
    before = overridable(4)

    report, after = repaired(before, unsafe_fixes=True)

    assert [finding.fix.applied for finding in report.findings if finding.fix] == [True]
    assert ops(after) == ["Conv"]
    defaults = {tensor.name for tensor in after.graph.initializer}
    required = [value.name for value in after.graph.input if value.name not in defaults]
    assert required == ["x"], "no input may become required"
    assert_same(before, after)


def test_a_true_input_is_no_constant() -> None:
    text = f"""
        g (float[1,2,5,5] x, float[2] s) => (float[1,2,4,4] y)
        <{CONV}, {NORM.replace("float[2] s = {1.5,-2}, ", "")}> {{
            c = Conv(x, w)
            y = BatchNormalization(c, s, b, m, v)
        }}"""

    assert reasons(text) == ["weights-not-constant"]


@pytest.mark.parametrize("shape", ["", "[1]", "[2]", "[1,2]", "[3,1]", "[3,2]"])
@pytest.mark.parametrize("beta", ["1.0", "0.5", "0.0"])
def test_every_shape_of_c(shape: str, beta: str) -> None:
    size = {"": 1, "[1]": 1, "[2]": 2, "[1,2]": 2, "[3,1]": 3, "[3,2]": 6}[shape]
    values = ",".join(str(0.5 + k) for k in range(size))
    text = f"""
        g (float[3,2] x) => (float[3,2] y)
        <float[2,2] w = {{1,2,3,4}}, float{shape} c = {{{values}}}, {NORM}> {{
            p = Gemm<alpha = 0.5, beta = {beta}>(x, w, c)
            y = BatchNormalization(p, s, b, m, v)
        }}"""

    assert ops(folded(text)) == ["Gemm"]


def test_a_value_that_a_pad_puts_in_is_scaled_where_one_will_do() -> None:
    same = "float[2] s = {2,4}, float[2] b = {1,1}, float[2] m = {0.5,0.5}, float[2] v = {1,4}"
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,5,4] y)
        <{CONV}, {same}, int64[8] pads = {{0,0,1,0,0,0,0,0}}, float fill = {{0.5}}> {{
            c = Conv(x, w)
            t = Pad(c, pads, fill)
            y = BatchNormalization<epsilon = 0.0>(t, s, b, m, v)
        }}"""

    assert ops(folded(text)) == ["Conv", "Pad"]
    assert reasons(text.replace("m = {0.5,0.5}", "m = {0.5,0.7}")) == ["padding"]


def test_a_step_of_quantisation_keeps_them_apart() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y) <{CONV}, {NORM}, float k = {{0.1}}> {{
            c = Conv(x, w)
            q = QuantizeLinear(c, k)
            d = DequantizeLinear(q, k)
            y = BatchNormalization(d, s, b, m, v)
        }}"""

    assert reasons(text) == ["quantized-between"]
    report, _ = repaired(model_of(text), rules=("NL105",))
    assert [reason_of(finding) for finding in report.findings] == ["quantized-between"]


def test_a_pad_behind_is_made_up_for_where_one_value_will_do() -> None:
    same = "float[2] s = {2,-4}, float[2] b = {1,1}, float[2] m = {0.5,0.5}, float[2] v = {1,4}"
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,5,4] y)
        <{CONV}, {same}, int64[8] pads = {{0,0,1,0,0,0,0,0}}, float fill = {{1}}> {{
            n = BatchNormalization<epsilon = 0.0>(x, s, b, m, v)
            t = Pad(n, pads, fill)
            y = Conv(t, w)
        }}"""

    assert ops(folded(text)) == ["Pad", "Conv"]
    assert reasons(text.replace("m = {0.5,0.5}", "m = {0.5,0.7}")) == ["padding"]


def test_statistics_of_its_own_input_are_batch_statistics() -> None:
    text = """
        g (float[3,2,5,5] x) => (float[3,2,5,5] y) <float[2] s = {1.5,-2}, float[2] b = {0.5,1}> {
            m = ReduceMean<axes = [0,2,3], keepdims = 0>(x)
            k = ReduceMean<axes = [0,2,3]>(x)
            d = Sub(x, k)
            q = Mul(d, d)
            v = ReduceMean<axes = [0,2,3], keepdims = 0>(q)
            y = BatchNormalization(x, s, b, m, v)
        }"""

    report, after = repaired(model_of(text))

    assert [reason_of(finding) for finding in report.findings] == ["batch-statistics"]
    assert after == model_of(text)


def test_a_norm_alone_has_no_neighbour() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,5,5] y) <{NORM}> {{
            y = BatchNormalization(x, s, b, m, v)
        }}"""

    assert reasons(text) == ["no-linear-neighbour"]


def test_a_sum_with_something_computed_is_no_bias() -> None:
    text = f"""
        g (float[1,2,5,5] x) => (float[1,2,4,4] y, float[1,2,4,4] z) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            d = Conv(x, w)
            z = Relu(d)
            t = Add(c, z)
            y = BatchNormalization(t, s, b, m, v)
        }}"""

    assert reasons(text) == ["graph-output"]
    hidden = text.replace(", float[1,2,4,4] z)", ")")
    assert reasons(hidden) == ["activation-between"]


def test_a_matrix_of_biases_takes_the_shift() -> None:
    text = f"""
        g (float[3,4] x) => (float[3,2] y)
        <float[4,2] w = {{1,2,3,4,-1,0.5,2,1}}, float[3,2] u = {{1,2,3,4,5,6}}, {NORM}> {{
            p = MatMul(x, w)
            q = Sub(u, p)
            y = BatchNormalization(q, s, b, m, v)
        }}"""

    assert ops(folded(text)) == ["MatMul", "Sub"]


def test_vectors_have_products_too() -> None:
    text = f"""
        g (float[3,2,4] x) => (float[3,2] y) <float[4] w = {{1,2,3,4}}, {NORM}> {{
            p = MatMul(x, w)
            y = BatchNormalization(p, s, b, m, v)
        }}"""

    assert reasons(text) == ["channel-axis-moved"]


def test_a_scaled_image_goes_into_a_padded_convolution() -> None:
    text = f"""
        g (uint8[1,5,5,2] x) => (float[1,2,6,6] y) <{CONV}, float k = {{255}}> {{
            c = Cast<to = 1>(x)
            d = Div(c, k)
            t = Transpose<perm = [0,3,1,2]>(d)
            y = Conv<pads = [1,1,1,1]>(t, w)
        }}"""

    assert ops(folded(text)) == ["Cast", "Transpose", "Conv"]


def test_parts_of_activations_and_attentions_stay() -> None:
    hard_sigmoid = f"""
        g (float[1,2,5,5] x) => (float[1,2,3,3] y)
        <{CONV}, float three = {{3}}, float low = {{0}}, float high = {{6}}> {{
            c = Conv(x, w)
            a = Add(c, three)
            t = Clip(a, low, high)
            d = Div(t, high)
            y = Conv(d, w)
        }}"""
    attention = """
        g (float[N,4,3] x, float[N,2,4] k) => (float[N,4,4] y)
        <float[3,2] w = {1,2,3,4,-1,0.5}, float[2] b = {1,2}, float c = {0.125}> {
            p = MatMul(x, w)
            q = Add(p, b)
            r = Mul(q, c)
            h = Identity(r)
            y = MatMul(h, k)
        }"""

    assert ops(folded(hard_sigmoid)) == ["Conv", "Add", "Clip", "Div", "Conv"]
    assert ops(folded(attention)) == ["MatMul", "Add", "Mul", "Identity", "MatMul"]
    scaled = hard_sigmoid.replace("a = Add(c, three)", "a = Mul(c, three)")
    assert ops(folded(scaled)) == ["Conv", "Clip", "Div", "Conv"]


@pytest.mark.parametrize("factor", ["Mul(q, k)", "Div(q, k)", "Mul(k, q)"])
def test_one_factor_for_all_goes_into_the_weights_that_nobody_else_reads(factor: str) -> None:
    text = f"""
        g (float[N,3] x) => (float[N,2] y)
        <float[3,2] w = {{1,2,3,4,-1,0.5}}, float[2] b = {{1,2}}, float k = {{0.125}}> {{
            p = MatMul(x, w)
            q = Add(p, b)
            y = {factor}
        }}"""
    shared = text.replace("float[N,2] y)", "float[N,2] y, float[N,2] z)").replace(
        "y = ", "z = MatMul(x, w)\ny = "
    )

    assert ops(folded(text)) == ["MatMul", "Add"]
    assert ops(folded(text.replace("p = MatMul(x, w)\n", "").replace("Add(p, b)", "Gemm(x, w, b)")))
    assert sorted(ops(folded(shared)))[:3] == [
        "Add",
        "Div" if "Div" in factor else "MatMul",
        "MatMul",
    ]


def test_a_scaled_input_goes_into_a_matrix() -> None:
    text = """
        g (float[N,2,2] x) => (float[N,2] y)
        <float[4,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] b = {1,2}, float k = {255}> {
            d = Div(x, k)
            f = Flatten(d)
            y = Gemm(f, w, b)
        }"""

    assert ops(folded(text)) == ["Flatten", "Gemm"]


@pytest.mark.parametrize("op", ["Conv", "MatMul", "Gemm"])
def test_models_of_the_first_opsets_are_folded_and_proved(op: str) -> None:
    shapes = {"Conv": ("[1,2,5,5]", "[1,2,4,4]"), "MatMul": ("[3,2]",) * 2, "Gemm": ("[3,2]",) * 2}
    given, made = shapes[op]
    weight = CONV if op == "Conv" else "float[2,2] w = {1,2,3,4}"
    bias = ", float[2] t = {1,5}" if op == "Gemm" else ""
    call = "Gemm<broadcast = 1>(x, w, t)" if op == "Gemm" else f"{op}(x, w)"
    text = f"""
        <ir_version: 3, opset_import: ["" : 6]>
        g (float{given} x) => (float{made} y) <{weight}{bias}, {NORM}> {{
            c = {call}
            y = BatchNormalization<is_test = 1>(c, s, b, m, v)
        }}"""
    before = model_of(text)

    report, after = repaired(before, verify="region")

    assert [finding.fix.applied for finding in report.findings if finding.fix] == [True]
    assert BATCH_NORM not in ops(after)
    modern = model_of(
        text.replace(": 6]", ": 8]").replace("<is_test = 1>", "").replace("<broadcast = 1>", "")
    )
    after.opset_import[0].version = 8
    for node in after.graph.node:
        kept = [attribute for attribute in node.attribute if attribute.name != "broadcast"]
        del node.attribute[:]
        node.attribute.extend(kept)
    assert_same(modern, after)


@pytest.mark.parametrize("kind", ["float", "float16", "double"])
def test_what_stays_is_a_depthwise_convolution_where_a_target_asks(kind: str) -> None:
    text = f"""
        g (float[N,2,5,5] z) => ({kind}[N,2,5,5] y) <{NORM}> {{
            x = Cast<to = {getattr(TensorProto, "FLOAT" if kind == "float" else kind.upper())}>(z)
            r = Relu(x)
            n = BatchNormalization(r, s, b, m, v)
            y = Sigmoid(n)
        }}"""
    before = model_of(text.replace("float[2]", f"{kind}[2]") if kind == "double" else text)

    stays, same = repaired(before, targets=frozenset({"onnxruntime", "qnn", "tensorrt"}))
    report, after = repaired(before, targets=frozenset({"tflite"}), verify="region")

    assert ops(same) == ops(before)
    assert reason_of(stays.findings[0]) == "no-linear-neighbour"
    assert ops(after) == ["Cast", "Relu", "Conv", "Sigmoid"]
    assert report.findings[0].evidence["targets"] == ["tflite"]
    if kind != "double":
        assert_same(before, after, tolerance=1e-2)


def test_a_vector_is_no_image_for_a_depthwise_convolution() -> None:
    text = f"""
        g (float[N,2] x) => (float[N,2] y) <{NORM}> {{
            r = Relu(x)
            y = BatchNormalization(r, s, b, m, v)
        }}"""

    assert reasons(text, targets=frozenset({"tflite"})) == ["no-linear-neighbour"]
