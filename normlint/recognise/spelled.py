"""Normalisations that are spelled out in arithmetic, found by what they compute."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from normlint.graph import FLOATS
from normlint.normalization import Form, Kind, Normalization
from normlint.recognise.affine import are_equal, parameter
from normlint.recognise.fused import quantized
from normlint.recognise.kinds import kind_of
from normlint.recognise.likeness import norm_like
from normlint.recognise.near import differences, near_norm, unequal_axes
from normlint.recognise.operators import axes_of, is_float_cast
from normlint.recognise.reading import DEEPEST_ELEMENTWISE, Reading, Scope
from normlint.recognise.steps import REDUCTIONS, is_one_pass, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import NearNorm
    from normlint.recognise.likeness import Like

_TRANSPARENT = frozenset(
    ("Identity", "Dropout", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")
)
_LAYOUT = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand"))
_LONGEST_CHAIN = 64
_FARTHEST = 5
"""Layouts and squares to look back through from what is averaged."""
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
        self.centred: dict[Tensor, Tensor] = {}
        """Differences of a tensor from its mean over some axes, of which no norm was found."""

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
        averaged = upstream(node.inputs[0], self.graph)
        producer = averaged.producer
        squared = _is_square(node.op)
        if producer is not None and self.squares(producer):
            squared = True
            averaged = upstream(producer.inputs[0], self.graph)
        yield averaged
        for _ in range(_FARTHEST):
            source = self.source(averaged)
            if source is not averaged:
                yield source
            producer = source.producer
            if producer is None or producer.graph is not self.graph:
                break
            if producer.op not in _LAYOUT and not self.squares(producer):
                break
            averaged = upstream(producer.inputs[0], self.graph)
            yield averaged
        if squared:
            yield upstream(node.inputs[0], self.graph)

    def multiple(self, node: Node) -> Tensor | None:
        """Give what a node multiplies by a number."""
        if node.graph is not self.graph or not node.is_standard or not node.inputs:
            return None
        if node.op == "Neg":
            return node.inputs[0]
        if node.op in {"Mul", "Div"}:
            known = [self.constants.is_constant(source) for source in node.inputs]
            if known == [False, True] and self.scope.number(node.inputs[1]) is not None:
                return node.inputs[0]
            if known == [True, False] and node.op == "Mul":
                return node.inputs[1] if self.scope.number(node.inputs[0]) is not None else None
        return None

    def kept(self, x: Tensor, reduction: Node) -> frozenset[int]:
        """Give the axes of a reduction where all have extent 1: then they are not passed over."""
        shape = x.shape
        if shape is None or 1 not in shape or not self.is_laid_out_alike(x, reduction):
            return frozenset()
        axes = axes_of(reduction, len(shape), self.constants)
        if axes is None or any(shape[axis] != 1 for axis in axes):
            return frozenset()
        return frozenset(axes)

    def is_laid_out_alike(self, x: Tensor, reduction: Node) -> bool:
        """Whether a reduction of x, or of a multiple or square of it, names axes of x itself."""
        tensor = self.source(reduction.inputs[0])
        node = tensor.producer
        if tensor is not x and node is not None and self.squares(node):
            tensor = self.source(node.inputs[0])
        return tensor is self.source(x)

    def squares(self, node: Node) -> bool:
        """Whether a node multiplies a value with a multiple of itself, or raises it to a power."""
        if node.op == "Pow":
            return True
        if node.op != "Mul" or len(node.inputs) != 2:
            return False
        return self.source(node.inputs[0]) is self.source(node.inputs[1])

    def source(self, tensor: Tensor) -> Tensor:
        """Give what a tensor is a multiple of."""
        for _ in range(DEEPEST_ELEMENTWISE):
            tensor = upstream(tensor, self.graph)
            node = tensor.producer
            before = None if node is None else self.multiple(node)
            if before is None:
                break
            tensor = before
        return tensor

    def search(self, x: Tensor, kept: frozenset[int]) -> NearNorm | None:
        """Find the normalisations of x; where there is none, give what is nearly one."""
        if (x, kept) in self.read:
            return None
        self.read.add((x, kept))
        reading = Reading(self.scope, x, kept)
        likes = self.likes(reading)
        if not likes:
            self.centred.update(dict.fromkeys(differences(reading), x))
            return near_norm(reading, lambda tensor: _between(reading, tensor))
        static = {tensor: entry for tensor, entry in likes.items() if entry[0].static}
        for tensor in _ends(static or likes, self.graph):
            like, kind = likes[tensor]
            norm = self.fact(reading, tensor, like, kind)
            if kind is Kind.RMS and x in self.centred:
                return unequal_axes(norm, self.centred[x])
            self.covered.update(norm.nodes)
            self.norms.append(norm)
        return None

    def likes(self, reading: Reading) -> dict[Tensor, tuple[Like, Kind]]:
        result = {}
        shape = reading.layout.shape
        equal = partial(are_equal, reading)
        for tensor, value in reading.values.items():
            if value.flaw is not None or len(value.polynomial) > 24:
                continue
            like = norm_like(reading.algebra, value.polynomial, reading.x.dtype, equal)
            if like is None or reading.layout.permutation(value.dims) is None:
                continue
            axes = reading.raw_axes.get(like.axes, like.axes)
            kind = kind_of(like, axes, shape, reading.algebra)
            if kind is not None:
                result[tensor] = (like, kind)
        return result

    def fact(self, reading: Reading, y: Tensor, like: Like, kind: Kind) -> Normalization:
        nodes = _between(reading, y)
        cast = _cast_back(reading, y)
        if cast is not None:
            nodes.append(cast)
            y = cast.outputs[0]
        x = _entry(reading.x, y, nodes)
        shape = reading.layout.shape
        rank = len(shape)
        axes = reading.raw_axes.get(like.axes, like.axes)
        value = reading.values[y]
        steps = steps_of(reading, nodes)
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
            statistics_dtype=_statistics_dtype(nodes, steps) or x.dtype,
            centred=like.centred,
            one_pass=like.centred and is_one_pass(reading, nodes),
            clipped=like.clipped,
            groups=1 if kind == "GroupNorm" else None,
            training=kind == "BatchNorm",
            permutation=None if order == tuple(range(rank)) else order,
            quantized=_quantized(x, y, nodes),
            steps=steps,
            constant=self.constants.is_constant(x),
        )


def upstream(tensor: Tensor, graph: Graph) -> Tensor:
    """Walk back in a graph through what changes no value: Identity, float Casts, Q/DQ pairs."""
    for _ in range(_LONGEST_CHAIN):  # a file may hold a cycle
        node = tensor.producer
        if node is None or node.graph is not graph:
            break
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
    seen: set[Tensor] = set()
    while passed:
        current = passed.pop()
        if current.is_output:
            return []
        if current in seen:
            continue
        seen.add(current)
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


def _cast_back(reading: Reading, y: Tensor) -> Node | None:
    """Give the Cast that takes y back to the type of x, where that is all that is done with y."""
    wanted = reading.x.dtype
    if wanted not in FLOATS or y.dtype == wanted or len(y.outputs) != 1 or y.is_output:
        return None
    reader = y.outputs[0]
    if reader.op != "Cast" or reader.y.dtype != wanted or reader.y not in reading.values:
        return None
    return reader


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
    """Tell where Q/DQ pairs stand; x may be quantised once for each of its readers."""
    pairs = [node for node in nodes if node.op == "QuantizeLinear"]
    if not pairs:
        return quantized(x, y)
    readers = [node for node in nodes if x in node.inputs]
    if readers != pairs:
        return "inside"
    return "both" if quantized(x, y) in {"output", "both"} else "input"


def _statistics_dtype(nodes: list[Node], steps: dict[str, Node]) -> int:
    """Give the narrowest type in which a mean, a square or a root is computed."""
    types = [
        node.outputs[0].dtype
        for node in nodes
        if (node.op in REDUCTIONS or node.op in {"Pow", "Sqrt"} or node is steps.get("square"))
        and node.outputs[0].dtype in _WIDTH
    ]
    return min(types, key=_WIDTH.__getitem__, default=0)
