"""BatchNorm in disguise: one that is another normalisation, and one that is spelled out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, numpy_helper

from normlint.graph import FLOATS
from normlint.normalization import Form, Kind, Normalization, Parameter
from normlint.recognise.channels import (
    Channels,
    Step,
    Tail,
    Trailing,
    downstream,
    reshaped_around,
)
from normlint.recognise.extents import above, brings_back, extents_of, reshaped
from normlint.recognise.fused import quantized
from normlint.recognise.groups import in_order, of_shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.recognise.extents import Extent

    Array = np.ndarray[Any, Any]

_ROOTS = frozenset(("Sqrt", "Pow"))
_RELABELS = frozenset(("Reshape", "Unsqueeze", "Expand", "Cast", "CastLike", "Identity"))
_FAR = 24


def batch_norms(
    graph: Graph, constants: Constants, norms: list[Normalization]
) -> list[Normalization]:
    """Put right what BatchNormalization hides, and add the BatchNorms that are spelled out.

    A batch of one, made by a Reshape, whose channels are the rows of x, is a LayerNorm or an
    InstanceNorm of x. A chain x * s + t is a BatchNorm where the graph itself computes s from a
    variance, or where mean, deviation, scale and bias are four constants; scale and bias of the
    fact are then s and t.
    """
    found = [_unmasked(norm, constants) or norm for norm in norms]
    taken = {node for norm in found for node in norm.nodes}
    for scope in graph.scopes():
        for node in scope.nodes:
            if node.op in {"Mul", "Div"} and node not in taken:
                norm = _spelled(node, constants)
                if norm is not None and taken.isdisjoint(norm.nodes):
                    taken.update(norm.nodes)
                    found.append(norm)
    return found


def _unmasked(norm: Normalization, constants: Constants) -> Normalization | None:
    """Read Reshape [1, rows, ...], BatchNormalization with batch statistics, Reshape back."""
    if norm.op_type != "BatchNormalization" or not norm.training:
        return None
    around = reshaped_around(norm)
    if around is None or not _is_plain(norm.anchor, constants):
        return None
    made, given = reshaped(around.before, constants), extents_of(around.x, constants)
    if made is None or given is None or made[0] != 1:
        return None
    count = _normalised(made, given)
    if count is None or not brings_back(around.after, around.x, constants):
        return None
    kind, tail = _kind(given, count, around.after.y, constants)
    shapes = [*of_shape(around.before, constants), *of_shape(around.after, constants)]
    return replace(
        norm,
        kind=kind,
        form=Form.DECOMPOSED,
        nodes=in_order(
            [around.before, *around.between, *norm.nodes, around.after, *tail.nodes, *shapes]
        ),
        x=around.x,
        y=tail.y,
        axes=tuple(range(-count, 0)),
        scale=_aligned(tail.scale, len(given)),
        bias=_aligned(tail.bias, len(given)),
        op_type=None,
        quantized=quantized(around.x, tail.y),
        steps={"batch": norm.anchor, "split": around.before, "join": around.after},
        constant=constants.is_constant(around.x),
    )


def _is_plain(node: Node, constants: Constants) -> bool:
    """Whether the scale of a BatchNormalization is one and its bias zero."""
    return _is_everywhere(node.inputs[1], 1.0, constants) and _is_everywhere(
        node.inputs[2], 0.0, constants
    )


def _normalised(made: tuple[Extent, ...], given: tuple[Extent, ...]) -> int | None:
    """Give how many last axes of x the statistics are taken over; None where that is not known."""
    rest = tuple(extent for extent in made[2:] if extent != 1)
    if not rest or None in rest:
        return None
    for count in range(1, len(given)):
        last = tuple(extent for extent in given[-count:] if extent != 1)
        if last == rest:
            return count
        sizes = [extent for extent in (*last, *rest) if isinstance(extent, int)]
        if len(sizes) == len(last) + len(rest) and math.prod(sizes[: len(last)]) == math.prod(
            sizes[len(last) :]
        ):
            return count
    return None


def _kind(
    given: tuple[Extent, ...], count: int, y: Tensor, constants: Constants
) -> tuple[Kind, Tail]:
    """Tell LayerNorm from InstanceNorm by what scale and bias run along."""
    rank = len(given)
    channels = given[1] if isinstance(given[1], int) else None
    if count == rank - 2:
        tail = Channels(constants, rank, channels).affine_after(y)
        if rank > 3 or tail.nodes:
            return Kind.INSTANCE, tail
    extents = tuple(extent if isinstance(extent, int) else -1 for extent in given[-count:])
    return Kind.LAYER, Trailing(constants, extents).affine_after(y)


def _aligned(step: Step | None, rank: int) -> Parameter | None:
    if step is None:
        return None
    lead = rank - len(step.shape)
    shape = (*(1,) * lead, *step.shape) if lead >= 0 else step.shape[-lead:]
    return Parameter(
        shape,
        (step.operand,),
        (lambda: step.values().reshape(shape)) if step.is_constant else None,
        step.operand if step.is_plain else None,
    )


def _is_everywhere(tensor: Tensor, value: float, constants: Constants) -> bool:
    """Whether a tensor has one value, also where its extents are known at run time only."""
    for node in above(tensor):
        if constants.is_constant(tensor):
            break
        if node.op == "ConstantOfShape":
            filled = node.attrs.get("value")
            if not isinstance(filled, AttributeProto):
                return value == 0.0
            return bool((numpy_helper.to_array(filled.t) == value).all())
        if node.op not in _RELABELS | {"Tile"}:
            return False
        tensor = node.inputs[0]
    return constants.uniform(tensor) == value


def _spelled(node: Node, constants: Constants) -> Normalization | None:
    """Read a BatchNorm with constant statistics around the multiplication by its factor."""
    for data in node.inputs[:1] if node.op == "Div" else node.inputs:
        if constants.is_constant(data) or not {data.dtype, node.y.dtype} & FLOATS:
            continue
        shape = data.shape or node.y.shape
        if shape is None or len(shape) < 2:
            continue
        channels = shape[1] if isinstance(shape[1], int) else None
        along = Channels(constants, len(shape), channels)
        factor = along.step(node, data)
        if factor is None or not factor.is_constant or factor.size < 2:
            continue
        return _chain(node, data, factor, along)
    return None


def _chain(node: Node, data: Tensor, factor: Step, along: Channels) -> Normalization | None:
    constants = along.constants
    root = _root_of_variance(factor.operand, constants)
    mean = None
    above = data.producer
    if above is not None and above.op == "Sub" and downstream(data)[1] is node:
        mean = along.step(above, above.inputs[0])
    tail = along.affine_after(node.y)
    complete = node.op == "Div" and mean is not None and tail.scale is not None
    if tail.bias is None or not (root is not None or complete):
        return None
    x = data if mean is None else mean.node.inputs[0]
    nodes = [node, *tail.nodes] if mean is None else [mean.node, node, *tail.nodes]
    rank = along.rank or 0
    scale, bias = _total(factor, mean, tail, rank)
    return Normalization(
        kind=Kind.BATCH,
        form=Form.DECOMPOSED,
        nodes=in_order(nodes),
        x=x,
        y=tail.y,
        axes=None,
        epsilon=0.0 if root is None else _epsilon(root, constants),
        scale=scale,
        bias=bias,
        dtype=x.dtype,
        statistics_dtype=x.dtype,
        quantized=quantized(x, tail.y),
        steps={"factor": node} if root is None else {"factor": node, "root": root},
    )


def _total(factor: Step, mean: Step | None, tail: Tail, rank: int) -> tuple[Parameter, Parameter]:
    """Give the factor and the shift of x as a whole: y = scale * x + bias."""
    scales = [step for step in (factor, tail.scale) if step is not None]
    shifts = [step for step in (mean, tail.bias) if step is not None]
    size = max(step.size for step in (*scales, *shifts))
    shape = (1, size, *(1,) * (rank - 2))

    def scale() -> Array:
        product = np.ones(size)
        for step in scales:
            product = product * step.values()
        return product.reshape(shape)

    def bias() -> Array:
        shift = np.zeros(size) if mean is None else mean.values() * scale().reshape(-1)
        return (shift + (0.0 if tail.bias is None else tail.bias.values())).reshape(shape)

    known = all(step.is_constant for step in (*scales, *shifts))
    return (
        Parameter(shape, tuple(s.operand for s in scales), scale if known else None),
        Parameter(shape, tuple(s.operand for s in (*scales, *shifts)), bias if known else None),
    )


def _root_of_variance(tensor: Tensor, constants: Constants) -> Node | None:
    """Find the root that a factor is computed with, where the graph computes it from constants."""
    for node in _upstream(tensor):
        if node.op == "Sqrt":
            return node
        if node.op == "Pow" and len(node.inputs) == 2:
            exponent = constants.scalar(node.inputs[1])
            if exponent in {0.5, -0.5}:
                return node
    return None


def _epsilon(root: Node, constants: Constants) -> float:
    for node in _upstream(root.inputs[0]):
        if node.op == "Add":
            values = [constants.uniform(tensor) for tensor in node.inputs]
            known = [value for value in values if value is not None]
            if known:
                return min(known)
    return 0.0


def _upstream(tensor: Tensor) -> Iterable[Node]:
    seen: set[Node] = set()
    pending = [tensor]
    while pending and len(seen) < _FAR:
        node = pending.pop().producer
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        pending.extend(source for source in node.inputs if source.name)
