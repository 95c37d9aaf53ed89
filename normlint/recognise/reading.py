"""Reading arithmetic downstream of one tensor x: each tensor gets its normal form."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from normlint.algebra import ONE, Algebra, Leaf, Root, X
from normlint.graph import Variable
from normlint.recognise.extents import above, extents_of
from normlint.recognise.layout import Clash, Layout

if TYPE_CHECKING:
    from normlint.algebra import Dims, Polynomial
    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.recognise.extents import Extent

RELABELS = frozenset(("Unsqueeze", "Reshape", "Flatten", "Identity", "Cast", "CastLike"))
"""Operators that stand between a weight and what it scales."""
DEEPEST_ELEMENTWISE = 16
"""Nodes in a row that are read without meeting a statistic."""
DEEPEST = 48
"""Nodes in a row that are read; a normalisation is never as long."""
MOST_VALUES = 2000
OPEN_RANK = 9
"""Axes that a tensor of unknown rank is given, more than any has: the last ones matter."""


@dataclass(slots=True)
class Value:
    """What a tensor holds, in terms of x."""

    polynomial: Polynomial
    dims: Dims
    flaw: str | None = None
    """What keeps it from being exactly this: it only looks like it."""
    depth: int = 0


def made(polynomial: Polynomial | None, dims: Dims, flaw: str | None, depth: int) -> Value | None:
    """Make a value, where there is a polynomial."""
    return None if polynomial is None else Value(polynomial, dims, flaw, depth)


class Split(NamedTuple):
    """An axis of x that is read as two."""

    axis: int
    groups: int
    size: int
    """Channels of a group."""

    def shape(self, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """Give the extents of x with those of the two axes."""
        return (*shape[: self.axis], self.groups, self.size, *shape[self.axis + 1 :])


class Scope:
    """A graph with the places of its nodes, and the numbers that were read already."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph = graph
        self.constants = constants
        self.place = {node: place for place, node in enumerate(in_order(graph))}
        self._numbers: dict[Tensor, float | None] = {}

    def number(self, tensor: Tensor) -> float | None:
        """Give the value of a constant of one element."""
        if tensor not in self._numbers:
            self._numbers[tensor] = self.constants.scalar(tensor)
        return self._numbers[tensor]


def in_order(graph: Graph) -> list[Node]:
    """Give the nodes of a graph, each after those it reads from; those on a cycle last."""
    if _is_in_order(graph):
        return graph.nodes
    place = {node: position for position, node in enumerate(graph.nodes)}
    waits = {
        node: {p for t in node.inputs if (p := t.producer) is not None and p in place}
        for node in graph.nodes
    }
    readers: dict[Node, list[Node]] = {}
    for node, before in waits.items():
        for producer in before:
            readers.setdefault(producer, []).append(node)
    ready = [(place[node], node) for node, before in waits.items() if not before]
    ordered: list[Node] = []
    while ready:
        _, node = heapq.heappop(ready)
        ordered.append(node)
        for reader in readers.get(node, ()):
            waits[reader].discard(node)
            if not waits[reader]:
                heapq.heappush(ready, (place[reader], reader))
    done = set(ordered)
    return ordered + [node for node in graph.nodes if node not in done]


def _is_in_order(graph: Graph) -> bool:
    seen: set[Node] = set()
    for node in graph.nodes:
        for tensor in node.inputs:
            for producer in tensor.inputs:
                if producer not in seen and producer.graph is graph:
                    return False
        seen.add(node)
    return True


