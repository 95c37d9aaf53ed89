"""Rewrites of a recognised normalisation into the operator that computes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.graph import FLOATS
from normlint.recognise.extents import above
from normlint.recognise.parameter import static
from normlint.rule import (
    Applicability,
    Computed,
    NewNode,
    NotFixed,
    Reason,
    Replace,
    Rewrite,
)
from normlint.support import gap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context import Context
    from normlint.graph import Tensor
    from normlint.normalization import Normalization, Parameter
    from normlint.rule import Operand

    Array = np.ndarray[Any, Any]

OPSETS = {
    "InstanceNormalization": 6,
    "LayerNormalization": 17,
    "GroupNormalization": 21,
    "RMSNormalization": 23,
}
"""The opset from which on an operator may be used (GroupNormalization 18 is deprecated)."""
_MEAN_SQUARE_OPS = frozenset(("RMSNormalization", "SimplifiedLayerNormalization"))
_LARGE_MEAN_ERRORS = {
    "LayerNormalization": 1e-4,
    "InstanceNormalization": 1e-4,
    "GroupNormalization": 2e-2,
}
"""Relative error in float32 where the mean is 100 deviations: of kernels that sum in another order
than the spelling did, and of the definition of GroupNormalization, which runtimes without a kernel
of their own follow and which has the variance as mean(x²) - mean(x)².
"""
_MEAN_SQUARE_OPS = frozenset(("RMSNormalization", "SimplifiedLayerNormalization"))
_ONE_PASS_ERROR = 2e-2
"""Error of GroupNormalization in float32 where the mean is 100 deviations: its definition in onnx,
which runtimes without a kernel of their own follow, has the variance as mean(x²) - mean(x)².
"""
_FIRST_AXIS = {"InstanceNormalization": 2, "GroupNormalization": 1}
"""The first axis of the statistics; in a GroupNormalization, of those within a group."""
_WIDTH: dict[int, int] = {
    TensorProto.BFLOAT16: 0,
    TensorProto.FLOAT16: 1,
    TensorProto.FLOAT: 2,
    TensorProto.DOUBLE: 3,
}


class Impossible(Exception):  # noqa: N818 - a reason, no error of the user's
    """No rewrite can be made, and why."""

    def __init__(self, reason: NotFixed) -> None:
        super().__init__(reason.detail)
        self.reason = reason


def layer_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation over the last axes by LayerNormalization."""
    return _attempt(lambda: _over_last_axes(context, norm, "LayerNormalization"))


def rms_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation by the mean square over the last axes by RMSNormalization."""
    return _attempt(lambda: _over_last_axes(context, norm, "RMSNormalization"))


def instance_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation over the axes behind the channels by InstanceNormalization."""
    return _attempt(lambda: _of_channels(context, norm, "InstanceNormalization"))


def group_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a normalisation of channels in groups by GroupNormalization."""
    return _attempt(lambda: _of_channels(context, norm, "GroupNormalization"))


def unified_batch_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Give a BatchNormalization one type for all of its inputs, the widest of them."""
    return _attempt(lambda: _unified_batch_norm(context, norm))


def _unified_batch_norm(context: Context, norm: Normalization) -> Rewrite:
    node = norm.anchor
    if norm.training or any(tensor.name for tensor in node.outputs[1:]):
        raise refuse(Reason.BATCH_STATISTICS, node, "it has statistics among its outputs")
    work = max((tensor.dtype for tensor in node.inputs), key=lambda t: _WIDTH.get(t, 0))
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


def _attempt(make: Any) -> Rewrite | NotFixed:
    try:
        rewrite: Rewrite = make()
    except Impossible as impossible:
        return impossible.reason
    return rewrite


def refuse(reason: Reason, at: Any, detail: str) -> Impossible:
    """Make the exception that says why no rewrite is possible."""
    return Impossible(NotFixed(reason, at, detail))


def demand_opset(context: Context, norm: Normalization, op: str) -> None:
    """Raise Impossible where the operator needs a higher opset, or a target lacks it."""
    needed = OPSETS[op]
    lacking = gap(context.settings.targets, op, needed)
    if lacking is not None:
        raise refuse(Reason.TARGET, norm.anchor, str(lacking))
    if context.opset_limit < needed:
        raise refuse(
            Reason.OPSET,
            norm.anchor,
            f"{op} needs opset {needed}, and the model is at {context.opset}: "
            f"allow it with --target-opset {needed}",
        )


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
    title = f"replace by {op}(axis={-width}, epsilon={norm.epsilon:.9g})"
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
    shown = ", ".join(f"{key}={value:.9g}" for key, value in sorted(attrs.items()))
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
    if norm.statistics_dtype in _WIDTH:
        work = max(work, norm.statistics_dtype, key=_WIDTH.__getitem__)
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


