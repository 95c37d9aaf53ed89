"""A layered drawing of a few nodes: each below all that it reads, crossings kept few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.results import Step

_SWEEPS = 4


def is_connected(steps: Sequence[Step]) -> bool:
    """Say whether the nodes that a finding is about hang together, each on one before it."""
    matched = [step for step in steps if step.role == "match"]
    made = {name for step in matched for name in step.outputs}
    return all(made.intersection(step.inputs) for step in matched[1:])


@dataclass(frozen=True)
class Drawing:
    """Places of nodes on a grid: rows from above, columns from the left, in node widths."""

    places: tuple[tuple[float, int], ...]
    """Column and row of each node."""
    edges: tuple[tuple[int, int, str], ...]
    """From which node to which, and the tensor."""
    columns: float
    rows: int


def layered(steps: Sequence[Step]) -> Drawing:
    """Lay out nodes that come in topological order."""
    makers = {name: number for number, step in enumerate(steps) for name in step.outputs}
    edges = tuple(
        (makers[name], number, name)
        for number, step in enumerate(steps)
        for name in dict.fromkeys(step.inputs)
        if makers.get(name, number) < number
    )
    rows = _rows(len(steps), edges)
    layers = _ordered(rows, edges)
    width = max((len(layer) for layer in layers), default=0)
    places = {
        node: ((width - len(layer)) / 2 + position, row)
        for row, layer in enumerate(layers)
        for position, node in enumerate(layer)
    }
    placed = tuple(places[number] for number in range(len(steps)))
    return Drawing(placed, edges, width, len(layers))


def _rows(count: int, edges: Sequence[tuple[int, int, str]]) -> list[int]:
    """Give each node the row below the lowest one that it reads, close to what reads it."""
    rows = [0] * count
    for source, target, _ in edges:
        rows[target] = max(rows[target], rows[source] + 1)
    readers: dict[int, list[int]] = {}
    read = {target for _, target, _ in edges}
    for source, target, _ in edges:
        readers.setdefault(source, []).append(target)
    for node, targets in readers.items():
        if node not in read:
            rows[node] = min(rows[target] for target in targets) - 1
    return rows


def _ordered(rows: Sequence[int], edges: Sequence[tuple[int, int, str]]) -> list[list[int]]:
    """Order each row by the mean place of its neighbours in the row before, a few times."""
    layers: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node, row in enumerate(rows):
        layers[row].append(node)
    neighbours: dict[int, list[int]] = {}
    for source, target, _ in edges:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    for sweep in range(_SWEEPS):
        order = layers if sweep % 2 == 0 else layers[::-1]
        place = {node: index for layer in layers for index, node in enumerate(layer)}
        for layer in order:
            means = {
                node: sum(place[other] for other in near) / len(near) if near else place[node]
                for node in layer
                for near in [neighbours.get(node, [])]
            }
            layer.sort(key=lambda node, means=means: means[node])  # type: ignore[misc]
            place.update((node, index) for index, node in enumerate(layer))
    return layers