class Reading:
    """The values downstream of one tensor, in its graph."""

    def __init__(
        self,
        scope: Scope,
        x: Tensor,
        kept: frozenset[int] = frozenset(),
        split: Split | None = None,
    ) -> None:
        self.scope = scope
        self.constants = scope.constants
        self.x = x
        self.split = split
        """The axis that is read as groups and what is in a group."""
        shape = extents_of(x, scope.constants)
        self.is_open = shape is None
        """Whether the rank of x is not known: axes are counted from the last one only."""
        if shape is None:
            shape = (None,) * OPEN_RANK
        if split is not None:
            shape = split.shape(shape)
        self.layout = Layout(shape, kept, None if split is None else split.axis)
        self.algebra = Algebra(shape)
        self.values: dict[Tensor, Value] = {x: Value({((X, 1),): 1.0}, self.layout.dims)}
        self.raw_axes: dict[frozenset[int], frozenset[int]] = {}
        """For the axes that a mean runs over, the same with those of extent 1."""
        self._read()

    def _read(self) -> None:
        from normlint.recognise.operators import READERS

        pending: list[tuple[int, Node]] = []
        seen: set[Node] = set()
        self._enter(self.x, pending, seen)
        while pending and len(seen) < MOST_VALUES:
            _, node = heapq.heappop(pending)
            reader = READERS.get(node.op)
            if reader is None or not node.outputs or not node.is_standard:
                continue
            try:
                value = reader(self, node)
            except (Clash, LookupError):  # a malformed node may lack inputs, or have too many
                continue
            if value is None or not value.polynomial or self._is_far(value):
                continue
            self.values[node.outputs[0]] = value
            self._enter(node.outputs[0], pending, seen)

    def _is_far(self, value: Value) -> bool:
        if value.depth <= DEEPEST_ELEMENTWISE:
            return False
        return value.depth > DEEPEST or all(
            not monomial or (len(monomial) == 1 and monomial[0][0] == X)
            for monomial in value.polynomial
        )

    def _enter(self, tensor: Tensor, pending: list[tuple[int, Node]], seen: set[Node]) -> None:
        place = self.scope.place
        for node in tensor.outputs:
            if node not in seen and node in place:
                seen.add(node)
                heapq.heappush(pending, (place[node], node))

    def note_axes(self, dims: Dims, positions: tuple[int, ...], over: frozenset[int]) -> None:
        """Remember which axes of extent 1 a reduction of an untransposed value names besides."""
        shape = self.layout.shape
        if len(dims) == len(shape) and all(
            entry in {(), (position,)} for position, entry in enumerate(dims)
        ):
            flat = frozenset(position for position in positions if shape[position] == 1)
            self.raw_axes.setdefault(over, over | flat)

    def has_x(self, polynomial: Polynomial) -> bool:
        """Whether x itself occurs in it, not only its statistics."""
        return any(monomial and monomial[0][0] == X for monomial in polynomial)

    def is_plain(self, polynomial: Polynomial) -> bool:
        """Whether it is a polynomial in statistics, without x and without a root."""
        generators = self.algebra.generators
        return not any(
            number == X or isinstance(generators[number], Root)
            for monomial in polynomial
            for number, _ in monomial
        )

    def constant(self, tensor: Tensor, beside: Value) -> tuple[Polynomial, Dims] | None:
        """Give a constant that meets a value: a number where it is one, else a symbol."""
        shape = tensor.shape
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            values = self.constants.known(tensor)
            if values is None:
                return None
            shape = values.shape
        if all(extent == 1 for extent in shape):
            number = self.scope.number(tensor)
            if number is None:
                return None
            return ({ONE: number} if number else {}), ((),) * len(shape)
        dims = self.layout.place(shape, beside.dims)
        if self.is_plain(beside.polynomial):
            number = self.constants.uniform(tensor)
            if number is not None:
                return ({ONE: number} if number else {}), dims
        return self.algebra.symbol(Leaf.of(tensor, dims, constant=True)), dims

    def dynamic(self, tensor: Tensor, beside: Value) -> tuple[Polynomial, Dims] | None:
        """Give a tensor that x has no part in and that the model computes or is given."""
        if tensor.shape is None or not tensor.name:
            return None
        dims = self.layout.place(tensor.shape, beside.dims)
        return self.algebra.symbol(Leaf.of(tensor, dims, constant=is_weight(tensor))), dims


def is_weight(tensor: Tensor) -> bool:
    """Whether it is a weight that a caller gives or may replace: its values are not for sure.

    Of graph inputs without values only vectors count: what varies with the batch has more axes.
    """
    for node in above(tensor):
        if node.op not in RELABELS or not node.is_standard:
            return False
        tensor = node.inputs[0]
    if not isinstance(tensor, Variable) or tensor.graph.parent is not None:
        return False
    if tensor.default is not None:
        return True
    shape = tensor.shape
    return (
        tensor.is_float
        and not tensor.inputs
        and shape is not None
        and len(shape) == 1
        and isinstance(shape[0], int)
        and shape[0] > 1
    )
