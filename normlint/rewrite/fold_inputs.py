"""Forward: a scale and shift of what a linear operator reads go into its weights.

With s the scale and t the shift of each channel of x: W (s x + t) + b = (W diag s) x + (b + W t).
The shift must reach every place where a weight is used: a convolution that pads with zeros does not
see it at its borders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.batch_norms import epsilon_of
from normlint.context.linear import Blocked
from normlint.rewrite.affine import is_per_channel
from normlint.rewrite.fold_maps import (
    bias_map,
    bytes_of,
    everywhere,
    made_by,
    reach,
    refusal,
    shift_of_taps,
)
from normlint.rewrite.fold_outputs import added, has_activation, moved, rebuilt
from normlint.rewrite.fold_products import gemm, matmul
from normlint.rewrite.fold_quantized import behind_dequantize
from normlint.rewrite.fold_use import Absorbed, Use, scaled_weight
from normlint.rewrite.fold_weights import Scaled, check_shift, computed, type_of, vector
from normlint.rule import NewNode, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Tensor
    from normlint.rewrite.fold_maps import Reach
    from normlint.rule import Computed, Operand

    Array = np.ndarray[Any, Any]


def scale_inputs(use: Use) -> Absorbed | None:
    """Describe the node that computes the same from the tensor without scale and shift.

    None where the node is not linear. Raises Blocked where it is and cannot take it up.
    """
    node = use.node
    absorber = _ABSORBERS.get(("" if node.is_standard else node.domain, node.op))
    return None if absorber is None else absorber(use)


def _conv(use: Use) -> Absorbed | None:
    node, affine = use.node, use.affine
    if use.position != 0:
        return None
    if use.axis != 1:
        raise moved(node, f"its channels are not those of {node.op}")
    weight = use.weights.require(node.input(1), node)
    shape = use.weights.shape(weight)
    groups = int(node.attrs.get("group", 1))
    if behind_dequantize(weight) is not None:
        raise Blocked(
            Reason.QUANTIZED_BETWEEN, node, f"the weight of {node.op} is quantised for each output"
        )
    if shape[1] * groups != affine.channels:
        raise Blocked(Reason.BROADCAST, node, f"{node.op} reads {shape[1] * groups} channels")
    view = (groups, shape[0] // groups, *shape[1:])
    factor = affine.scale.reshape(groups, 1, shape[1], *(1,) * (len(shape) - 2))
    scaled = Scaled(weight, use.weights, factor, view, type_of(node, weight))
    if scaled.is_same:
        return _with_shift(use, weight, view, weight)
    scaled.check(node)
    return _with_shift(use, weight, view, scaled.constant())


def _with_shift(use: Use, weight: Tensor, view: tuple[int, ...], scaled: Operand) -> Absorbed:
    """Let a convolution take up the shift: as a bias, behind a Pad, or as a constant image."""
    node, affine = use.node, use.affine
    inputs: dict[int, Operand] = {0: use.source, 1: scaled}
    if not affine.has_shift:
        return Absorbed((node.y,), rebuilt(node, inputs), (node,))
    kernel = view[3:]
    found = reach(node, use.source, kernel)
    if found is not None and found.is_uniform:
        inputs[2] = _conv_bias(use, weight, view, found)
        return Absorbed((node.y,), rebuilt(node, inputs), (node,))
    padding = None if node.op == "ConvTranspose" else _padding(use)
    if padding is not None:
        inputs |= {0: padding, 2: _conv_bias(use, weight, view, everywhere(kernel))}
        recipe = rebuilt(node, inputs, {"pads": [0] * (2 * len(kernel))})
        return Absorbed((node.y,), recipe, (node,), added=1)
    if has_activation(node):
        found = None
    if found is None or not use.weights.bias_maps:
        raise refusal(node, found, made_by(node, view), type_of(node, weight))
    image = bias_map(use, weight, view, found)
    recipe = added(node, rebuilt(node, inputs), image)
    return Absorbed((node.y,), recipe, (node,), added=1, map_bytes=bytes_of(image))


def _padding(use: Use) -> NewNode | None:
    """Give a Pad whose value stands for the shift of every channel, if there is such a value."""
    node, affine = use.node, use.affine
    pads = [int(pad) for pad in node.attrs.get("pads", ())]
    rank = use.source.rank or node.y.rank
    automatic = node.attrs.get("auto_pad", "NOTSET") != "NOTSET"
    if automatic or rank is None or rank - 2 != len(pads) // 2 or min(pads, default=-1) < 0:
        return None
    try:
        value = affine.pad_after(0.0, node)
    except Blocked:
        return None
    half = len(pads) // 2
    full = [0, 0, *pads[:half], 0, 0, *pads[half:]]
    dtype = type_of(node, use.source)
    check_shift(np.asarray(value), dtype, node)
    if node.graph.opset < 11:
        attrs = {"mode": "constant", "pads": full, "value": value}
        return NewNode("Pad", (use.source,), attrs)
    amounts = vector(np.asarray(full), 7, f"{node.y.name}_pads")
    constant = vector(np.asarray(value), dtype, f"{node.y.name}_value")
    return NewNode("Pad", (use.source, amounts, constant), {"mode": "constant"})


def _conv_bias(use: Use, weight: Tensor, view: tuple[int, ...], found: Reach) -> Computed:
    """Give b + the sum over channels and taps that are reached of W t."""
    node, weights = use.node, use.weights
    bias = node.input(2)
    known = None if bias is None else weights.require(bias, node)
    sums, made = shift_of_taps(use, weight, view), made_by(node, view)

    def compute() -> Array:
        moved_by = found.summed(sums()).reshape(made)
        return moved_by if known is None else moved_by + weights.values(known)

    dtype = type_of(node, weight if known is None else known)
    name = f"{node.y.name}_bias" if known is None else known.name
    return computed((made,), dtype, compute, name, node)


def _conv_transpose(use: Use) -> Absorbed | None:
    node = use.node
    if use.position != 0:
        return None
    if use.axis != 1:
        raise moved(node, f"its channels are not those of {node.op}")
    weight = use.weights.require(node.input(1), node)
    shape = use.weights.shape(weight)
    groups = int(node.attrs.get("group", 1))
    view = (groups, shape[0] // groups, *shape[1:])
    return _with_shift(use, weight, view, scaled_weight(use, 1, 0, shape))


def _recurrent(use: Use) -> Absorbed | None:
    """Take up what is read as X [.., .., input]: W [directions, gates * hidden, input]."""
    node, weights = use.node, use.weights
    if use.position != 0:
        return None
    if use.axis != 2:
        raise moved(node, f"its channels are not the features that {node.op} reads")
    weight = weights.require(node.input(1), node)
    shape = weights.shape(weight)
    inputs: dict[int, Operand] = {0: use.source, 1: scaled_weight(use, 1, 2, shape)}
    if use.affine.has_shift:
        inputs[3] = _recurrent_bias(use, weight, shape)
    tensors = tuple(tensor if tensor.name else None for tensor in node.outputs)
    return Absorbed(tensors, rebuilt(node, inputs), (node,))


def _recurrent_bias(use: Use, weight: Tensor, shape: tuple[int, ...]) -> Computed:
    node, weights = use.node, use.weights
    bias = node.input(3)
    known = None if bias is None else weights.require(bias, node)
    directions, gates = shape[:2]

    def compute() -> Array:
        new = np.zeros((directions, 2 * gates)) if known is None else weights.values(known).copy()
        new[:, :gates] += weights.values(weight) @ use.affine.shift
        return new

    name = f"{node.name or node.op}_bias" if known is None else known.name
    return computed((directions, 2 * gates), type_of(node, weight), compute, name, node)


def _batch_norm(use: Use) -> Absorbed | None:
    """Take up k (s x + t - mean) + bias, where k is the factor of a BatchNormalization."""
    node, affine, weights = use.node, use.affine, use.weights
    if use.position != 0 or use.axis != 1 or not is_per_channel(node):
        return None
    scale, bias, mean, variance = (weights.vector(node.input(k), node) for k in range(1, 5))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon_of(node))
        new_bias = bias + factor * (affine.shift + (affine.scale - 1) * mean)
    new_scale = scale * affine.scale
    for values, position in ((new_scale, 1), (new_bias, 2)):
        check_shift(values, type_of(node, node.inputs[position]), node)
    inputs: dict[int, Operand] = {
        0: use.source,
        1: vector(new_scale, type_of(node, node.inputs[1]), node.inputs[1].name),
        2: vector(new_bias, type_of(node, node.inputs[2]), node.inputs[2].name),
    }
    return Absorbed((node.y,), rebuilt(node, inputs), (node,))


_MICROSOFT = "com.microsoft"
_ABSORBERS: dict[tuple[str, str], Callable[[Use], Absorbed | None]] = {
    ("", "Conv"): _conv,
    (_MICROSOFT, "FusedConv"): _conv,
    ("", "ConvTranspose"): _conv_transpose,
    ("", "Gemm"): gemm,
    (_MICROSOFT, "FusedGemm"): gemm,
    ("", "MatMul"): matmul,
    (_MICROSOFT, "FusedMatMul"): matmul,
    ("", "LSTM"): _recurrent,
    ("", "GRU"): _recurrent,
    ("", "RNN"): _recurrent,
    ("", "BatchNormalization"): _batch_norm,
}
