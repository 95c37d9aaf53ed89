"""Rewrites of a recognised normalisation into the operator that computes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from normlint.digits import shortest
from normlint.graph import FLOATS
from normlint.recognise.parameter import static
from normlint.rewrite.demands import (
    OPSETS,
    WIDTH,
    attempt,
    demand_along,
    demand_opset,
    demand_plain,
    is_along,
    normalised_shape,
    refuse,
    trailing,
    working_type,
)
from normlint.rewrite.vectors import Vectors
from normlint.rule import Applicability, Computed, NewNode, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.graph import Tensor
    from normlint.normalization import Normalization
    from normlint.rule import NotFixed, Operand

_LARGE_MEAN_ERRORS = {
    "LayerNormalization": 1e-4,
    "InstanceNormalization": 1e-4,
    "GroupNormalization": 2e-2,
}
"""Relative error in float32 where the mean is 100 deviations: of kernels that sum in another order
than the spelling did, and of the definition of GroupNormalization, which runtimes without a kernel
of their own follow and which has the variance as mean(x²) - mean(x)².
"""
_FLOAT_ROUNDING = 2.0**-24
"""Relative error of what exporters write as a float into a model of double, such as 1/12."""
_FIRST_AXIS = {"InstanceNormalization": 2, "GroupNormalization": 1}
"""The first axis of the statistics; in a GroupNormalization, of those within a group."""


def layer_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation over the last axes by LayerNormalization."""
    return attempt(lambda: _over_last_axes(context, norm, "LayerNormalization"))


def rms_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation by the mean square over the last axes by RMSNormalization."""
    return attempt(lambda: _over_last_axes(context, norm, "RMSNormalization"))


def instance_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation over the axes behind the channels by InstanceNormalization."""
    return attempt(lambda: _of_channels(context, norm, "InstanceNormalization"))


def group_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation of channels in groups by GroupNormalization."""
    return attempt(lambda: _of_channels(context, norm, "GroupNormalization"))


def unified_batch_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Give a BatchNormalization one type for all of its inputs, the widest of them."""
    return attempt(lambda: _unified_batch_norm(context, norm))


def _unified_batch_norm(context: Context, norm: Normalization) -> Rewrite:
    node = norm.anchor
    if norm.training or any(tensor.name for tensor in node.outputs[1:]):
        raise refuse(Reason.BATCH_STATISTICS, node, "it has statistics among its outputs")
    work = max((tensor.dtype for tensor in node.inputs), key=lambda t: WIDTH.get(t, 0))
    inputs: list[Operand] = [cast_in(norm, work)]
    inputs += [_in_type(context, norm, tensor, work) for tensor in node.inputs[1:]]
    made = NewNode(node.op, tuple(inputs), dict(node.attrs), like=node)
    return finish(norm, made, work, "compute in one type", opset=0)


def _in_type(context: Context, norm: Normalization, tensor: Tensor, dtype: int) -> Operand:
    if tensor.dtype == dtype:
        return tensor
    shape = static(tensor.shape)
    constants = context.constants
    if shape is None or not constants.is_constant(tensor):
        return NewNode("Cast", (tensor,), {"to": dtype}, like=norm.anchor)
    return Computed(shape, dtype, lambda: constants.values(tensor), tensor.name)


def _over_last_axes(context: Context, norm: Normalization, op: str) -> Rewrite:
    demand_opset(context, norm, op)
    demand_plain(norm)
    width = trailing(norm)
    shape = normalised_shape(norm, width)
    work = working_type(norm)
    vectors = Vectors(work, shape, norm)
    scale, bias = norm.scale, norm.bias
    apart = any(p is not None and not is_along(p, range(-width, 0)) for p in (scale, bias))
    inputs: list[Operand] = [cast_in(norm, work), vectors.scale(None if apart else scale)]
    fused_bias = op == "LayerNormalization" and bias is not None and not apart
    if bias is not None and fused_bias:
        inputs.append(vectors.give(bias, "bias"))
    attrs = {"axis": -width, "epsilon": norm.epsilon}
    made = NewNode(op, tuple(inputs), attrs, like=norm.anchor)
    if scale is not None and apart:
        made = NewNode("Mul", (made, vectors.broadcast(scale)), like=norm.anchor)
    if bias is not None and not fused_bias:
        made = NewNode("Add", (made, vectors.broadcast(bias)), like=norm.anchor)
    title = f"replace by {op}(axis={-width}, epsilon={shortest(norm.epsilon)})"
    return finish(norm, made, work, title, opset=OPSETS[op], tolerance=large_mean_error(op, work))


