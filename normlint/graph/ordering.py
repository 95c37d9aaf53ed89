"""The order of nodes: topological, and as near to the file's as that allows."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from normlint.graph.types import Constant, Graph, Node

if TYPE_CHECKING:
    from collections.abc import Iterator


def in_order(graph: Graph) -> list[Node | Constant]:
    """Give nodes and Constant nodes in topological order, as near to the file's as that allows."""
    items: list[Node | Constant] = [c for c in graph.constants if c.origin is not None]
    items.extend(graph.nodes)
    items.sort(key=lambda item: item.order)
    position = {item: index for index, item in enumerate(items)}
    sources = [
        {position[source] for source in _sources(item) if source in position} for item in items
    ]
    if all(not needed or max(needed) < index for index, needed in enumerate(sources)):
        return items
    order = topological(sources)
    return [items[index] for index in order] if len(order) == len(items) else items


def _sources(item: Node | Constant) -> Iterator[Node | Constant]:
    """Give what a node and its subgraphs read: producers and Constant nodes."""
    if isinstance(item, Constant):
        return
    nodes = [item]
    for value in item.attrs.values():
        if isinstance(value, Graph):
            nodes.extend(node for scope in value.scopes() for node in scope.nodes)
    for node in nodes:
        for tensor in node.inputs:
            if isinstance(tensor, Constant):
                yield tensor
            elif tensor.producer is not None:
                yield tensor.producer


def topological(sources: list[set[int]]) -> list[int]:
    """Sort by Kahn's algorithm, the lowest index first; what is on a cycle is left out."""
    readers: dict[int, list[int]] = {}
    waiting = [len(needed - {index}) for index, needed in enumerate(sources)]
    for index, needed in enumerate(sources):
        for source in needed - {index}:
            readers.setdefault(source, []).append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order