def is_half_fused(norm: Normalization) -> bool:
    """Whether the mean is subtracted once for several readers, of which an RMSNorm is one.

    That is what remains of several LayerNorms of one tensor when their common work is shared.
    """
    return any(
        node.op in _MEAN_SQUARE_OPS and len(set(node.inputs[0].consumers)) > 1
        for node in norm.nodes
    )


def demand_plain(norm: Normalization) -> None:
    """Raise Impossible where an operator would compute something else."""
    if norm.clipped:
        raise refuse(Reason.TYPE_MISMATCH, norm.anchor, "the root is clipped, not offset")
    if norm.quantized == "inside":
        raise refuse(Reason.QUANTIZED_BETWEEN, norm.anchor, "parts of it run quantised")
    if norm.dtype not in FLOATS:
        raise refuse(Reason.TYPE_MISMATCH, norm.x, f"the type of {norm.x.name} is not known")
    if norm.y.graph is not norm.anchor.graph:
        raise refuse(Reason.OTHER_READER, norm.y, "it ends in another graph than it begins in")


def trailing(norm: Normalization) -> int:
    """Give the number of last axes over which the statistics are taken. Raises Impossible."""
    axes = norm.axes
    if not axes or axes != tuple(range(-len(axes), 0)):
        raise refuse(
            Reason.CHANNEL_AXIS_MOVED, norm.anchor, "the statistics are not over the last axes"
        )
    return len(axes)


def normalised_shape(norm: Normalization, width: int) -> tuple[int, ...]:
    """Give the extents of the last axes, which the scale must have. Raises Impossible."""
    known = [None if norm.x.shape is None else norm.x.shape[axis] for axis in range(-width, 0)]
    for parameter in (norm.scale, norm.bias):
        shape = _aligned_shape(parameter, width)
        for position, extent in enumerate(shape):
            if not isinstance(known[position], int) and extent > 1:
                known[position] = extent
    extents = tuple(extent for extent in known if isinstance(extent, int) and extent > 0)
    if len(extents) != width:
        raise refuse(
            Reason.SHAPE_UNKNOWN, norm.x, f"the extent of the last axis of {norm.x.name} is open"
        )
    return extents


def _aligned_shape(parameter: Parameter | None, width: int) -> tuple[int, ...]:
    """Give the extents of a parameter along the last axes, where they are known."""
    shape = None if parameter is None else parameter.shape
    if shape is None and parameter is not None and parameter.tensor is not None:
        shape = static(parameter.tensor.shape)
    if shape is None:
        return ()
    return (*(1,) * (width - len(shape)), *shape[-width:])


def demand_along(norm: Normalization, parameter: Parameter | None, axes: Sequence[int]) -> None:
    """Raise Impossible where a scale or a bias varies along an axis on which the op has none."""
    if parameter is not None and not is_along(parameter, axes):
        at = parameter.tensors[0] if parameter.tensors else norm.anchor
        raise refuse(
            Reason.BROADCAST, at, "scale or bias varies along an axis that is not normalised"
        )


def is_along(parameter: Parameter, axes: Sequence[int]) -> bool:
    """Whether a scale or a bias varies along these axes only. Raises Impossible."""
    shape = parameter.shape
    if shape is None and parameter.tensor is not None:
        shape = static(parameter.tensor.shape)
    if shape is None:
        at = parameter.tensors[0] if parameter.tensors else None
        raise refuse(Reason.SHAPE_UNKNOWN, at, "the shape of scale or bias is not known")
    rank = len(shape)
    return all(extent == 1 or axis - rank in axes for axis, extent in enumerate(shape))


def working_type(norm: Normalization) -> int:
    """Give the type for the operator: that of x, or wider where scale, bias or y are.

    The statistics are float in every half-precision operator (stash_type 1), and double for double.
    Few runtimes have bfloat16 kernels, so what is computed in float beside it stays float.
    """
    types = [norm.dtype]
    if norm.dtype == TensorProto.BFLOAT16 and norm.statistics_dtype in _WIDTH:
        types.append(norm.statistics_dtype)
    types += [
        tensor.dtype
        for parameter in (norm.scale, norm.bias)
        if parameter is not None
        for tensor in parameter.tensors
        if tensor.dtype in _WIDTH
    ]
    if norm.y.dtype in _WIDTH:
        types.append(norm.y.dtype)
    return max(types, key=_WIDTH.__getitem__)


