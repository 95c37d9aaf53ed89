"""Operators in place of spelled-out normalisations: odd shapes, types and readers, any spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from graphs import context_of, norm_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper
from spellings import FLAWS, Speller

from normlint.context import Context, Settings
from normlint.graph import build_graph
from normlint.normalization import Form, Kind
from normlint.rewrite.norm_ops import group_norm, instance_norm, layer_norm, rms_norm
from normlint.rewrite.respell import is_fused_by_runtime, respelled_rms_norm
from normlint.rule import Computed, NewNode, NotFixed, Reason, Replace, Rewrite
from normlint.verify import Failure, verify_rewrite

if TYPE_CHECKING:
    from normlint.normalization import Normalization

BODY = """
    m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [-1]>(q)
    e = Add(v, eps) r = Sqrt(e) n = Div(d, r)
"""
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def made(context: Context, norm: Normalization) -> Rewrite:
    makers = {
        Kind.LAYER: layer_norm,
        Kind.RMS: rms_norm,
        Kind.INSTANCE: instance_norm,
        Kind.GROUP: group_norm,
    }
    outcome = makers[norm.kind](context, norm)
    assert isinstance(outcome, Rewrite), outcome
    return outcome


def operator(rewrite: Rewrite) -> NewNode:
    """Give the one normalisation among the new nodes."""
    pending: list[object] = [edit.by for edit in rewrite.edits if isinstance(edit, Replace)]
    found: list[NewNode] = []
    while pending:
        node = pending.pop()
        if isinstance(node, NewNode):
            pending.extend(node.inputs)
            if node.op.endswith("Normalization"):
                found.append(node)
    (one,) = found
    return one


def check(text: str, opset: int = 17, **options: int) -> NewNode:
    context = context_of(text, opset, **options)
    (norm,) = context.norms
    rewrite = made(context, norm)
    proof = verify_rewrite(rewrite, context.constants, opset)

    assert not isinstance(proof, Failure), proof.detail
    return operator(rewrite)


@pytest.mark.parametrize(
    ("scale", "reused"),
    [
        ("float[4] s = {1,2,3,4}", True),
        ("float[1,1,4] s = {1,2,3,4}", False),
        ("float[1,4] s = {1,2,3,4}", False),
        ("float s = {3}", False),
        ("float[1] s = {3}", False),
    ],
)
def test_a_scale_gets_the_shape_of_the_axis(scale: str, reused: bool) -> None:
    text = f"""
        g (float[2,3,4] x) => (float[2,3,4] y) <float eps = {{0.001}}, {scale}> {{
            {BODY} y = Mul(s, n)
        }}
    """
    operand = check(text).inputs[1]

    assert operand is not None
    assert operand.shape == (4,)  # type: ignore[union-attr]
    assert isinstance(operand, Computed) is not reused


def test_several_scales_and_biases_become_one_of_each() -> None:
    text = f"""
        g (float[2,4] x) => (float[2,4] y)
        <float eps = {{0.001}}, float[4] s = {{1,2,3,4}}, float[4] b = {{4,3,2,1}}> {{
            {BODY} p = Mul(n, s) o = Add(p, b) t = Mul(o, s) y = Sub(t, b)
        }}
    """
    operands = check(text).inputs[1:]

    values = [operand.compute() for operand in operands if isinstance(operand, Computed)]
    assert [array.tolist() for array in values] == [[1, 4, 9, 16], [0, 3, 4, 3]]


def test_scales_of_heads_stay_behind_the_operator() -> None:
    text = f"""
        g (float[2,3,2,4] x) => (float[2,3,2,4] y)
        <float eps = {{0.001}}, float[2,4] s = {{1,2,3,4,5,6,7,8}}, float[4] b = {{1,0,1,0}}> {{
            {BODY} p = Mul(n, s) y = Add(p, b)
        }}
    """
    norm = norm_of(text)
    made_of = check(text)

    assert norm.scale is not None
    assert norm.scale.shape == (1, 1, 2, 4)
    assert len(made_of.inputs) == 2


def test_values_in_between_stay_for_their_readers() -> None:
    text = f"""
        g (float[2,4] x) => (float[2,4] y, float[2,4] d, float[2,1] e)
        <float eps = {{0.001}}> {{ {BODY} y = Identity(n) }}
    """

    assert check(text).op == "LayerNormalization"


def test_a_transposed_result_is_transposed_again() -> None:
    text = f"""
        g (float[2,3,4] x) => (float[4,2,3] y)
        <float eps = {{0.001}}, float[4,1,1] s = {{1,2,3,4}}> {{
            {BODY} t = Transpose<perm = [2,0,1]>(n) y = Mul(t, s)
        }}
    """

    assert check(text).inputs[1].shape == (4,)  # type: ignore[union-attr]


HALF = """
    w = Cast<to = 1>(x)
    m = ReduceMean<axes = [-1]>(w) d = Sub(w, m) q = Mul(d, d) v = ReduceMean<axes = [-1]>(q)
    e = Add(v, eps) r = Sqrt(e) n = Div(d, r)
