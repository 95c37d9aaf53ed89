"""What a reduction may be a statistic of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.recognise.extents import extents_of, reshaped
from normlint.recognise.layout import Layout
from normlint.recognise.operators import is_float_cast
from normlint.recognise.reading import DEEPEST_ELEMENTWISE, Split
from normlint.recognise.reductions import axes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.graph import Graph, Node, Tensor
    from normlint.recognise.extents import Extent
    from normlint.recognise.reading import Scope

TRANSPARENT = frozenset(
    ("Identity", "Dropout", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")
)
"""Operators that hand a value on; a Cast or a Dropout may do more."""
LAYOUTS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand"))
_LONGEST_CHAIN = 64
_FARTHEST = 5
"""Layouts and squares to look back through from what is averaged."""


class Candidates:
    """The tensors of one graph that statistics are taken of."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.graph = scope.graph
        self.constants = scope.constants

    def of(self, node: Node) -> Iterator[Tensor]:
        """Give the tensors that a reduction may be a statistic of, the likeliest first."""
        if node.op == "Einsum" and not self.squares(node):
            return
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
            if producer.op not in LAYOUTS and not self.squares(producer):
                break
            averaged = upstream(producer.inputs[0], self.graph)
            yield averaged
        if squared:
            yield upstream(node.inputs[0], self.graph)

    def splits(self, node: Node) -> Iterator[tuple[Tensor, Split]]:
        """Give what a Reshape in front of a reduction splits an axis of, and into which groups.

        The statistics of groups may be spread over the channels again instead of these being
        reshaped.
        """
        tensor = self.source(node.inputs[0])
        reshape = tensor.producer
        if reshape is not None and self.squares(reshape):
            tensor = self.source(reshape.inputs[0])
            reshape = tensor.producer
        if reshape is None or reshape.op != "Reshape" or reshape.graph is not self.graph:
            return
        x = self.source(reshape.inputs[0])
        before = x.producer
        if before is not None and self.squares(before):
            x = self.source(before.inputs[0])
        made, given = reshaped(reshape, self.constants), extents_of(x, self.constants)
        if made is None or given is None or len(given) < 3:
            return
        for axis in (1, len(given) - 1):
            split = _split(given, made, axis)
            if split is not None:
                yield x, split

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
        if node.op not in {"Mul", "Einsum"} or len(node.inputs) != 2:
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


def _split(given: tuple[Extent, ...], made: tuple[Extent, ...], axis: int) -> Split | None:
    """Find the groups into which a Reshape splits an axis."""
    channels = given[axis]
    if not isinstance(channels, int):
        return None
    for groups in made:
        if not isinstance(groups, int) or not 1 < groups < channels or channels % groups:
            continue
        split = Split(axis, groups, channels // groups)
        layout = Layout(split.shape(given), split=axis)
        dims = layout.reshaped(layout.dims, made)
        if dims is not None and (axis,) in dims:
            return split
    return None


def upstream(tensor: Tensor, graph: Graph) -> Tensor:
    """Walk back in a graph through what changes no value: Identity, float Casts, Q/DQ pairs."""
    for _ in range(_LONGEST_CHAIN):  # a file may hold a cycle
        node = tensor.producer
        if node is None or node.graph is not graph:
            break
        if node.op not in TRANSPARENT or not node.is_standard or not node.inputs:
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
    return op in {"ReduceSumSquare", "ReduceL2", "Einsum"}
