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
from normlint.rewrite.fold_outputs import moved, rebuilt
from normlint.rewrite.fold_products import gemm, matmul
from normlint.rewrite.fold_quantized import behind_dequantize
from normlint.rewrite.fold_use import Absorbed, Use, scaled_weight
from normlint.rewrite.fold_weights import Scaled, check_shift, computed, type_of, vector
from normlint.rule import NewNode, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Tensor
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
    padding = _padding(use, shape[2:])
    if behind_dequantize(weight) is not None:
        raise Blocked(
            Reason.QUANTIZED_BETWEEN, node, f"the weight of {node.op} is quantised for each output"
        )
    if shape[1] * groups != affine.channels:
        raise Blocked(Reason.BROADCAST, node, f"{node.op} reads {shape[1] * groups} channels")
    view = (groups, shape[0] // groups, *shape[1:])
    factor = affine.scale.reshape(groups, 1, shape[1], *(1,) * (len(shape) - 2))
    scaled = Scaled(weight, use.weights, factor, view, type_of(node, weight))
    scaled.check(node)
    inputs: dict[int, Operand] = {0: padding or use.source, 1: scaled.constant()}
    if affine.has_shift:
        inputs[2] = _conv_bias(use, weight, view)
    attrs = {} if padding is None else {"pads": [0] * (2 * (len(shape) - 2))}
    recipe = rebuilt(node, inputs, attrs)
    return Absorbed((node.y,), recipe, (node,), added=int(padding is not None))


def _padding(use: Use, kernel: tuple[int, ...]) -> NewNode | None:
    """Give the Pad that a convolution needs in front of it, if any. Raises Blocked."""
    node, affine = use.node, use.affine
    auto = node.attrs.get("auto_pad", "NOTSET")
    pads = [int(pad) for pad in node.attrs.get("pads", ())]
    if not affine.has_shift or auto == "VALID" or (auto == "NOTSET" and not any(pads)):
        return None
    if auto != "NOTSET" and all(extent == 1 for extent in kernel):  # keeps the size without any
        return None
    refusal = Blocked(
        Reason.PADDING, node, f"{node.op} pads with zeros, which the shift does not reach"
    )
    rank = use.source.rank or node.y.rank
    if auto != "NOTSET" or rank is None or rank - 2 != len(pads) // 2 or min(pads) < 0:
        raise refusal
    try:
        value = affine.pad_after(0.0, node)
    except Blocked:
        raise refusal from None
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


def _conv_bias(use: Use, weight: Tensor, view: tuple[int, ...]) -> Computed:
    """Give b + the sum over channels and taps of W t, for each group of channels."""
    node, weights = use.node, use.weights
    groups, made, read = view[:3]
    shift = use.affine.shift.reshape(groups, read)
    bias = node.input(2)
    known = None if bias is None else weights.require(bias, node)

    def compute() -> Array:
        taps = weights.values(weight).reshape(groups, made, read, -1).sum(axis=3)
        moved_by: Array = np.einsum("gor,gr->go", taps, shift).reshape(-1)
        return moved_by if known is None else moved_by + weights.values(known)

    dtype = type_of(node, weight if known is None else known)
    name = f"{node.y.name}_bias" if known is None else known.name
    return computed((groups * made,), dtype, compute, name)


def _conv_transpose(use: Use) -> Absorbed | None:
    node, affine = use.node, use.affine
    if use.position != 0:
        return None
    if use.axis != 1:
        raise moved(node, f"its channels are not those of {node.op}")
    weight = use.weights.require(node.input(1), node)
    if affine.has_shift:
        raise Blocked(
            Reason.PADDING, node, "ConvTranspose sums fewer taps at its borders, so a shift varies"
        )
    new = scaled_weight(use, 1, 0, use.weights.shape(weight))
    return Absorbed((node.y,), rebuilt(node, {0: use.source, 1: new}), (node,))


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
    return computed((directions, 2 * gates), type_of(node, weight), compute, name)


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
