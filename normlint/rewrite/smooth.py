"""Outlier channels of a norm's result move into the weights that read it (SmoothQuant).

Norm · diag(1/s) · diag(s) · W: the scale and bias of the norm are divided by s, and the weights of
every reader multiplied, with s = max|X|^a / max|W|^(1-a) in each channel (Xiao et al. 2022). In
float the function stays the same; in INT8 one range serves all channels, and it is smaller then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.model import ValuesUnavailable
from normlint.rewrite.affine import Affine, Weights
from normlint.rewrite.fold_forward import Forward
from normlint.rewrite.unquantize import clone
from normlint.rule import Applicability, Computed, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization, Parameter

    Array = np.ndarray[Any, Any]

ENOUGH = 1.5
"""Spread of the factors below which nothing is gained."""
_PARAMETERS = {"LayerNormalization", "RMSNormalization", "InstanceNormalization"}
_SINCE_PER_CHANNEL = 21


def affine_of(norm: Normalization) -> tuple[Array, Array] | None:
    """Give scale and bias along the channels, as float64 vectors; None where they are no such."""
    width = _width(norm)
    if width is None:
        return None
    scale, bias = _along(norm.scale, 1.0, width), _along(norm.bias, 0.0, width)
    return None if scale is None or bias is None else (scale, bias)


def _width(norm: Normalization) -> int | None:
    axis = norm.channel_axis
    for parameter in (norm.scale, norm.bias):
        if parameter is not None and parameter.shape is not None and axis is not None:
            return parameter.shape[axis]
    return None


def _along(parameter: Parameter | None, neutral: float, width: int) -> Array | None:
    if parameter is None:
        return np.full(width, neutral)
    if parameter.compute is None:
        return None
    try:
        values = parameter.compute().astype(np.float64).reshape(-1)
    except ValuesUnavailable:
        return None
    return np.broadcast_to(values, (width,)) if values.size in {1, width} else None


def smooth(
    context: Context, norm: Normalization, magnitudes: Array, alpha: float
) -> Rewrite | NotFixed | None:
    """Move outlier channels of a norm into its readers, or say why not; None if it gains nothing.

    `magnitudes` is the largest magnitude of the norm's result in each channel.
    """
    anchor = norm.y.producer
    axis, rank = norm.channel_axis, norm.y.rank
    if anchor is None or axis is None or rank is None or norm.permutation is not None:
        return NotFixed(Reason.SHAPE_UNKNOWN, norm.y, f"the rank of {norm.y.name} is not known")
    weights = Weights(context.constants)
    forward = Forward(anchor, weights)
    try:
        forward.fold(norm.y, axis % rank, Affine.identity(len(magnitudes)))
        factors = _factors(magnitudes, _of_weights(forward.linear, norm, context.constants), alpha)
        if factors.max() / factors.min() < ENOUGH:
            return None
        forward = Forward(anchor, weights)
        affine = Affine(factors, np.zeros_like(factors))
        behind = forward.fold(norm.y, axis % rank, affine)[1:]
    except Blocked as blocked:
        return blocked.not_fixed
    own = _divided(norm, factors)
    if isinstance(own, NotFixed):
        return own
    count = len(forward.linear)
    return Rewrite(
        f"move its outlier channels into the weights of the {count} linear operators behind",
        Applicability.SAFE,
        (*own, *behind),
        tuple(dict.fromkeys((*norm.nodes, *forward.nodes))),
    )


def _factors(magnitudes: Array, of_weights: Array | None, alpha: float) -> Array:
    beside = np.ones_like(magnitudes) if of_weights is None else of_weights
    usable = (magnitudes > 0) & (beside > 0)
    factors = np.ones_like(magnitudes)
    factors[usable] = magnitudes[usable] ** alpha / beside[usable] ** (1 - alpha)
    middle = float(np.exp(np.log(factors[usable]).mean())) if usable.any() else 1.0
    factors[usable] /= middle
    return factors


def _of_weights(readers: list[Node], norm: Normalization, constants: Constants) -> Array | None:
    """Give the largest weight of each channel over all readers that read the norm directly."""
    found: Array | None = None
    for node in readers:
        if node.inputs[0] is not norm.y or not constants.is_constant(node.inputs[1]):
            continue
        axis = _input_axis(node)
        if axis is None:
            continue
        matrix = np.abs(constants.values(node.inputs[1]).astype(np.float64))
        others = tuple(a for a in range(matrix.ndim) if a != axis % matrix.ndim)
        largest = matrix.max(others)
        found = (
            largest if found is None or len(found) != len(largest) else np.maximum(found, largest)
        )
    return found


def _input_axis(node: Node) -> int | None:
    """Give the axis of a reader's weight along which its input channels run."""
    if node.op == "MatMul":
        return -2
    if node.op == "Gemm":
        return 1 if node.attrs.get("transB", 0) else 0
    return 1 if node.op == "Conv" and node.attrs.get("group", 1) == 1 else None


def _divided(norm: Normalization, factors: Array) -> list[Replace] | NotFixed:
    """Divide scale and bias of a norm by the factors."""
    edits: dict[Node, dict[int, Computed]] = {}
    if norm.scale is None:
        return NotFixed(Reason.WEIGHTS_NOT_CONSTANT, norm.anchor, "it has no scale")
    for parameter in (norm.scale, norm.bias):
        if parameter is None:
            continue
        tensor = parameter.tensor
        place = None if tensor is None else _place(norm, tensor)
        if tensor is None or place is None:
            return NotFixed(
                Reason.WEIGHTS_NOT_CONSTANT, norm.anchor, "its scale or bias is no single constant"
            )
        node, at = place
        edits.setdefault(node, {})[at] = _by(tensor, parameter, factors)
    return [
        Replace(tuple(t if t.name else None for t in node.outputs), clone(node, changes))
        for node, changes in edits.items()
    ]


def _place(norm: Normalization, tensor: Tensor) -> tuple[Node, int] | None:
    """Give where a norm reads its scale or bias; None where it does so several times, or not so."""
    places = [
        (node, at)
        for node in norm.nodes
        for at, source in enumerate(node.inputs)
        if source is tensor
    ]
    if len(places) != 1:
        return None
    node = places[0][0]
    grouped = node.op == "GroupNormalization" and node.graph.opset >= _SINCE_PER_CHANNEL
    operator = node.is_standard and (node.op in _PARAMETERS or grouped)
    arithmetic = not norm.is_op and node.op in {"Mul", "Add"}
    return places[0] if operator or arithmetic else None


def _by(tensor: Tensor, parameter: Parameter, factors: Array) -> Computed:
    shape = tuple(extent for extent in tensor.shape or () if isinstance(extent, int))
    if int(np.prod(shape)) != len(factors):
        shape = (*(1,) * (len(shape) - 1), len(factors))
    compute = parameter.compute

    def values() -> Array:
        assert compute is not None  # noqa: S101 - its values were read before
        return (np.broadcast_to(compute().reshape(-1), factors.shape) / factors).reshape(shape)

    return Computed(shape, tensor.dtype, values, tensor.name)
