"""Readers to which it makes no difference what is added to all channels of a token alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.context.zero_mean_sites import Site, site
from normlint.context.zero_mean_steps import reduced_axes
from normlint.normalization import EMBED_LAYER_NORM, SKIP_LAYER_NORM, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization

_OPS = (None, "LayerNormalization", SKIP_LAYER_NORM, EMBED_LAYER_NORM)
"""Operators that subtract a mean; the last two do so from a sum that they compute first."""
_ADDING = frozenset(op.rpartition(":")[2] for op in (SKIP_LAYER_NORM, EMBED_LAYER_NORM))
_SOFTMAX = frozenset(("Softmax", "LogSoftmax", "Hardmax"))
_EXTREME = frozenset(("ArgMax", "ArgMin"))
_SHAPE_ONLY = frozenset(("Shape", "Size"))
_PER_AXIS = 13
"""The opset from which on a softmax runs over one axis, not over all from one on."""


def norm_site(norm: Normalization) -> Site | None:
    """Give the site whose mean a LayerNorm subtracts."""
    if norm.kind is not Kind.LAYER or not norm.centred or norm.axes is None:
        return None
    if norm.op_type not in _OPS or norm.quantized == "inside":
        return None
    return site(norm.normalised, norm.axes)


class Readers:
    """Which readers of a tensor are indifferent to a shift of its channels."""

    def __init__(self, norms: Iterable[Normalization], constants: Constants) -> None:
        self._constants = constants
        self._parts: dict[Node, _Cluster] = {}
        clusters: dict[Site, _Cluster] = {}
        for norm in norms:
            at = norm_site(norm)
            if at is None:
                continue
            cluster = clusters.setdefault(at, _Cluster(at))
            cluster.add(norm)
            for node in norm.nodes:
                self._parts.setdefault(node, cluster)

    def sum_of(self, node: Node) -> Site | None:
        """Give the sum that a skip norm computes and normalises, where nothing else leaves it."""
        cluster = self._parts.get(node)
        if cluster is None or node.op not in _ADDING or not cluster.is_closed:
            return None
        return cluster.at if cluster.at.tensor.producer is node else None

    def is_indifferent(self, node: Node, at: Site) -> bool:
        """Whether a node that reads a tensor gives the same for every shift of its channels."""
        cluster = self._parts.get(node)
        if cluster is not None and cluster.is_closed and cluster.normalises(at):
            return True
        return node.is_standard and self._is_indifferent_operator(node, at)

    def _is_indifferent_operator(self, node: Node, at: Site) -> bool:
        if node.op in _SOFTMAX or node.op in _EXTREME:
            return self._over_channels(node, at)
        if node.op == "ReduceMean":
            return self._is_mean(node, at) and _only_subtracted(node, at.tensor)
        if node.op == "Sub":
            return self.centres(node, at.tensor, at)
        if node.op == "CastLike":
            return node.inputs[0] is not at.tensor
        return node.op in _SHAPE_ONLY or self._sums_to_zero(node, at)

    def centres(self, node: Node, x: Tensor, at: Site) -> bool:
        """Whether a node subtracts from x its own mean over channels of the site."""
        if node.op != "Sub" or node.inputs[0] is not x or node.inputs[1] is x:
            return False
        mean = node.inputs[1].producer
        return mean is not None and mean.inputs[0] is x and self._is_mean(mean, at)

    def centred_site(self, node: Node) -> Site | None:
        """Give the site of x that a node centres, where it subtracts from x its own mean."""
        if node.op != "Sub" or not node.is_standard:
            return None
        mean = node.inputs[1].producer
        if mean is None or mean.op != "ReduceMean" or mean.inputs[0] is not node.inputs[0]:
            return None
        axes = reduced_axes(mean, self._constants)
        at = site(node.inputs[0], axes) if axes else None
        return at if at is not None and self.centres(node, node.inputs[0], at) else None

    def _is_mean(self, node: Node, at: Site) -> bool:
        if node.op != "ReduceMean" or not node.is_standard or not node.attrs.get("keepdims", 1):
            return False
        axes = reduced_axes(node, self._constants)
        if not axes:
            return False
        rank = len(at.shape)
        reduced = {axis % rank for axis in axes if at.shape[axis % rank] != 1}
        return bool(reduced) and reduced <= set(at.axes)

    def _over_channels(self, node: Node, at: Site) -> bool:
        rank = len(at.shape)
        if node.op in _EXTREME:
            return node.attrs.get("axis", 0) % rank in at.axes
        if node.graph.opset >= _PER_AXIS:
            return node.attrs.get("axis", -1) % rank in at.axes
        return set(range(node.attrs.get("axis", 1) % rank, rank)) <= set(at.axes)

    def _sums_to_zero(self, node: Node, at: Site) -> bool:
        """Whether the weights of a linear node sum to zero over the channels: a shift vanishes."""
        if at.first != at.last or not at.is_last or node.op not in {"MatMul", "Gemm"}:
            return False
        if node.inputs[0] is not at.tensor or node.inputs[1] is at.tensor:
            return False
        if node.op == "Gemm" and (node.attrs.get("transA", 0) or node.input(2) is at.tensor):
            return False
        weight = node.inputs[1]
        if not self._constants.is_constant(weight) or len(weight.shape or ()) < 2:
            return False
        axis = -1 if node.op == "Gemm" and node.attrs.get("transB", 0) else -2
        # Large weights are not read: a check may not cost more for them, and none sums to zero.
        values = self._constants.known(weight)
        return values is not None and _is_zero_mean(values, axis)


def _is_zero_mean(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], axis: int) -> bool:
    wide = values.astype(np.float64)
    most = float(np.abs(wide).max(initial=0.0))
    sums = float(np.abs(wide.sum(axis=axis)).max(initial=0.0))
    return bool(sums <= 4 * np.finfo(np.float32).eps * np.sqrt(wide.shape[axis]) * most)


def _only_subtracted(mean: Node, x: Tensor) -> bool:
    """Whether nothing else is done with a mean than to subtract it from x."""
    tensor = mean.outputs[0]
    return not tensor.is_output and all(
        reader.op == "Sub"
        and reader.is_standard
        and reader.inputs[0] is x
        and reader.inputs[1] is tensor
        for reader in tensor.consumers
    )


class _Cluster:
    """The nodes of all LayerNorms of one tensor, which may share some."""

    def __init__(self, at: Site) -> None:
        self.at = at
        self._nodes: set[Node] = set()
        self._results: set[Tensor] = set()
        self._parameters: set[Tensor] = set()
        self._computed: set[Node] = set()
        """Nodes that compute a scale or bias at run time, perhaps from x."""
        self._closed: bool | None = None

    def normalises(self, at: Site) -> bool:
        """Whether x is normalised over channels of the site, along which a shift is the same."""
        own = self.at
        return own.tensor is at.tensor and at.first <= own.first and own.last <= at.last

    def add(self, norm: Normalization) -> None:
        self._nodes.update(norm.nodes)
        self._results.add(norm.y)
        for parameter in (norm.scale, norm.bias):
            if parameter is None:
                continue
            self._parameters.update(parameter.tensors)
            if not parameter.is_constant:
                self._computed.update(t.producer for t in parameter.tensors if t.producer)

    @property
    def is_closed(self) -> bool:
        """Whether nothing leaves it but the results, and x enters as what is normalised only."""
        if self._closed is None:
            self._closed = (
                self.at.tensor not in self._parameters
                and self._nodes.isdisjoint(self._computed)
                and all(
                    self._is_inside(tensor)
                    for node in self._nodes
                    for tensor in node.outputs
                    if tensor.name and tensor not in self._results and tensor is not self.at.tensor
                )
            )
        return self._closed

    def _is_inside(self, tensor: Tensor) -> bool:
        return not tensor.is_output and all(node in self._nodes for node in tensor.consumers)