"""
SCALE = "float[4] s = {1,2,3,4}"
HALF_SCALE = "float16[4] s = {15360,16384,16896,17408}"


@pytest.mark.parametrize(
    ("tail", "scale", "work"),
    [
        ("h = Cast<to = 10>(n) y = Mul(h, s)", HALF_SCALE, TensorProto.FLOAT16),
        ("o = Mul(n, s) y = Cast<to = 10>(o)", SCALE, TensorProto.FLOAT),
    ],
)
def test_no_type_is_narrower_than_it_was(tail: str, scale: str, work: int) -> None:
    text = f"""
        g (float16[2,4] x) => (float16[2,4] y) <float eps = {{0.001}}, {scale}> {{
            {HALF} {tail}
        }}
    """
    x = check(text).inputs[0]

    assert x is not None
    assert x.dtype == work  # type: ignore[union-attr]


def test_double_stays_double() -> None:
    text = f"""
        g (double[2,4] x) => (double[2,4] y) <double eps = {{0.001}}> {{ {BODY} y = Neg(n) }}
    """

    assert check(text).inputs[1].dtype == TensorProto.DOUBLE  # type: ignore[union-attr]


def test_a_factor_that_came_through_float_is_not_proved_in_double_and_no_bug() -> None:
    factor = float(np.float32(1 / 12))
    text = f"""
        g (double[2,12] x) => (double[2,12] y)
        <double eps = {{0.001}}, double f = {{{factor!r}}}, int64[1] last = {{-1}}> {{
            s = ReduceSum(x, last) m = Mul(s, f) d = Sub(x, m) q = Mul(d, d)
            t = ReduceSum(q, last) v = Mul(t, f) e = Add(v, eps) r = Sqrt(e) y = Div(d, r)
        }}
    """
    context = context_of(text)
    (norm,) = context.norms

    proof = verify_rewrite(made(context, norm), context.constants, context.opset)

    assert isinstance(proof, Failure)
    assert not proof.moved


def test_a_scale_that_a_caller_may_override_stays_an_input() -> None:
    text = f"""
        g (float[2,3,4] x, float[1,1,4] s = {{1,2,3,4}}) => (float[2,3,4] y)
        <float eps = {{0.001}}> {{ {BODY} y = Mul(n, s) }}
    """
    scale = check(text).inputs[1]

    assert isinstance(scale, NewNode)
    assert scale.op == "Reshape"


@pytest.mark.parametrize(
    ("text", "opset", "reason"),
    [
        (
            f"g (float[2,4] x) => (float[2,4] n) <float eps = {{1.0}}> {{ {BODY} }}",
            13,
            Reason.OPSET,
        ),
        (
            f"g (float[2,H] x) => (float[2,H] n) <float eps = {{1.0}}> {{ {BODY} }}",
            17,
            Reason.SHAPE_UNKNOWN,
        ),
    ],
)
def test_what_cannot_be_written_says_why(text: str, opset: int, reason: Reason) -> None:
    context = context_of(text, opset)
    outcome = layer_norm(context, context.norms[0])

    assert isinstance(outcome, NotFixed)
    assert outcome.reason is reason


def test_double_has_no_instance_norm_kernel() -> None:
    text = """
        g (double[2,3,5] x) => (double[2,3,5] y)
        <double eps = {0.001}, double[3,1] s = {1,2,3}> {
            m = ReduceMean<axes = [2]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [2]>(q)
            e = Add(v, eps) r = Sqrt(e) n = Div(d, r) y = Mul(n, s)
        }
    """
    context = context_of(text)
    outcome = instance_norm(context, context.norms[0])

    assert isinstance(outcome, NotFixed)
    assert outcome.reason is Reason.TARGET


SIXTEEN = [
    (square, mean, root)
    for square in ("q = Pow(x, two)", "q = Mul(x, x)")
    for mean in (
        "v = ReduceMean(q, at)",
        "u = ReduceSum(q, at) v = Mul(u, eighth)",
    )
    for root in (
        "o = Sqrt(e) n = Div(x, o)",
        "o = Sqrt(e) i = Div(one, o) n = Mul(x, i)",
        "o = Sqrt(e) i = Reciprocal(o) n = Mul(i, x)",
        "i = Pow(e, half) n = Mul(x, i)",
    )
]


def mean_square(square: str, mean: str, root: str, tail: str = "y = Mul(n, w)") -> str:
    return f"""
        g (float[2,8] x) => (float[2,8] y)
        <float two = {{2}}, float one = {{1}}, float half = {{-0.5}}, float eighth = {{0.125}},
         float eps = {{1e-6}}, int64[1] at = {{-1}}, float[8] w = {{1,2,3,4,5,6,7,8}}> {{
            {square} {mean} e = Add(v, eps) {root} {tail}
        }}
    """


@pytest.mark.parametrize("parts", SIXTEEN)
def test_sixteen_spellings_of_an_rms_norm_are_one_operator(parts: tuple[str, str, str]) -> None:
    made_of = check(mean_square(*parts), 23)

    assert made_of.op == "RMSNormalization"
    assert made_of.attrs["epsilon"] == pytest.approx(1e-6)


def test_one_plus_weight_is_one_constant() -> None:
    text = mean_square(*SIXTEEN[0], tail="g1 = Add(w, one) y = Mul(n, g1)")
    scale = check(text, 23).inputs[1]

    assert isinstance(scale, Computed)
    assert scale.compute().tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("parts", SIXTEEN)
def test_below_the_operator_it_is_spelled_as_the_runtime_fuses_it(
    parts: tuple[str, str, str],
) -> None:
    context = context_of(mean_square(*parts), 18)
    (norm,) = context.norms
    rewrite = respelled_rms_norm(context, norm)

    assert isinstance(rewrite, Rewrite)
    proof = verify_rewrite(rewrite, context.constants, 18)
    assert not isinstance(proof, Failure), proof.detail
    assert is_fused_by_runtime(norm) is (parts in {SIXTEEN[0], SIXTEEN[1]})


def context_from(speller: Speller) -> Context:
    spelling = speller.spell()
    return Context(build_graph(spelling.model, numpy_helper.to_array), Settings(target_opset=23))


@st.composite
def spellers(draw: st.DrawFn, flaw: str = "") -> Speller:
    return Speller(
        lambda n: draw(st.integers(0, n - 1)),
        shape=draw(st.sampled_from([(2, 3, 4), (5, 6), (1, 3, 8)])),
        centred=draw(st.booleans()),
        epsilon=draw(st.sampled_from([1e-3, 1e-5, 0.25])),
        affine=draw(st.booleans()),
        opset=draw(st.sampled_from([13, 17, 18, 21])),
        flaw=flaw,
    )


@quick
@given(spellers())
def test_whatever_the_spelling_the_operator_computes_the_same(speller: Speller) -> None:
    context = context_from(speller)
    for norm in context.norms:
        if norm.kind not in {Kind.LAYER, Kind.RMS} or norm.form is not Form.DECOMPOSED:
            continue
        rewrite = made(context, norm)
        proof = verify_rewrite(rewrite, context.constants, context.opset)
        assert not isinstance(proof, Failure), proof.detail


@quick
@given(st.sampled_from(FLAWS).flatmap(spellers))
def test_a_look_alike_is_never_moved(speller: Speller) -> None:
    context = context_from(speller)
    for norm in context.norms:
        if norm.kind not in {Kind.LAYER, Kind.RMS} or norm.form is not Form.DECOMPOSED:
            continue
        outcome = (layer_norm if norm.kind is Kind.LAYER else rms_norm)(context, norm)
        if isinstance(outcome, Rewrite):
            proof = verify_rewrite(outcome, context.constants, context.opset)
            assert not isinstance(proof, Failure), proof.detail


def test_the_fact_of_an_operator_is_that_of_its_spelling() -> None:
    text = f"g (float[2,4] x) => (float[2,4] n) <float eps = {{0.001}}> {{ {BODY} }}"
    spelled = norm_of(text)
    fused = norm_of(
        """
        g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,1,1,1}> {
            y = LayerNormalization<epsilon = 0.001>(x, s)
        }
        """
    )

    assert (spelled.kind, spelled.axes, spelled.centred) == (fused.kind, fused.axes, fused.centred)
    assert np.isclose(spelled.epsilon, fused.epsilon)
