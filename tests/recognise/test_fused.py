"""Every fused operator is a fact: kind, axes, epsilon, types, statistics."""

from __future__ import annotations

import pytest
from graphs import graph_of, norm_of, norms_of
from onnx import TensorProto

from normlint.context.constants import Constants
from normlint.normalization import Form, Kind
from normlint.recognise.fused import fused_norms

LAST = "(float[2,3,8] x, float[8] g, float[8] b) => (float[2,3,8] y)"
IMAGE = "(float[2,4,5,6] x, float[4] g, float[4] b) => (float[2,4,5,6] y)"


@pytest.mark.parametrize(
    ("text", "opset", "kind", "axes", "epsilon"),
    [
        (f"g {LAST} {{ y = LayerNormalization(x, g, b) }}", 17, Kind.LAYER, (-1,), 1e-5),
        (
            f"g {LAST} {{ y = LayerNormalization<axis = 1, epsilon = 0.5>(x, g, b) }}",
            17,
            Kind.LAYER,
            (-2, -1),
            0.5,
        ),
        (f"g {LAST} {{ y = RMSNormalization(x, g) }}", 23, Kind.RMS, (-1,), 1e-5),
        (f"g {LAST} {{ y = SimplifiedLayerNormalization(x, g) }}", 17, Kind.RMS, (-1,), 1e-5),
        (
            f"g {LAST} {{ y = com.microsoft.SkipLayerNormalization(x, x, g, b) }}",
            17,
            Kind.LAYER,
            (-1,),
            1e-12,
        ),
        (
            f"g {LAST} {{ y = com.microsoft.SkipSimplifiedLayerNormalization(x, x, g) }}",
            17,
            Kind.RMS,
            (-1,),
            1e-12,
        ),
        (f"g {IMAGE} {{ y = InstanceNormalization(x, g, b) }}", 17, Kind.INSTANCE, (-2, -1), 1e-5),
        (
            f"g {IMAGE} {{ y = GroupNormalization<num_groups = 2>(x, g, b) }}",
            21,
            Kind.GROUP,
            (-3, -2, -1),
            1e-5,
        ),
        (
            f"g {IMAGE} {{ y = com.microsoft.GroupNorm<groups = 2, activation = 0>(x, g, b) }}",
            17,
            Kind.GROUP,
            (-3, -2, -1),
            1e-5,
        ),
        (f"g {IMAGE} {{ y = LpNormalization<axis = 1>(x) }}", 17, Kind.L2, (-3,), 0.0),
        (f"g {IMAGE} {{ y = MeanVarianceNormalization(x) }}", 17, Kind.OTHER, (-4, -2, -1), 0.0),
    ],
)
def test_an_operator_is_a_fact(
    text: str, opset: int, kind: Kind, axes: tuple[int, ...], epsilon: float
) -> None:
    norm = norm_of(text, opset)

    assert norm.kind is kind
    assert norm.form is Form.OP
    assert norm.axes == axes
    assert norm.epsilon == pytest.approx(epsilon)
    assert norm.dtype == TensorProto.FLOAT
    assert norm.centred is (kind not in {Kind.RMS, Kind.L2})


@pytest.mark.parametrize(
    "text",
    [
        f"g {IMAGE} {{ y = LRN<size = 3>(x) }}",
        f"g {IMAGE} {{ y = LpNormalization<p = 1>(x) }}",
        f"g {IMAGE} {{ y = other.domain.LayerNormalization(x, g) }}",
        f"g {IMAGE} {{ y = BatchNormalization(x, g, b) }}",
    ],
)
def test_other_operators_are_none(text: str) -> None:
    graph = graph_of(f'<ir_version: 8, opset_import: ["" : 17, "other.domain" : 1]>\n{text}')

    assert fused_norms(graph, Constants(graph)) == []


BATCH = (
    "(float[2,4,5] x, float[4] g, float[4] b, float[4] m, float[4] v)"
    " => (float[2,4,5] y) {{ {body} }}"
)


@pytest.mark.parametrize(
    ("body", "opset", "training"),
    [
        ("y = BatchNormalization(x, g, b, m, v)", 15, False),
        ("y, m2, v2 = BatchNormalization<training_mode = 1>(x, g, b, m, v)", 15, True),
        ("y, m2, v2, s, t = BatchNormalization(x, g, b, m, v)", 9, True),
        ("z, m2, v2, s, t = BatchNormalization(x, g, b, m, v) y = Add(z, s)", 9, True),
        (
            "z, m2, v2, s, t = BatchNormalization<is_test = 1>(x, g, b, m, v) y = Add(z, s)",
            6,
            False,
        ),
        (
            "p = ReduceMean<axes = [0, 2], keepdims = 0>(x) y = BatchNormalization(x, g, b, p, p)",
            15,
            True,
        ),
        (
            """
            n = Shape(x) c = Slice<starts = [1], ends = [2]>(n) p = Expand(m, c)
            y = BatchNormalization(x, g, b, p, v)
            """,
            9,
            False,
        ),
    ],
)
def test_batch_statistics_are_told_from_running_ones(body: str, opset: int, training: bool) -> None:
    graph = graph_of(f"g {BATCH.format(body=body)}", opset)
    (norm,) = fused_norms(graph, Constants(graph))

    assert norm.training is training
    assert norm.axes == ((-3, -1) if training else None)


def test_the_parameters_are_aligned_to_the_input() -> None:
    text = """
        g (float[2,4,5,6] x) => (float[2,4,5,6] y)
        <float[2] g = {1, 2}, float[2] b = {3, 4}> {
            y = GroupNormalization<num_groups = 2>(x, g, b)
        }
    """
    norm = norm_of(text, 18)

    assert norm.scale is not None
    assert norm.scale.compute is not None
    assert norm.scale.shape == (1, 4, 1, 1)
    assert norm.scale.compute().reshape(-1).tolist() == [1, 1, 2, 2]


def test_the_type_of_the_statistics_is_kept() -> None:
    half = "g (float16[2,8] x, float16[8] g) => (float16[2,8] y) {{ y = {op}(x, g) }}"

    assert norm_of(half.format(op="LayerNormalization")).statistics_dtype == TensorProto.FLOAT
    explicit = half.format(op="LayerNormalization<stash_type = 16>")
    assert norm_of(explicit).statistics_dtype == TensorProto.BFLOAT16


def test_a_norm_of_constants_is_no_norm_of_data() -> None:
    text = """
        g (float[2,8] z) => (float[2,8] y)
        <float[2,8] x = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[8] g = {1,1,1,1,1,1,1,1}> {
            n = LayerNormalization(x, g)
            y = Add(n, z)
        }
    """

    assert norms_of(text) == ()
