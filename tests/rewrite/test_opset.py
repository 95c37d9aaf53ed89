"""Raising the opset changes what a model says, and nothing that it computes."""

from __future__ import annotations

import onnx
import pytest
from graphs import context_of

from normlint.rewrite.opset import raise_opset
from normlint.rule import NotFixed, Reason, Rewrite
from normlint.verify import Failure, verify_rewrite

IMAGE = "g (float[1,4,6,6] x) => (float[N,C,H,W] y)"

CHANGED = {
    "clip": (f"{IMAGE} {{ y = Clip<min = -0.5, max = 0.25>(x) }}", 10, 17),
    "pad": (f"{IMAGE} {{ y = Pad<pads = [0,0,1,1,0,0,1,1], value = 2.0>(x) }}", 10, 17),
    "slice": (f"{IMAGE} {{ y = Slice<axes = [2,3], starts = [1,0], ends = [5,-1]>(x) }}", 9, 17),
    "resize": (f"{IMAGE} <float[4] s = {{1,1,2,2}}> {{ y = Resize(x, s) }}", 10, 17),
    "resize linear": (
        f'{IMAGE} <float[4] s = {{1,1,2,2}}> {{ y = Resize<mode = "linear">(x, s) }}',
        10,
        17,
    ),
    "resize to an extent": (
        f"""{IMAGE} <float[0] none = {{}}, int64[4] to = {{1,4,7,9}}> {{
            empty = Identity(none)
            y = Resize(x, none, empty, to)
        }}""",
        11,
        17,
    ),
    "upsample": (f"{IMAGE} <float[4] s = {{1,1,2,2}}> {{ y = Upsample(x, s) }}", 9, 17),
    "upsample of attributes": (f"{IMAGE} {{ y = Upsample<scales = [1.0,1.0,2.0,2.0]>(x) }}", 8, 11),
    "softmax of the last axis": (f"{IMAGE} {{ y = Softmax<axis = 3>(x) }}", 11, 13),
    "softmax of several axes": (f"{IMAGE} {{ y = Softmax<axis = 2>(x) }}", 12, 17),
    "softmax by default": (f"{IMAGE} {{ y = LogSoftmax(x) }}", 11, 17),
    "hardmax of a matrix": ("g (float[3,5] x) => (float[A,B] y) { y = Hardmax(x) }", 11, 17),
    "squeeze": ("g (float[1,4,1] x) => (float[A,B] y) { y = Squeeze<axes = [0]>(x) }", 11, 17),
    "unsqueeze": ("g (float[4,5] x) => (float[A,B,C] y) { y = Unsqueeze<axes = [1]>(x) }", 12, 17),
    "sum": (f"{IMAGE} {{ y = ReduceSum<axes = [1,2]>(x) }}", 11, 17),
    "mean": (f"{IMAGE} {{ y = ReduceMean<axes = [-1], keepdims = 1>(x) }}", 17, 18),
    "mean across versions": (f"{IMAGE} {{ y = ReduceMean<axes = [2,3]>(x) }}", 9, 23),
    "largest": (f"{IMAGE} {{ y = ReduceMax<axes = [1]>(x) }}", 13, 21),
    "length": (f"{IMAGE} {{ y = ReduceL2<axes = [-1]>(x) }}", 13, 23),
    "split": (
        f"{IMAGE} {{ a, b = Split<axis = 1, split = [1,3]>(x) y = Concat<axis = 1>(b, a) }}",
        11,
        17,
    ),
    "split evenly": (f"{IMAGE} {{ a, b = Split<axis = 1>(x) y = Sub(a, b) }}", 13, 18),
    "dropout": (f"{IMAGE} {{ y = Dropout<ratio = 0.3>(x) }}", 10, 17),
    "groups": (
        """
        g (float[1,4,6,6] x) => (float[1,4,6,6] y) <float[2] s = {1,2}, float[2] b = {3,4}> {
            y = GroupNormalization<num_groups = 2>(x, s, b)
        }
        """,
        18,
        21,
    ),
    "inside a branch": (
        """
        g (bool c, float[2,3] x) => (float[A,B] y) {
            y = If(c) <then_branch = t () => (float[A,B] p) { p = ReduceMean<axes = [1]>(x) },
                       else_branch = e () => (float[A,B] q) { q = ReduceMax<axes = [1]>(x) }>
        }
        """,
        17,
        18,
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_node_says_the_same_at_a_higher_opset(name: str) -> None:
    text, opset, to = CHANGED[name]
    context = context_of(text, opset)
    rewrites = raise_opset(context, to)

    assert not isinstance(rewrites, NotFixed), rewrites.detail
    assert rewrites
    for rewrite in rewrites:
        assert rewrite.opset == to
        proof = verify_rewrite(rewrite, context.constants, opset)
        assert not isinstance(proof, Failure), proof.detail


UNCHANGED = {
    "arithmetic": ("g (float[2,3] x) => (float[2,3] y) { y = Add(x, x) }", 9, 23),
    "mean of all": ("g (float[2,3] x) => (float[A,B] y) { y = ReduceMean(x) }", 13, 23),
    "shape": ("g (float[2,3] x) => (int64[2] y) { y = Shape(x) }", 9, 23),
    "pool": (f"{IMAGE} {{ y = AveragePool<kernel_shape = [2,2]>(x) }}", 11, 23),
    "batch norm": (
        """
        g (float[1,2,3] x) => (float[1,2,3] y) <float[2] a = {1,2}> {
            y = BatchNormalization(x, a, a, a, a)
        }
        """,
        9,
        23,
    ),
    "quantised": (
        """
        g (float[2,3] x) => (float[2,3] y) <float s = {0.1}, int8 z = {0}> {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)
        }
        """,
        11,
        23,
    ),
    "of another domain": (
        "g (float[2,3] x) => (float[2,3] y) { y = com.microsoft.FastGelu(x) }",
        11,
        23,
    ),
    "scale for each channel already": (
        """
        g (float[1,4,6,6] x) => (float[1,4,6,6] y) <float[4] s = {1,2,3,4}> {
            y = GroupNormalization<num_groups = 2>(x, s, s)
        }
        """,
        18,
        21,
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_a_node_that_means_the_same_is_left_alone(name: str) -> None:
    text, opset, to = UNCHANGED[name]

    assert raise_opset(context_of(text, opset), to) == []


IMPOSSIBLE = {
    "windows beyond the end": (
        f"""{IMAGE} {{
            y = MaxPool<kernel_shape = [2,2], strides = [2,2], pads = [0,0,0,1], ceil_mode = 1>(x)
        }}""",
        16,
        23,
    ),
    "a mask that is read": (
        "g (float[2,3] x) => (float[2,3] y, bool[2,3] m) { y, m = Dropout(x) }",
        10,
        17,
    ),
    "statistics that are read": (
        """
        g (float[1,2,3] x, float[2] a) => (float[1,2,3] y, float[2] m) {
            y, m, v, s, t = BatchNormalization(x, a, a, a, a)
        }
        """,
        9,
        14,
    ),
    "pools with rounded extents": (
        f"{IMAGE} {{ y = AveragePool<kernel_shape = [2,2], ceil_mode = 1>(x) }}",
        11,
        23,
    ),
    "not spatial": (
        """
        g (float[1,2,3] x, float[2] a) => (float[1,2,3] y) {
            y = BatchNormalization<spatial = 0>(x, a, a, a, a)
        }
        """,
        8,
        17,
    ),
    "groups of unknown channels": (
        """
        g (float[1,C,6,6] x, float[2] s) => (float[1,C,6,6] y) {
            y = GroupNormalization<num_groups = 2>(x, s, s)
        }
        """,
        18,
        21,
    ),
    "no kernel above": (
        "g (float[2,3] x) => (float[2,3] y) { y = RandomUniformLike(x) }",
        17,
        22,
    ),
    "no kernel above, behind what onnx does not know": (
        """
        g (float[2,1,4,4] x, float[4] s) => (float[2,1,1,1] y) {
            n = SimplifiedLayerNormalization(x, s)
            y = GlobalLpPool(n)
        }
        """,
        16,
        22,
    ),
    "broadcast by an attribute": (
        "g (float[2,3] x, float[3] b) => (float[2,3] y) { y = Add<broadcast = 1>(x, b) }",
        6,
        17,
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_said_faithfully_is_refused(name: str) -> None:
    text, opset, to = IMPOSSIBLE[name]
    outcome = raise_opset(context_of(text, opset), to)

    assert isinstance(outcome, NotFixed)
    assert outcome.reason is Reason.OPSET
    assert outcome.at is not None


def test_an_opset_that_onnx_does_not_know_is_refused() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = Add(x, x) }"
    outcome = raise_opset(context_of(text), onnx.defs.onnx_opset_version() + 1)

    assert isinstance(outcome, NotFixed)


def test_a_rewrite_covers_one_node_and_keeps_its_outputs() -> None:
    text = f"{IMAGE} {{ a, b = Split<axis = 1>(x) y = Sub(a, b) }}"
    context = context_of(text, 13)
    (rewrite,) = raise_opset(context, 18)  # type: ignore[misc]

    assert isinstance(rewrite, Rewrite)
    assert [node.op for node in rewrite.region] == ["Split"]
    (edit,) = rewrite.edits
    assert [tensor.name for tensor in edit.tensors] == ["a", "b"]  # type: ignore[union-attr]


def test_an_operator_that_the_runtime_runs_at_the_lower_opset_only_keeps_it_there() -> None:
    text = "g (double[2,8] x) => (double[2,8] y) { y = LeakyRelu<alpha = 0.2>(x) }"

    outcome = raise_opset(context_of(text, opset=17), 23)

    assert isinstance(outcome, NotFixed)
    assert "no kernel" in outcome.detail
