"""Constants and normalisations that can write a stream whose channels have mean zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.context.zero_mean_sites import Site
from normlint.context.zero_mean_steps import Step, step
from normlint.deferred import dataclass
from normlint.graph import FLOATS
from normlint.model import ValuesUnavailable
from normlint.normalization import EMBED_LAYER_NORM, SKIP_LAYER_NORM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization, Parameter

    Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

_STORED = FLOATS | {TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, 0}
"""Element types of constants; whatever else weights are stored in, they are quantised."""


_PIECE = 1 << 18
"""Elements of which the means are taken at once."""
_BIASES = {"LayerNormalization": 2, SKIP_LAYER_NORM: 3, EMBED_LAYER_NORM: 6}
"""The input that an operator adds last of all."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A product with a constant vector over the channels (LayerScale) behind linear operators.

    The mean of the product vanishes when what is multiplied is written as the centred product, and
    the factor becomes one.
    """

    node: Node
    """The Mul or Div."""
    source: Site
    """What is multiplied; nobody else reads it."""
    factor: Site
    steps: tuple[Step, ...]
    """The operators that compute what is multiplied, from constants and other tensors."""


def can_be_edited(tensor: Tensor, constants: Constants) -> bool:
    """Whether a constant holds floats, and is not computed from quantised ones."""
    if tensor.dtype not in FLOATS or not constants.is_constant(tensor):
        return False
    if any(not isinstance(extent, int) for extent in tensor.shape or ()):
        return False
    pending, seen = [tensor], {tensor}
    while pending:
        node = pending.pop().producer
        if node is None:
            continue
        sources = [source for source in node.inputs if source.name]
        if node.op == "DequantizeLinear" or any(s.dtype not in _STORED for s in sources):
            return False
        fresh = [source for source in sources if source not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return True


def scaled(node: Node, out: Site, constants: Constants) -> Scaled | None:
    """Read a LayerScale whose input is linear in constants and read by nobody else."""
    if node.op not in {"Mul", "Div"} or not node.is_standard or len(node.inputs) != 2:
        return None
    for place in (0, 1) if node.op == "Mul" else (0,):
        source, factor = (_aligned(node.inputs[k], out) for k in (place, 1 - place))
        if source is None or factor is None or not _is_vector(factor):
            continue
        if not can_be_edited(factor.tensor, constants) or constants.is_constant(source.tensor):
            continue
        steps = _private_steps(source, constants)
        if steps:
            return Scaled(node, source, factor, steps)
    return None


def _aligned(tensor: Tensor, out: Site) -> Site | None:
    if tensor.shape is None:
        return None
    offset = len(out.shape) - len(tensor.shape)
    if offset > out.first:
        return None
    found = Site(tensor, out.first - offset, out.last - offset)
    return found if found.widths == out.widths else None


def _is_vector(at: Site) -> bool:
    return all(extent == 1 for axis, extent in enumerate(at.shape) if axis not in at.axes)


def _private_steps(source: Site, constants: Constants) -> tuple[Step, ...] | None:
    """Give the operators back to the constants; None where another reader intervenes."""
    found: list[Step] = []
    pending = [source]
    while pending:
        at = pending.pop()
        if constants.is_constant(at.tensor):
            if not can_be_edited(at.tensor, constants):
                return None
            continue
        if at.tensor.is_output or len(at.tensor.consumers) != 1:
            return None
        node = at.tensor.producer
        if node is None or node.graph is not source.tensor.graph:
            return None
        how = step(node, at, constants)
        if how is None or how.shifts or len(node.outputs) != 1:
            return None
        found.append(how)
        pending.extend(operand for _, operand in how.full)
    return tuple(found)


def uniform(parameter: Parameter | None) -> bool:
    """Whether a scale is one number; true where there is none."""
    if parameter is None:
        return True
    if parameter.compute is None:
        return False
    try:
        values = parameter.compute()
    except ValuesUnavailable:
        return False
    return values.size > 0 and bool((values == values.reshape(-1)[0]).all())


def writes_zero_mean(norm: Normalization, constants: Constants) -> bool:
    """Whether the result of a LayerNorm has mean zero once its bias has."""
    if norm.permutation is not None or not uniform(norm.scale):
        return False
    bias = norm.bias
    if bias is None:
        return True
    if bias.tensor is None or not can_be_edited(bias.tensor, constants):
        return False
    return bias_place(norm) is not None and _spans_channels(norm, bias)


def _spans_channels(norm: Normalization, bias: Parameter) -> bool:
    """Whether a bias has an element for each channel."""
    if norm.axes is None or bias.shape is None or norm.x.shape is None:
        return False
    return all(bias.shape[axis] == norm.x.shape[axis] for axis in norm.axes)


def bias_place(norm: Normalization) -> tuple[Node, int] | None:
    """Give the node that adds the bias of a norm last of all, and the position of the bias."""
    node = norm.y.producer
    if node is None or norm.bias is None or not (node.is_standard or norm.is_op):
        return None
    places = [k for k, tensor in enumerate(node.inputs) if tensor is norm.bias.tensor]
    if len(places) != 1 or node is not norm.nodes[-1]:
        return None
    if norm.is_op:
        return (node, places[0]) if places == [_BIASES.get(norm.op_type or "")] else None
    return (node, places[0]) if node.op == "Add" else None


def is_zero_mean(values: Array, axes: range) -> bool:
    """Whether the mean over the axes is zero, but for what rounding the values leaves of it.

    Values are looked at in pieces: most large weights are found out by their first rows.
    """
    if not values.size:
        return True
    most = max(abs(float(values.max())), abs(float(values.min())))
    if not np.isfinite(most):
        return False
    width = np.prod([values.shape[axis] for axis in axes])
    if values.dtype in {np.dtype(np.float32), np.dtype(np.float64)}:
        limit = 4 * np.finfo(np.float32).eps * np.sqrt(width) * most
    else:
        epsilon = 2.0**-10 if values.dtype == np.dtype(np.float16) else 2.0**-7
        limit = 4 * epsilon / np.sqrt(width) * most
    return all(
        bool(np.abs(piece.mean(axis=tuple(axes), dtype=np.float64)).max() <= limit)
        for piece in _pieces(values, axes)
    )


def _pieces(values: Array, axes: range) -> Iterator[Array]:
    """Cut values along an axis of which the means do not depend on each other."""
    free = [axis for axis in range(values.ndim) if axis not in axes]
    if not free or values.size <= _PIECE:
        yield values
        return
    axis = max(free, key=lambda a: values.shape[a])
    rows = max(1, _PIECE * values.shape[axis] // values.size)
    for start in range(0, values.shape[axis], rows):
        yield values[(*(slice(None),) * axis, slice(start, start + rows))]