def _of_channels(context: Context, norm: Normalization, op: str) -> Rewrite:
    demand_opset(context, norm, op)
    demand_plain(norm)
    rank = norm.x.rank
    extents = norm.x.shape
    if rank is None or extents is None or rank < 3:
        raise refuse(
            Reason.SHAPE_UNKNOWN, norm.x, f"the rank of {norm.x.name} is not known to be 3 or more"
        )
    if norm.y.rank not in {None, rank}:
        raise refuse(Reason.BROADCAST, norm.y, f"{norm.y.name} has other axes than {norm.x.name}")
    last = _has_channels_last(norm, op, rank)
    axis = -1 if last else 1 - rank
    for parameter in (norm.scale, norm.bias):
        demand_along(norm, parameter, (axis,))
    channels = _channels(norm, axis)
    work = working_type(norm)
    if op == "InstanceNormalization":
        work = _instance_type(context, norm, work)
    vectors = Vectors(work, (channels,), norm)
    bias = vectors.give(norm.bias, "bias") if norm.bias is not None else vectors.filled(0.0)
    x = cast_in(norm, work)
    if last:
        x = NewNode("Transpose", (x,), {"perm": [0, rank - 1, *range(1, rank - 1)]}, norm.anchor)
    inputs = (x, vectors.scale(norm.scale), bias)
    attrs: dict[str, Any] = {"epsilon": norm.epsilon}
    if op == "GroupNormalization":
        if norm.groups is None or channels % norm.groups:
            raise refuse(Reason.BROADCAST, norm.anchor, "the groups do not divide the channels")
        attrs["num_groups"] = norm.groups
        if work == TensorProto.DOUBLE:
            attrs["stash_type"] = work
    shown = ", ".join(f"{key}={shortest(float(value)):.9g}" for key, value in sorted(attrs.items()))
    made = NewNode(op, inputs, attrs, like=norm.anchor)
    title = f"replace by {op}({shown})"
    if last:
        made = NewNode("Transpose", (made,), {"perm": [0, *range(2, rank), 1]}, norm.anchor)
        title = f"{title} between Transposes"
    error = large_mean_error(op, work)
    rewrite = finish(norm, made, work, title, opset=OPSETS[op], tolerance=error)
    return replace(rewrite, applicability=Applicability.UNSAFE) if last else rewrite


def _has_channels_last(norm: Normalization, op: str, rank: int) -> bool:
    """Whether the channels are the last axis, and not axis 1. Raises Impossible for another."""
    first, last = tuple(range(_FIRST_AXIS[op] - rank, 0)), tuple(range(1 - rank, -1))
    if norm.channels_last or (op == "InstanceNormalization" and norm.axes == last != first):
        return True
    if norm.axes != first:
        raise refuse(
            Reason.CHANNEL_AXIS_MOVED, norm.anchor, f"the channels of {norm.x.name} are not axis 1"
        )
    return False


def _instance_type(context: Context, norm: Normalization, work: int) -> int:
    """Give the type for InstanceNormalization, whose statistics have the type of x."""
    if norm.statistics_dtype in WIDTH:
        work = max(work, norm.statistics_dtype, key=WIDTH.__getitem__)
    if work == TensorProto.DOUBLE:
        raise refuse(
            Reason.TARGET, norm.anchor, "onnxruntime has no InstanceNormalization of double"
        )
    if work == TensorProto.BFLOAT16 and context.opset < 22:
        raise refuse(Reason.OPSET, norm.anchor, "InstanceNormalization of bfloat16 needs opset 22")
    return work


def _channels(norm: Normalization, axis: int) -> int:
    """Give the number of channels, which scale and bias of the operator must have."""
    extent = None if norm.x.shape is None else norm.x.shape[axis]
    found = [extent] if isinstance(extent, int) else []
    found += [
        parameter.shape[axis]
        for parameter in (norm.scale, norm.bias)
        if parameter is not None and parameter.shape is not None and parameter.shape[axis] > 1
    ]
    if not found:
        raise refuse(Reason.SHAPE_UNKNOWN, norm.x, "the number of channels is not known")
    return found[0]


def cast_in(norm: Normalization, work: int) -> Operand:
    """Give x in the operator's type: through the model's own Cast where there is one."""
    if norm.dtype == work:
        return norm.x
    for node in norm.nodes:
        if node.op == "Cast" and node.inputs[0] is norm.x and node.y.dtype == work:
            return node.y
    return NewNode("Cast", (norm.x,), {"to": work}, like=norm.anchor)


def large_mean_error(op: str, work: int) -> float:
    """Give the relative error to be expected of an operator where the mean is large."""
    return _FLOAT_ROUNDING if work == TensorProto.DOUBLE else _LARGE_MEAN_ERRORS.get(op, 0.0)


def finish(
    norm: Normalization,
    made: NewNode,
    work: int,
    title: str,
    *,
    opset: int,
    tolerance: float = 0.0,
) -> Rewrite:
    """Put the operator in the place of y: in its type, and transposed as y is."""
    if norm.permutation is not None:
        made = NewNode("Transpose", (made,), {"perm": list(norm.permutation)}, like=norm.anchor)
    if norm.y.dtype in FLOATS and norm.y.dtype != work:
        made = NewNode("Cast", (made,), {"to": norm.y.dtype}, like=norm.anchor)
    return Rewrite(
        title,
        Applicability.UNSAFE if norm.one_pass else Applicability.SAFE,
        (Replace((norm.y,), made),),
        norm.nodes,
        opset,
        tolerance=tolerance,
    )
