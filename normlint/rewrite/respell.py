"""Normalisations in elementary operators, spelled as runtimes fuse them when they load a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.rewrite.demands import (
    Impossible,
    demand_along,
    demand_plain,
    normalised_shape,
    trailing,
    working_type,
)
from normlint.rewrite.norm_ops import cast_in, finish
from normlint.rewrite.vectors import Vectors
from normlint.rule import Computed, NewNode, NotFixed

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Operand, Rewrite

_FUSED_BY_RUNTIME = (
    ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"],
    ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Mul"],
)
"""The two chains that onnxruntime fuses to an RMSNorm, at every opset."""


def is_fused_by_runtime(norm: Normalization) -> bool:
    """Whether onnxruntime itself fuses this spelling of an RMSNorm when it loads the model."""
    operators = [node.op for node in norm.nodes if node.op not in {"Cast", "Identity"}]
    return norm.axes == (-1,) and norm.scale is not None and operators in _FUSED_BY_RUNTIME


def respelled_rms_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Spell an RMSNorm with Pow and Div, as onnxruntime fuses it below opset 23."""
    try:
        return _respelled(context, norm)
    except Impossible as impossible:
        return impossible.reason


def _respelled(context: Context, norm: Normalization) -> Rewrite:
    demand_plain(norm)
    width = trailing(norm)
    shape = normalised_shape(norm, width)
    for parameter in (norm.scale, norm.bias):
        demand_along(norm, parameter, range(-width, 0))
    work = working_type(norm)
    vectors = Vectors(work, shape, norm)
    made = spelled_rms(context.opset, norm, cast_in(norm, work), vectors, vectors.scale(norm.scale))
    if norm.bias is not None:
        made = NewNode("Add", (made, vectors.give(norm.bias, "bias")), like=norm.anchor)
    return finish(norm, made, work, "spell it with Pow and Div, as onnxruntime fuses it", opset=0)


def spelled_rms(
    opset: int, norm: Normalization, x: Operand, vectors: Vectors, scale: Operand
) -> NewNode:
    """Give x / sqrt(mean(x²) + epsilon) * scale over the last axes in basic operators."""
    like = norm.anchor
    dtype, width = vectors.dtype, len(vectors.shape)
    axes = list(range(-width, 0))
    square = NewNode("Pow", (x, _number(2.0, dtype)), like=like)
    if opset >= 18:
        given = Computed((width,), TensorProto.INT64, lambda: np.asarray(axes, np.int64))
        mean = NewNode("ReduceMean", (square, given), {"keepdims": 1}, like=like)
    else:
        mean = NewNode("ReduceMean", (square,), {"axes": axes, "keepdims": 1}, like=like)
    root = NewNode(
        "Sqrt", (NewNode("Add", (mean, _number(norm.epsilon, dtype)), like=like),), like=like
    )
    return NewNode("Mul", (NewNode("Div", (x, root), like=like), scale), like=like)


def _number(value: float, dtype: int) -> Computed:
    return Computed((), dtype, lambda: np.asarray(value, np.float64))
