"""What random graphs found in rewrites and in their proofs, kept."""

from __future__ import annotations

import pytest
from differential.judging import judge, made, repaired
from differential.random_graphs import Example
from graphs import parse
from onnx import TensorProto, helper

from normlint.context import Settings


def example_of(text: str, opset: int, **shapes: tuple[int, ...]) -> Example:
    model = parse(text, opset, 8)
    dtype = model.graph.input[-1].type.tensor_type.elem_type
    return Example(0, model, model, shapes, dtype, rounds=False)


def scaled_by_a_square() -> Example:
    """Two symbolic extents that a constant without a name for them wants to be 4."""
    text = """
        g (float[1,4,d2,d3] x) => (float[] y)
        <int64[2] axes = {2, 3}, float e = {0.001}, float[4,4] s =
         {0.9,0.6,-0.3,0.7,0.7,0.02,0.2,0.4,0.008,0.4,0.5,0.7,0.006,0.1,0.3,0.9}> {
            square = Mul(x, x)
            mean = ReduceMean<keepdims = 1>(square, axes)
            shifted = Add(mean, e)
            root = Sqrt(shifted)
            normal = Div(x, root)
            y = Mul(normal, s)
        }
    """
    return example_of(text, 23, x=(1, 4, 4, 4))


def rows_and_columns() -> Example:
    """A rank that nothing tells, where one constant wants 4 columns and another 2 rows."""
    text = """
        g (int64[1] axis, float[1,2,4] x) => (float[] y)
        <int64[1] axis = {0}, float[4] s = {-1.9,0.5,-0.1,-0.2}, float[4] b = {0.7,-0.9,0.8,-1.7},
         float[4] v = {1.6,1.1,1.1,0.9}, float[4,2] w = {-0.1,0.3,1.5,0.5,0.7,-1.6,0.7,-1.8},
         float[2,2] c = {-1.7,0.9,-1.5,0.2}> {
            flat = Squeeze(x, axis)
            normal = BatchNormalization(flat, s, b, b, v)
            y = Gemm(normal, w, c)
        }
    """
    return example_of(text, 13, x=(1, 2, 4))


def a_rounded_ninth() -> Example:
    """The mean of nine values as a sum times 1/9, as bfloat16 has it."""
    text = """
        g (bfloat16[2,2,3,3] x) => (bfloat16[] y) <int64[2] over = {2, 3}> {
            sum = ReduceSum<keepdims = 1>(x, over)
            mean = Mul(sum, ninth)
            difference = Sub(x, mean)
            square = Mul(difference, difference)
            squares = ReduceSum<keepdims = 1>(square, over)
            variance = Div(squares, nine)
            shifted = Add(variance, e)
            root = Sqrt(shifted)
            y = Div(difference, root)
        }
    """
    example = example_of(text, 21, x=(2, 2, 3, 3))
    for name, value in (("ninth", 1 / 9), ("nine", 9.0), ("e", 0.002)):
        tensor = helper.make_tensor(name, TensorProto.BFLOAT16, [], [value])
        example.model.graph.initializer.append(tensor)
    return example


def a_window_beyond_the_padding() -> Example:
    """A pooling whose extents onnx's reference evaluator, which runs doubles, has otherwise."""
    text = """
        g (float[2,2,3,4] x) => (float[] y)
        <float[2,1,1] s = {1.5,0.9}, float[2,1,1,1] w = {-0.3,-0.06}> {
            scaled = Div(x, s)
            pooled = MaxPool<ceil_mode = 1, kernel_shape = [2,2], pads = [0,1,1,0],
                             strides = [1,1]>(scaled)
            y = Conv<group = 2>(pooled, w)
        }
    """
    return example_of(text, 19, x=(2, 2, 3, 4))


def weights_that_cancel() -> Example:
    """Weights normalised in bfloat16, where the variance of three near ones is mostly rounding."""
    text = """
        g (bfloat16[2,3] x) => (bfloat16[] y) <int64[1] last = {-1}> {
            mean = ReduceMean<keepdims = 1>(w, last)
            square = Mul(w, w)
            squares = ReduceMean<keepdims = 1>(square, last)
            both = Mul(mean, mean)
            variance = Sub(squares, both)
            shifted = Add(variance, e)
            root = Sqrt(shifted)
            difference = Sub(w, mean)
            normal = Div(difference, root)
            y = MatMul(x, normal)
        }
    """
    example = example_of(text, 18, x=(2, 3))
    weight = [-1.58, -1.74, 1.03, 0.83, -0.2, 0.2, 1.04, 1.36, 1.5]
    for name, extents, values in (("w", [3, 3], weight), ("e", [], [0.003])):
        tensor = helper.make_tensor(name, TensorProto.BFLOAT16, extents, values)
        example.model.graph.initializer.append(tensor)
    return example


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (scaled_by_a_square, "NL202"),
        (rows_and_columns, "NL102"),
        (a_rounded_ninth, "NL206"),
        (a_window_beyond_the_padding, "NL103"),
        (weights_that_cancel, "NL213"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.filterwarnings("ignore")
def test_a_right_rewrite_is_made_and_proved(make: object, code: str) -> None:
    verdict = judge(make())

    assert verdict.runs
    assert code in verdict.fixed
    assert not verdict.problems


def test_what_waits_for_an_opset_is_tried_again_once_others_are_repaired() -> None:
    """The BatchNorm keeps the opset where it is until its old attribute is gone."""
    text = """
        g (float[2,4] x) => (float[2,4] y)
        <float[4] s = {1,2,3,4}, float[4] v = {0.5,1,1.5,2}, float two = {2}, float e = {0.001}> {
            h = BatchNormalization<spatial = 0>(x, s, s, s, v)
            bounded = Tanh(h)
            mean = ReduceMean<axes = [-1]>(bounded)
            difference = Sub(bounded, mean)
            square = Pow(difference, two)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, e)
            root = Sqrt(shifted)
            y = Div(difference, root)
        }
    """
    settings = Settings(target_opset=17)

    report, after = repaired(parse(text, 8, 8), settings, "region")
    again, _ = repaired(after, settings, "region")

    assert {f.code for f in report.findings if made(f)} >= {"NL110", "NL201"}
    assert not [f.code for f in again.findings if made(f)]


def test_a_mean_in_half_precision_is_not_put_in_and_taken_out_again() -> None:
    """NL203 subtracted the mean once for two norms in half precision, and NL501 did not let it."""
    norm = """
        mean{0} = ReduceMean<axes = [2]>(x)
        difference{0} = Sub(x, mean{0})
        square{0} = Mul(difference{0}, difference{0})
        variance{0} = ReduceMean<axes = [2]>(square{0})
        shifted{0} = Add(variance{0}, e)
        root{0} = Sqrt(shifted{0})
        y{0} = Div(difference{0}, root{0})
    """
    text = f"""
        g (float16[2,3,4] x) => (float16[2,3,4] y0, float16[2,3,4] y1) {{
            small = Constant<value = float {{0.001}}>()
            e = Cast<to = 10>(small)
            {norm.format(0)} {norm.format(1)}
        }}
    """

    report, after = repaired(parse(text, 9, 8), Settings(), "none")
    again, _ = repaired(after, Settings(), "none")

    assert [f.code for f in report.findings if made(f)] == ["NL501", "NL501"]
    assert not [f.code for f in again.findings if made(f)]
