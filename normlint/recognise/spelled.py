"""Normalisations that are spelled out in arithmetic, found by what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.graph import FLOATS
from normlint.normalization import Form, Normalization
from normlint.recognise.affine import parameter
from normlint.recognise.fused import quantized
from normlint.recognise.kinds import kind_of
from normlint.recognise.likeness import norm_like
from normlint.recognise.near import near_norm
from normlint.recognise.operators import axes_of, is_float_cast
from normlint.recognise.reading import Reading, Scope
from normlint.recognise.steps import REDUCTIONS, is_one_pass, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import Kind, NearNorm
    from normlint.recognise.likeness import Like

_TRANSPARENT = frozenset(
    ("Identity", "Dropout", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")
)
_LAYOUT = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand"))
_WIDTH = {16: 7, 10: 10, 1: 23, 11: 52}
"""Bits of the fraction, by element type: bfloat16, float16, float, double."""


def spelled_norms(graph: Graph, constants: Constants) -> tuple[list[Normalization], list[NearNorm]]:
    """Give the normalisations that several nodes of a graph and its subgraphs compute.

    And what is nearly one.
    """
    norms: list[Normalization] = []
    near: list[NearNorm] = []
    for scope in graph.scopes():
        search = _Search(scope, constants)
        search.run()
        norms.extend(search.norms)
        near.extend(search.near)
    return norms, near


class _Search:
    """The search for normalisations in one graph."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph = graph
        self.constants = constants
        self.scope = Scope(graph, constants)
        self.read: set[tuple[Tensor, frozenset[int]]] = set()
        self.covered: set[Node] = set()
        self.norms: list[Normalization] = []
        self.near: list[NearNorm] = []

    def run(self) -> None:
        for node in self.graph.nodes:
            if node.op not in REDUCTIONS or node in self.covered or not node.is_standard:
                continue
            first: NearNorm | None = None
            for x in self.candidates(node):
                near = self.search(x, self.kept(x, node))
                first = first or near
                if node in self.covered:
                    break
            if first is not None and node not in self.covered:
                self.near.append(first)
                self.covered.update(first.nodes)

    def candidates(self, node: Node) -> Iterator[Tensor]:
        """Give the tensors that a reduction may be a statistic of, the likeliest first."""
        averaged = upstream(node.inputs[0])
        producer = averaged.producer
        squared = _is_square(node.op)
        if producer is not None and _squares(producer):
            squared = True
            averaged = upstream(producer.inputs[0])
        yield averaged
        for _ in range(4):
            producer = averaged.producer
            if producer is None or producer.graph is not self.graph:
                return
            if producer.op not in _LAYOUT:
                break
            averaged = upstream(producer.inputs[0])
            yield averaged
        if squared:
            source = upstream(node.inputs[0])
            if source is not averaged:
                yield source

    def kept(self, x: Tensor, reduction: Node) -> frozenset[int]:
        """Give the axes of a reduction where all have extent 1: then they must not be passed over."""
        shape = x.shape
        if shape is None or 1 not in shape:
            return frozenset()
        axes = axes_of(reduction, len(shape), self.constants)
        if axes is None or any(shape[axis] != 1 for axis in axes):
            return frozenset()
        return frozenset(axes)

    def search(self, x: Tensor, kept: frozenset[int]) -> NearNorm | None:
        """Find the normalisations of x; where there is none, give what is nearly one."""
        if (x, kept) in self.read:
            return None
        self.read.add((x, kept))
        reading = Reading(self.scope, x, kept)
        likes = self.likes(reading)
        if not likes:
            return near_norm(reading, lambda tensor: _between(reading, tensor))
        static = {tensor: entry for tensor, entry in likes.items() if entry[0].static}
        for tensor in _ends(static or likes, self.graph):
            like, kind = likes[tensor]
            norm = self.fact(reading, tensor, like, kind)
            self.covered.update(norm.nodes)
            self.norms.append(norm)
        return None

    def likes(self, reading: Reading) -> dict[Tensor, tuple[Like, Kind]]:
        result = {}
        shape = reading.layout.shape
        for tensor, value in reading.values.items():
            if value.flaw is not None or len(value.polynomial) > 24:
                continue
            like = norm_like(reading.algebra, value.polynomial, reading.x.dtype)
            if like is None or reading.layout.permutation(value.dims) is None:
                continue
            axes = reading.raw_axes.get(like.axes, like.axes)
            kind = kind_of(like, axes, shape, reading.algebra)
            if kind is not None:
                result[tensor] = (like, kind)
        return result

    def fact(self, reading: Reading, y: Tensor, like: Like, kind: Kind) -> Normalization:
        nodes = _between(reading, y)
        x = _entry(reading.x, y, nodes)
        if x.dtype in FLOATS and y.dtype != x.dtype and len(y.outputs) == 1:
            cast = y.outputs[0]
            if cast.op == "Cast" and cast.y.dtype == x.dtype and not y.is_output:
                nodes.append(cast)
                y = cast.outputs[0]
        shape = reading.layout.shape
        rank = len(shape)
        axes = reading.raw_axes.get(like.axes, like.axes)
        value = reading.values[y]
        order = reading.layout.permutation(value.dims)
        return Normalization(
            kind,
            Form.DECOMPOSED,
            tuple(nodes),
            x,
            y,
            tuple(sorted(axis - rank for axis in axes)),
            like.epsilon,
            parameter(reading, like.scale, neutral=1.0),
            parameter(reading, like.bias, neutral=0.0),
            dtype=x.dtype,
            statistics_dtype=_statistics_dtype(nodes) or x.dtype,
            centred=like.centred,
            one_pass=like.centred and is_one_pass(reading, nodes),
            clipped=like.clipped,
            groups=1 if kind == "GroupNorm" else None,
            training=kind == "BatchNorm",
            permutation=None if order == tuple(range(rank)) else order,
            quantized=_quantized(x, y, nodes),
            steps=steps_of(reading, nodes),
            constant=self.constants.is_constant(x),
        )


