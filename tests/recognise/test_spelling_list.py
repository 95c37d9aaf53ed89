"""A fixed list of spellings that exporters and people write: all of them, counted."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from normlint.context.constants import Constants
from normlint.graph import build_graph
from normlint.normalization import Kind, Normalization
from normlint.recognise import recognise

MEAN = (
    "m = ReduceMean <axes=[-1]> (x)",
    "m0 = ReduceMean <axes=[2], keepdims=0> (x)\n m = Unsqueeze (m0, last)",
    "m0 = ReduceSum (x, last)\n m = Mul (m0, quarter)",
)
DIFFERENCE = (
    "d = Sub (x, m)",
    "mn = Neg (m)\n d = Add (mn, x)",
    "d1 = Sub (m, x)\n d = Neg (d1)",
)
SINGLE = "xx = Mul (x, x)\n q = ReduceMean <axes=[-1]> (xx)\n mm = Mul (m, m)\n v = Sub (q, mm)"
VARIANCE = (
    "s = Pow (d, two)\n v = ReduceMean <axes=[-1]> (s)",
    "s = Mul (d, d)\n v0 = ReduceSum (s, last)\n v = Div (v0, four)",
    "v0 = ReduceSumSquare <axes=[-1]> (d)\n v = Div (v0, four)",
    SINGLE,
    SINGLE.replace("v =", "v1 =") + "\n v = Relu (v1)",
)
MEAN_SQUARE = (
    "s = Pow (x, two)\n v = ReduceMean <axes=[-1]> (s)",
    "s = Mul (x, x)\n v0 = ReduceSum (s, last)\n v = Mul (v0, quarter)",
    "v0 = ReduceL2 <axes=[-1]> (x)\n v1 = Mul (v0, v0)\n v = Div (v1, four)",
)
EPSILON = ("e = Add (v, eps)", "e = Add (eps, v)", "e = Sub (v, neg)")
ROOT = (
    "r = Sqrt (e)\n n = Div (@, r)",
    "r = Sqrt (e)\n i = Reciprocal (r)\n n = Mul (@, i)",
    "r = Sqrt (e)\n i = Div (one, r)\n n = Mul (i, @)",
    "i = Pow (e, minus)\n n = Mul (@, i)",
    "i0 = Reciprocal (e)\n i = Sqrt (i0)\n n = Mul (@, i)",
)
AFFINE = (
    "a = Mul (n, g)\n y = Add (a, b)",
    "a = Mul (g, n)\n y = Add (b, a)",
    "a0 = Mul (n, two)\n a1 = Mul (a0, g)\n a = Div (a1, two)\n y = Add (a, b)",
)
HEAD = """<ir_version: 8, opset_import: ["" : 13]>
test (float[2,3,4] x) => (float[2,3,4] y) {
two = Constant <value = float {2}> ()
four = Constant <value = float {4}> ()
quarter = Constant <value = float {0.25}> ()
one = Constant <value = float {1}> ()
minus = Constant <value = float {-0.5}> ()
eps = Constant <value = float {0.125}> ()
neg = Constant <value = float {-0.125}> ()
last = Constant <value = int64[1] {-1}> ()
g = Constant <value = float[4] {1, 2, 3, 4}> ()
b = Constant <value = float[4] {4, 3, 2, 1}> ()
"""


def norms(*parts: str) -> tuple[Normalization, ...]:
    model = onnx.parser.parse_model(HEAD + "\n".join(parts) + "}")
    graph = build_graph(model, numpy_helper.to_array)
    return recognise(graph, Constants(graph)).norms


def is_exact(norm: Normalization, kind: Kind) -> bool:
    scale, bias = norm.scale, norm.bias
    return (
        norm.kind is kind
        and norm.epsilon == pytest.approx(0.125)
        and (norm.x.name, norm.y.name, norm.axes) == ("x", "y", (-1,))
        and scale is not None
        and scale.compute is not None
        and np.allclose(scale.compute(), [1, 2, 3, 4])
        and bias is not None
        and bias.compute is not None
        and np.allclose(bias.compute(), [4, 3, 2, 1])
    )


def count(kind: Kind, spellings: list[tuple[str, ...]]) -> int:
    found = [norms(*spelling) for spelling in spellings]
    return sum(len(norm) == 1 and is_exact(norm[0], kind) for norm in found)


def test_all_spellings_of_a_layer_norm() -> None:
    roots = [root.replace("@", "d") for root in ROOT]
    spellings = list(product(MEAN, DIFFERENCE, VARIANCE, EPSILON, roots, AFFINE))
    assert len(spellings) == 2025
    chosen = spellings[::4]
    assert count(Kind.LAYER, chosen) == len(chosen) == 507


def test_all_spellings_of_an_rms_norm() -> None:
    roots = [root.replace("@", "x") for root in ROOT]
    spellings = list(product(MEAN_SQUARE, EPSILON, roots, AFFINE))
    assert count(Kind.RMS, spellings) == len(spellings) == 135
