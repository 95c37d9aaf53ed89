"""Where the boxes of a drawing go: layered by fast-sugiyama, readers below what they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from normlint.report.sketch import Sketch

Point = tuple[float, float]
"""Column, from the left, and row, from above."""
Ends = tuple[int, int]
"""The boxes that an arrow leads from and to."""
APART = 0.8
"""Columns from the middle of a box to that of the next in its row, at least."""
_LANE = 0.25
"""Columns that an arrow takes where it passes a row."""


@dataclass(frozen=True)
class Layout:
    """Places of boxes and ways of arrows, in columns and rows."""

    places: tuple[Point, ...]
    """The middle of each box."""
    ways: tuple[tuple[Point, ...], ...]
    """The points that each arrow leads through, from the middle of a box to that of another."""


def layout(sketch: Sketch) -> Layout:
    """Place a drawing. Parts that do not hang together stand side by side."""
    # The library ends the process where arrows lead in a circle: it gets those that lead onward.
    ends = dict.fromkeys((s, t) for s, t, _ in sketch.arrows if s < t)
    places: dict[int, Point] = {}
    ways: dict[Ends, tuple[Point, ...]] = {}
    right = 0.0
    for boxes, arrows in _parts(len(sketch.boxes), list(ends)):
        points, routes = _placed(boxes, arrows)
        points = {number: (right + x, y) for number, (x, y) in points.items()}
        places |= {box: points[box] for box in boxes}
        ways |= {pair: tuple(points[n] for n in route) for pair, route in routes.items()}
        right = max(x for x, _ in points.values()) + APART
    return Layout(
        tuple(places[box] for box in range(len(sketch.boxes))),
        tuple(ways.get((s, t), (places[s], places[t])) for s, t, _ in sketch.arrows),
    )


def connected(beside: Sequence[Iterable[int]]) -> Iterator[list[int]]:
    """Give the numbers that hang together, each part in order; `beside` has those next to each."""
    seen: set[int] = set()
    for first in range(len(beside)):
        part, pending = set(), [first]
        while pending:
            number = pending.pop()
            if number not in seen:
                seen.add(number)
                part.add(number)
                pending += beside[number]
        if part:
            yield sorted(part)


def _parts(count: int, arrows: Sequence[Ends]) -> Iterator[tuple[list[int], list[Ends]]]:
    """Give the boxes and arrows that hang together: numbered across parts, the library errs."""
    beside: list[list[int]] = [[] for _ in range(count)]
    for source, target in arrows:
        beside[source].append(target)
        beside[target].append(source)
    for boxes in connected(beside):
        part = set(boxes)
        yield boxes, [pair for pair in arrows if pair[0] in part]


def _placed(
    boxes: Sequence[int], arrows: Sequence[Ends]
) -> tuple[dict[int, Point], dict[Ends, list[int]]]:
    """Place one part, from its own left upper corner.

    Gives points by number, and for each arrow the numbers of its points: those where it passes a
    row have negative ones.
    """
    if not arrows:
        return {boxes[0]: (0.0, 0.0)}, {}
    from fast_sugiyama import from_edges

    numbers = {box: number for number, box in enumerate(boxes)}
    edges = [(numbers[source], numbers[target]) for source, target in arrows]
    [(positions, _, height, drawn)] = from_edges(
        edges, vertex_spacing=1, dummy_vertices=True, dummy_size=_LANE
    )

    def named(number: int | str) -> int:
        number = int(number)
        return boxes[number] if number < len(boxes) else -number

    left = min(x for _, (x, _) in positions)
    points = {named(number): (x - left, height - y) for number, (x, y) in positions}
    return points, _routes([(named(s), named(t)) for s, t in drawn or ()])


def _routes(drawn: Sequence[Ends]) -> dict[Ends, list[int]]:
    """Follow each arrow over the points where it passes a row."""
    onward = {source: target for source, target in drawn if source < 0}
    routes = {}
    for source, target in drawn:
        if source >= 0:
            route = [source, target]
            while route[-1] < 0:
                route.append(onward[route[-1]])
            routes[source, route[-1]] = route
    return routes
