"""Where a spelled-out normalisation begins and ends, and which nodes compute it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.graph import FLOATS
from normlint.recognise.candidates import LAYOUTS, TRANSPARENT
from normlint.recognise.fused import quantized
from normlint.recognise.steps import REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import Kind
    from normlint.recognise.likeness import Like
    from normlint.recognise.reading import Reading

_WIDTH = {16: 7, 10: 10, 1: 23, 11: 52}
"""Bits of the fraction, by element type: bfloat16, float16, float, double."""


def ends(reading: Reading, likes: Mapping[Tensor, tuple[Like, Kind]]) -> Iterator[Tensor]:
    """Give the last value of each normalisation; a value after one that ended is none itself.

    Layers may share their statistics, but what has a scale or a bias already is one layer.
    """
    after: set[Tensor] = set()
    pending = []
    for tensor in reading.values:
        node = tensor.producer
        if node is not None and any(s in likes or s in after for s in node.inputs):
            after.add(tensor)
        elif tensor in likes:
            pending.append(tensor)
    seen: set[Tensor] = set()
    while pending:
        tensor = pending.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        following = _following(tensor, likes, reading.scope.graph)
        if len(following) == 1 or (following and not likes[tensor][0].is_affine):
            pending.extend(following)
        else:
            yield tensor


def _following(tensor: Tensor, likes: Collection[Tensor], graph: Graph) -> list[Tensor]:
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
            after = node.output(0)
            if node.graph is not graph or after is None or after not in likes:
                return []
            (passed if node.op in TRANSPARENT or node.op in LAYOUTS else result).append(after)
    return list(dict.fromkeys(result))


def between(reading: Reading, y: Tensor) -> list[Node]:
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


def cast_back(reading: Reading, y: Tensor) -> Node | None:
    """Give the Cast that takes y back to the type of x, where that is all that is done with y."""
    wanted = reading.x.dtype
    if wanted not in FLOATS or y.dtype == wanted or len(y.outputs) != 1 or y.is_output:
        return None
    reader = y.outputs[0]
    if reader.op != "Cast" or reader.y.dtype != wanted or reader.y not in reading.values:
        return None
    return reader


def entry(x: Tensor, y: Tensor, nodes: list[Node]) -> Tensor:
    """Leave out of the nodes what only hands x on, but for Casts that y takes back."""
    while nodes:
        first = nodes[0]
        if first.op not in TRANSPARENT or first.inputs[0] is not x:
            break
        if any(x in node.inputs for node in nodes[1:]):
            break
        after = first.outputs[0]
        if first.op == "Cast" and (y.dtype == x.dtype or y.dtype != after.dtype):
            break
        x = after
        del nodes[0]
    return x


def where_quantized(x: Tensor, y: Tensor, nodes: list[Node]) -> str:
    """Tell where Q/DQ pairs stand; x may be quantised once for each of its readers."""
    pairs = [node for node in nodes if node.op == "QuantizeLinear"]
    if not pairs:
        return quantized(x, y)
    readers = [node for node in nodes if x in node.inputs]
    if readers != pairs:
        return "inside"
    return "both" if quantized(x, y) in {"output", "both"} else "input"


def statistics_dtype(nodes: list[Node], steps: dict[str, Node]) -> int:
    """Give the narrowest type in which a mean, a square or a root is computed."""
    types = [
        node.outputs[0].dtype
        for node in nodes
        if (node.op in REDUCTIONS or node.op in {"Pow", "Sqrt"} or node is steps.get("square"))
        and node.outputs[0].dtype in _WIDTH
    ]
    return min(types, key=_WIDTH.__getitem__, default=0)
