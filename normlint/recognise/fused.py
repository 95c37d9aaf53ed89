"""Normalisations that one operator computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.normalization import Form, Kind, Normalization
from normlint.recognise.extents import above
from normlint.recognise.parameter import Aligner

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import Parameter

    Reader = Callable[["_Operator"], Normalization | None]

_MICROSOFT = "com.microsoft"
_LAYOUT = frozenset(("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast"))
_FAR = 64
"""Nodes to search upstream for what statistics are computed from."""


def fused_norms(graph: Graph, constants: Constants) -> list[Normalization]:
    """Give the normalisations of a graph and its subgraphs that are single operators.

    Operators of com.microsoft are taken in ai.onnx as well: ONNX Runtime itself writes
    SimplifiedLayerNormalization there. Those of constants alone have `constant` set.
    """
    return [
        norm
        for scope in graph.scopes()
        for node in scope.nodes
        if node.op in _READERS and (norm := _read(node, constants)) is not None
    ]


def _read(node: Node, constants: Constants) -> Normalization | None:
    if not node.is_standard and node.domain != _MICROSOFT:
        return None
    if node.input(0) is None or node.output(0) is None:
        return None
    return _READERS[node.op](_Operator(node, constants))


class _Operator:
    """A node with what its reader asks for."""

    def __init__(self, node: Node, constants: Constants) -> None:
        self.node = node
        self.constants = constants
        self.x = node.inputs[0]
        self.rank = node.y.rank if self.x.rank is None else self.x.rank
        self.align = Aligner(constants, self.rank)

    @property
    def channels(self) -> int | None:
        """Extent of axis 1."""
        shape = self.x.shape
        extent = shape[1] if shape is not None and len(shape) > 1 else None
        return extent if isinstance(extent, int) else None

    def integer(self, name: str, default: int) -> int:
        value = self.node.attrs.get(name, default)
        return value if isinstance(value, int) else default

    def from_axis(self, start: int) -> tuple[int, ...] | None:
        """Give the axes from one on; None where it counts from the front of an unknown rank."""
        if start < 0:
            return tuple(range(start, 0))
        return None if self.rank is None else tuple(range(start - self.rank, 0))

    def make(
        self,
        kind: Kind,
        axes: tuple[int, ...] | None,
        scale: Parameter | None = None,
        bias: Parameter | None = None,
        *,
        epsilon: float = 1e-5,
        statistics_dtype: int | None = None,
        centred: bool = True,
        one_pass: bool = False,
        training: bool = False,
        groups: int | None = None,
        channels_last: bool = False,
    ) -> Normalization:
        node = self.node
        value = node.attrs.get("epsilon", epsilon)
        dtype = self.x.dtype or node.y.dtype
        if not dtype and scale is not None and scale.tensors:
            dtype = scale.tensors[0].dtype
        return Normalization(
            kind=kind,
            form=Form.OP,
            nodes=(node,),
            x=self.x,
            y=node.y,
            axes=axes,
            epsilon=float(value) if isinstance(value, (int, float)) else epsilon,
            scale=scale,
            bias=bias,
            op_type=node.op if node.is_standard else f"{node.domain}::{node.op}",
            groups=groups,
            channels_last=channels_last,
            dtype=dtype,
            statistics_dtype=statistics_dtype or dtype,
            centred=centred,
            one_pass=one_pass,
            training=training,
            quantized=quantized(self.x, node.y),
            constant=all(self.constants.is_constant(t) for t in node.inputs if t.name),
        )


def quantized(x: Tensor, y: Tensor) -> str:
    """Tell where Q/DQ pairs stand at a normalisation: none, input, output or both."""
    producer = x.producer
    before = producer is not None and producer.op == "DequantizeLinear"
    after = bool(y.consumers) and all(reader.op == "QuantizeLinear" for reader in y.consumers)
    if before and after:
        return "both"
    if before:
        return "input"
    return "output" if after else "none"


def _batch(op: _Operator) -> Normalization | None:
    if any(op.node.input(index) is None for index in range(1, 5)):
        return None
    training = has_batch_statistics(op.node)
    axes = None
    if training and op.rank is not None:
        axes = tuple(axis - op.rank for axis in range(op.rank) if axis != 1)
    return op.make(
        Kind.BATCH,
        axes,
        op.align.channels(op.node.input(1)),
        op.align.channels(op.node.input(2)),
        training=training,
    )


def has_batch_statistics(node: Node) -> bool:
    """Whether a BatchNormalization normalises with the statistics of what it reads."""
    return is_training(node) or statistics_of(node) is not None


def is_training(node: Node) -> bool:
    """Whether a BatchNormalization is in its training form.

    Before opset 14 that is the form with more than one output, be they read or not.
    """
    opset = node.graph.opset
    if opset >= 14:
        return bool(node.attrs.get("training_mode", 0))
    if opset < 7 and node.attrs.get("is_test", 0):
        return False
    return any(tensor.name for tensor in node.outputs[1:])


def statistics_of(node: Node) -> set[Node] | None:
    """Give the nodes that compute a BatchNormalization's mean and variance from its own input.

    None where its statistics do not come from there. Only values count: extents that are taken
    from the input (Shape) are no statistics.
    """
    roots: set[Tensor] = {node.inputs[0]}
    for producer in above(node.inputs[0]):
        if producer.op not in _LAYOUT or not producer.inputs:
            break
        roots.add(producer.inputs[0])
    found: set[Node] = set()
    for statistic in node.inputs[3:5]:
        between = _between(statistic, roots)
        if between is None:
            return None
        found |= between
    return found


def _between(tensor: Tensor, roots: set[Tensor]) -> set[Node] | None:
    """Give the nodes upstream of a tensor as far as the roots; None where no root is near."""
    seen: set[Node] = set()
    reached = False
    pending = [tensor]
    while pending and len(seen) < _FAR:
        current = pending.pop()
        if current in roots:
            reached = True
            continue
        producer = current.producer
        if producer is None or producer in seen or producer.op in {"Shape", "Size"}:
            continue
        seen.add(producer)
        pending.extend(source for source in producer.inputs if source.name)
    return seen if reached else None


def _layer(op: _Operator) -> Normalization:
    return op.make(
        Kind.LAYER,
        op.from_axis(op.integer("axis", -1)),
        op.align.trailing(op.node.input(1)),
        op.align.trailing(op.node.input(2)),
        statistics_dtype=op.integer("stash_type", 1),
    )


def _rms(op: _Operator) -> Normalization:
    return op.make(
        Kind.RMS,
        op.from_axis(op.integer("axis", -1)),
        op.align.trailing(op.node.input(1)),
        statistics_dtype=op.integer("stash_type", 1),
        centred=False,
    )


def _skip_layer(op: _Operator) -> Normalization:
    return op.make(
        Kind.LAYER,
        (-1,),
        op.align.trailing(op.node.input(2)),
        op.align.trailing(op.node.input(3)),
        epsilon=1e-12,
    )


def _skip_rms(op: _Operator) -> Normalization:
    return op.make(
        Kind.RMS, (-1,), op.align.trailing(op.node.input(2)), epsilon=1e-12, centred=False
    )


def _embed_layer(op: _Operator) -> Normalization:
    """Read an EmbedLayerNormalization: x is the sum of embeddings, or the ids that choose them."""
    summed = op.node.output(2)
    if summed is not None:
        op.x = summed
    scale = op.node.input(5)
    dtype = scale.dtype if scale is not None else 0
    op.align = Aligner(op.constants, 3)
    return op.make(
        Kind.LAYER,
        (-1,),
        op.align.trailing(scale),
        op.align.trailing(op.node.input(6)),
        epsilon=1e-12,
        statistics_dtype=dtype or None,
    )


def _instance(op: _Operator) -> Normalization:
    return op.make(
        Kind.INSTANCE,
        op.from_axis(2) if op.rank is not None else None,
        op.align.channels(op.node.input(1)),
        op.align.channels(op.node.input(2)),
    )


def _group(op: _Operator) -> Normalization:
    return op.make(
        Kind.GROUP,
        op.from_axis(1),
        op.align.channels(op.node.input(1), 1, op.channels),
        op.align.channels(op.node.input(2), 1, op.channels),
        statistics_dtype=op.integer("stash_type", 1) if op.node.graph.opset >= 21 else None,
        groups=op.integer("num_groups", 1),
    )


def _microsoft_group(op: _Operator) -> Normalization:
    last = bool(op.integer("channels_last", 1)) and op.rank is not None
    axis = (op.rank or 1) - 1 if last else 1
    return op.make(
        Kind.GROUP,
        op.from_axis(1),
        op.align.channels(op.node.input(1), axis),
        op.align.channels(op.node.input(2), axis),
        groups=op.integer("groups", 1),
        channels_last=last,
    )


def _mean_variance(op: _Operator) -> Normalization:
    """Read a MeanVarianceNormalization, which adds 1e-9 to the root: none of the five kinds."""
    axes = op.node.attrs.get("axes", [0, 2, 3])
    if op.node.graph.opset < 9:
        axes = [0, 1, 2, 3] if op.integer("across_channels", 0) else [0, 2, 3]
    negative: tuple[int, ...] | None = None
    if op.rank and isinstance(axes, list):
        negative = tuple(sorted({int(axis) % op.rank - op.rank for axis in axes}))
    return op.make(Kind.OTHER, negative, epsilon=0.0, one_pass=True)


def _lp(op: _Operator) -> Normalization | None:
    if op.integer("p", 2) != 2:
        return None
    axis = op.integer("axis", -1)
    if op.rank:
        axis = axis % op.rank - op.rank
    return op.make(Kind.L2, (axis,) if axis < 0 else None, epsilon=0.0, centred=False)


_READERS: dict[str, Reader] = {
    "BatchNormalization": _batch,
    "LayerNormalization": _layer,
    "RMSNormalization": _rms,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "MeanVarianceNormalization": _mean_variance,
    "LpNormalization": _lp,
    "SimplifiedLayerNormalization": _rms,
    "SkipLayerNormalization": _skip_layer,
    "SkipSimplifiedLayerNormalization": _skip_rms,
    "EmbedLayerNormalization": _embed_layer,
    "GroupNorm": _microsoft_group,
    "SkipGroupNorm": _microsoft_group,
}
