"""What a normalisation must be so that an operator can stand for it, and why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from normlint.graph import FLOATS
from normlint.recognise.parameter import static
from normlint.rule import NotFixed, Reason
from normlint.support import gap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.context import Context
    from normlint.normalization import Normalization, Parameter
    from normlint.rule import Rewrite

OPSETS = {
    "InstanceNormalization": 6,
    "LayerNormalization": 17,
    "GroupNormalization": 21,
    "RMSNormalization": 23,
}
"""The opset from which on an operator may be used (GroupNormalization 18 is deprecated)."""
WIDTH: dict[int, int] = {
    TensorProto.BFLOAT16: 0,
    TensorProto.FLOAT16: 1,
    TensorProto.FLOAT: 2,
    TensorProto.DOUBLE: 3,
}
"""The types of floats, narrow before wide."""
_MEAN_SQUARE_OPS = frozenset(("RMSNormalization", "SimplifiedLayerNormalization"))


class Impossible(Exception):  # noqa: N818 - a reason, no error of the user's
    """No rewrite can be made, and why."""

    def __init__(self, reason: NotFixed) -> None:
        super().__init__(reason.detail)
        self.reason = reason


def attempt(make: Callable[[], Rewrite]) -> Rewrite | NotFixed:
    """Make a rewrite, or give the reason of the Impossible that making it raises."""
    try:
        return make()
    except Impossible as impossible:
        return impossible.reason


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
    if norm.dtype == TensorProto.BFLOAT16 and norm.statistics_dtype in WIDTH:
        types.append(norm.statistics_dtype)
    types += [
        tensor.dtype
        for parameter in (norm.scale, norm.bias)
        if parameter is not None
        for tensor in parameter.tensors
        if tensor.dtype in WIDTH
    ]
    if norm.y.dtype in WIDTH:
        types.append(norm.y.dtype)
    return max(types, key=WIDTH.__getitem__)