@dataclass(frozen=True)
class Vectors:
    """Makes the scale and the bias of an operator, of one shape and type."""

    dtype: int
    shape: tuple[int, ...]
    norm: Normalization

    def scale(self, parameter: Parameter | None) -> Operand:
        """Give a scale; ones where there is none, for the operators demand one."""
        return self.filled(1.0) if parameter is None else self.give(parameter, "scale")

    def filled(self, value: float) -> Computed:
        """Give a constant of one value."""
        kind = "ones" if value else "zeros"
        name = f"{self.norm.y.name}_{kind}"
        return Computed(self.shape, self.dtype, lambda: np.full(self.shape, value), name)

    def give(self, parameter: Parameter, what: str) -> Operand:
        """Give a parameter in the operator's shape: the tensor itself where it has it."""
        tensor = None if parameter.tensor is None else _without_alias(parameter.tensor)
        compute = parameter.compute
        fits = tensor is not None and (tensor.dtype, tensor.shape) == (self.dtype, self.shape)
        if tensor is not None and fits and (tensor.is_constant or compute is None):
            return tensor
        if compute is not None:
            name = tensor.name if tensor is not None else f"{self.norm.y.name}_{what}"

            def values() -> Array:
                return self._in_shape(compute())

            return Computed(self.shape, self.dtype, values, name)
        return self._reshaped(parameter)

    def broadcast(self, parameter: Parameter) -> Operand:
        """Give a parameter as the operand of an elementwise operator."""
        tensor, compute = parameter.tensor, parameter.compute
        if tensor is not None and tensor.dtype == self.dtype and _stands_as(tensor, parameter):
            return _without_alias(tensor)
        if compute is None or parameter.shape is None:
            at = parameter.tensors[0] if parameter.tensors else self.norm.anchor
            raise refuse(Reason.WEIGHTS_NOT_CONSTANT, at, "scale or bias is computed at run time")
        return Computed(parameter.shape, self.dtype, compute)

    def _in_shape(self, values: Array) -> Array:
        """Drop the leading extents of 1 and spread over the others."""
        width = len(self.shape)
        if values.size == math.prod(self.shape):
            return values.reshape(self.shape)
        if values.size == 1:
            return np.broadcast_to(values.reshape(-1)[0], self.shape)
        lead = max(values.ndim - width, 0)
        return np.broadcast_to(values.reshape(values.shape[lead:]), self.shape)

    def _reshaped(self, parameter: Parameter) -> Operand:
        """Bring a tensor that a caller may override into the operator's shape at run time."""
        tensor = parameter.tensor
        size = math.prod(self.shape)
        if tensor is None or tensor.dtype != self.dtype or not _holds(tensor, size):
            at = parameter.tensors[0] if parameter.tensors else self.norm.anchor
            raise refuse(Reason.WEIGHTS_NOT_CONSTANT, at, "scale or bias is computed at run time")
        target = Computed(
            (len(self.shape),), TensorProto.INT64, lambda: np.asarray(self.shape, np.int64)
        )
        return NewNode("Reshape", (tensor, target), like=self.norm.anchor)


def _stands_as(tensor: Tensor, parameter: Parameter) -> bool:
    """Whether a tensor broadcasts to x as the parameter does, without another shape."""
    shape, aligned = static(tensor.shape), parameter.shape
    if shape is None or aligned is None:
        return shape is not None
    return (1,) * (len(aligned) - len(shape)) + shape == aligned


def _without_alias(tensor: Tensor) -> Tensor:
    """Give the tensor that another one is by way of Identity alone."""
    for node in above(tensor):
        if node.op != "Identity":
            break
        tensor = node.inputs[0]
    return tensor


def _holds(tensor: Tensor, size: int) -> bool:
    extents = [extent for extent in tensor.shape or (0,) if isinstance(extent, int)]
    return len(extents) == len(tensor.shape or (0,)) and math.prod(extents) == size


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
    return 0.0 if work == TensorProto.DOUBLE else _LARGE_MEAN_ERRORS.get(op, 0.0)


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