def upstream(tensor: Tensor) -> Tensor:
    """Walk back through what changes no value: Identity, float Casts, Q/DQ pairs."""
    while (node := tensor.producer) is not None and node.graph is tensor.graph:
        if node.op not in _TRANSPARENT or not node.is_standard or not node.inputs:
            break
        if node.op in {"Cast", "CastLike"} and not is_float_cast(node):
            break
        if node.op == "Dropout" and node.input(2) is not None:
            break
        if node.op == "DequantizeLinear":
            before = node.inputs[0].producer
            if before is None or before.op != "QuantizeLinear":
                break
        tensor = node.inputs[0]
    return tensor


def _is_square(op: str) -> bool:
    return op in {"ReduceSumSquare", "ReduceL2"}


def _squares(node: Node) -> bool:
    if node.op == "Pow":
        return True
    return node.op == "Mul" and upstream(node.inputs[0]) is upstream(node.inputs[1])


def _ends(likes: dict[Tensor, tuple[Like, Kind]], graph: Graph) -> Iterator[Tensor]:
    """Give the last value of each normalisation."""
    pending = [
        tensor
        for tensor in likes
        if tensor.producer is None or not any(s in likes for s in tensor.producer.inputs)
    ]
    seen: set[Tensor] = set()
    while pending:
        tensor = pending.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        following = _following(tensor, likes, graph)
        if following:
            pending.extend(following)
        else:
            yield tensor


def _following(
    tensor: Tensor, likes: dict[Tensor, tuple[Like, Kind]], graph: Graph
) -> list[Tensor]:
    """Give the values in which readers carry the normalisation on; none unless all readers do."""
    result: list[Tensor] = []
    passed = [tensor]
    while passed:
        current = passed.pop()
        if current.is_output:
            return []
        for node in current.outputs:
            after = node.outputs[0]
            if node.graph is not graph or after not in likes:
                return []
            (passed if node.op in _TRANSPARENT or node.op in _LAYOUT else result).append(after)
    return result


def _between(reading: Reading, y: Tensor) -> list[Node]:
    """Give the nodes between x and y in order."""
    seen: set[Node] = set()
    pending = [y]
    while pending:
        tensor = pending.pop()
        node = tensor.producer
        if tensor is reading.x or node is None or node in seen or tensor not in reading.values:
            continue
        seen.add(node)
        pending.extend(node.inputs)
    return sorted(seen, key=reading.scope.place.__getitem__)


def _entry(x: Tensor, y: Tensor, nodes: list[Node]) -> Tensor:
    """Leave out of the nodes what only hands x on, but for Casts that y takes back."""
    while nodes:
        first = nodes[0]
        if first.op not in _TRANSPARENT or first.inputs[0] is not x:
            break
        if any(x in node.inputs for node in nodes[1:]):
            break
        after = first.outputs[0]
        if first.op == "Cast" and (y.dtype == x.dtype or y.dtype != after.dtype):
            break
        x = after
        del nodes[0]
    return x


def _quantized(x: Tensor, y: Tensor, nodes: list[Node]) -> str:
    inside = any(node.op in {"QuantizeLinear", "DequantizeLinear"} for node in nodes)
    return "inside" if inside else quantized(x, y)


def _statistics_dtype(nodes: list[Node]) -> int:
    """Give the narrowest type in which a mean, a square or a root is computed."""
    types = [
        node.outputs[0].dtype
        for node in nodes
        if (node.op in REDUCTIONS or node.op in {"Pow", "Sqrt"} or _squares(node))
        and node.outputs[0].dtype in _WIDTH
    ]
    return min(types, key=_WIDTH.__getitem__, default=0)
