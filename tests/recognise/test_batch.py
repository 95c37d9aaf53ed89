"""BatchNorm in disguise and BatchNorm spelled out."""

from __future__ import annotations

import pytest
from graphs import norm_of, norms_of

from normlint.normalization import Form, Kind

ROWS = "float[6] ones = {1,1,1,1,1,1}, float[6] zeros = {0,0,0,0,0,0}"
TRAINED = (
    "n, p, q = BatchNormalization<training_mode = 1, epsilon = 0.001>(r, ones, zeros, zeros, ones)"
)


def test_keras_layer_norm_is_no_batch_norm() -> None:
    norm = norm_of(f"""
        g (float[2,3,4] x) => (float[2,3,4] y)
        <{ROWS}, int64[4] split = {{1,6,4,1}}, int64[3] back = {{2,3,4}},
         float[4] scale = {{1,2,3,4}}, float[4] bias = {{1,2,3,4}}> {{
            r = Reshape(x, split) {TRAINED} j = Reshape(n, back)
            s = Mul(j, scale) y = Add(s, bias)
        }}
    """)

    assert norm.kind is Kind.LAYER
    assert norm.axes == (-1,)
    assert norm.training
    assert norm.y.name == "y"
    assert norm.epsilon == pytest.approx(1e-3)
    assert norm.scale is not None
    assert norm.scale.shape == (1, 1, 4)


@pytest.mark.parametrize("affine", [False, True])
def test_a_batch_of_rows_is_an_instance_norm(affine: bool) -> None:
    tail = "s = Mul(j, scale) y = Add(s, bias)" if affine else "y = Identity(j)"
    norm = norm_of(f"""
        g (float[2,3,4,5] x) => (float[2,3,4,5] y)
        <{ROWS}, int64[4] split = {{1,6,4,5}}, int64[4] back = {{2,3,4,5}},
         float[3,1,1] scale = {{1,2,3}}, float[3,1,1] bias = {{1,2,3}}> {{
            r = Reshape(x, split) {TRAINED} j = Reshape(n, back) {tail}
        }}
    """)

    assert norm.kind is Kind.INSTANCE
    assert norm.axes == (-2, -1)
    assert (norm.scale is not None) is affine


def test_running_statistics_stay_a_batch_norm() -> None:
    norm = norm_of(f"""
        g (float[2,3,4,5] x) => (float[2,3,4,5] y)
        <{ROWS}, int64[4] split = {{1,6,4,5}}, int64[4] back = {{2,3,4,5}}> {{
            r = Reshape(x, split) n = BatchNormalization(r, ones, zeros, zeros, ones)
            y = Reshape(n, back)
        }}
    """)

    assert norm.kind is Kind.BATCH
    assert not norm.training


FROZEN = "float[1,3,1,1] w = {1,2,3}, float[1,3,1,1] b = {1,2,3}, float[1,3,1,1] m = {1,2,3}"


@pytest.mark.parametrize(
    "body",
    [
        """
        e = Add(v, eps) o = Sqrt(e) i = Reciprocal(o) s = Mul(w, i) n = Mul(m, s) t = Sub(b, n)
        p = Mul(x, s) y = Add(p, t)
        """,
        "e = Add(v, eps) i = Pow(e, half) s = Mul(w, i) d = Sub(x, m) p = Mul(d, s) y = Add(b, p)",
        "e = Add(v, eps) o = Sqrt(e) d = Sub(x, m) q = Div(d, o) p = Mul(q, w) y = Add(p, b)",
    ],
)
def test_a_frozen_batch_norm_is_recognised(body: str) -> None:
    norm = norm_of(f"""
        g (float[2,3,4,5] x) => (float[2,3,4,5] y)
        <{FROZEN}, float[1,3,1,1] v = {{1,4,9}}, float eps = {{0.25}}, float half = {{-0.5}}> {{
            {body}
        }}
    """)

    assert norm.kind is Kind.BATCH
    assert norm.form is Form.DECOMPOSED
    assert norm.axes is None
    assert norm.epsilon == pytest.approx(0.25)
    assert norm.x.name == "x"
    assert norm.y.name == "y"
    assert norm.scale is not None
    assert norm.scale.compute is not None
    expected = [w / (v + 0.25) ** 0.5 for w, v in ((1, 1), (2, 4), (3, 9))]
    assert norm.scale.compute().reshape(-1).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul(x, w)",  # LayerScale
        "p = Mul(x, w) y = Add(p, b)",  # an affine, or a BatchNorm that is folded already
        "d = Sub(x, m) y = Div(d, w)",  # normalisation of the pixels of an image
    ],
)
def test_an_affine_is_no_batch_norm(body: str) -> None:
    text = f"g (float[2,3,4,5] x) => (float[2,3,4,5] y) <{FROZEN}> {{ {body} }}"

    assert norms_of(text) == ()
