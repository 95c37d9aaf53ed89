"""The variance as the mean of squared differences, in elementary operators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.rewrite.demands import Impossible, demand_plain, refuse
from normlint.rewrite.norm_ops import finish
from normlint.rule import Computed, NewNode, NotFixed, Reason

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.normalization import Normalization, Parameter
    from normlint.rule import Operand, Rewrite


def two_pass(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Spell a normalisation so that its variance does not cancel, where no operator computes it."""
    try:
        return _two_pass(context, norm)
    except Impossible as impossible:
        return impossible.reason


def _two_pass(context: Context, norm: Normalization) -> Rewrite:
    demand_plain(norm)
    if not norm.axes or norm.y.dtype not in {0, norm.x.dtype}:
        raise refuse(Reason.TYPE_MISMATCH, norm.anchor, "its axes or its type are not known")
    like, dtype = norm.anchor, norm.x.dtype
    centred = NewNode("Sub", (norm.x, _mean(context, norm, norm.x)), like=like)
    variance = _mean(context, norm, NewNode("Mul", (centred, centred), like=like))
    epsilon = Computed((), dtype, lambda: np.asarray(norm.epsilon, np.float64))
    root = NewNode("Sqrt", (NewNode("Add", (variance, epsilon), like=like),), like=like)
    made = NewNode("Div", (centred, root), like=like)
    for op, parameter in (("Mul", norm.scale), ("Add", norm.bias)):
        if parameter is not None:
            made = NewNode(op, (made, _operand(norm, parameter)), like=like)
    title = "take the mean of squared differences for the variance"
    return finish(replace(norm, one_pass=True), made, dtype, title, opset=0)


def _mean(context: Context, norm: Normalization, of: Operand) -> NewNode:
    axes = list(norm.axes or ())
    if context.opset >= 18:
        given = Computed((len(axes),), TensorProto.INT64, lambda: np.asarray(axes, np.int64))
        return NewNode("ReduceMean", (of, given), {"keepdims": 1}, like=norm.anchor)
    return NewNode("ReduceMean", (of,), {"axes": axes, "keepdims": 1}, like=norm.anchor)


def _operand(norm: Normalization, parameter: Parameter) -> Operand:
    if parameter.compute is None or parameter.shape is None:
        at = parameter.tensors[0] if parameter.tensors else norm.anchor
        raise refuse(Reason.WEIGHTS_NOT_CONSTANT, at, "scale or bias is computed at run time")
    return Computed(parameter.shape, norm.x.dtype, parameter.compute)
