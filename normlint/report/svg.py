"""Pictures of nodes as SVG, for a page and for a file."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.report.layout import APART, layout
from normlint.report.look import visible
from normlint.report.sketch import sketch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.report.layout import Point
    from normlint.report.sketch import Box
    from normlint.results import Step

_WIDTH, _HEIGHT, _MARGIN = 140, 28, 8
_COLUMN, _ROW = (_WIDTH + 8) / APART, 56
_LONGEST = 20
STYLE = """
.nl rect { fill: #f5f5f4; stroke: #a8a29e; rx: 6px; }
.nl .match rect { fill: #fde68a; stroke: #b45309; }
.nl .new rect { fill: #bbf7d0; stroke: #15803d; }
.nl .tensor rect { fill: #fff; stroke-dasharray: 3 3; rx: 14px; }
.nl text { font: 12px system-ui, sans-serif; fill: #1c1917; text-anchor: middle; }
.nl path { fill: none; stroke: #78716c; stroke-width: 1.3px; }
"""


@dataclass(frozen=True)
class Picture:
    """A drawing and its size in pixels."""

    body: str
    width: float
    height: float


def svg(steps: Sequence[Step], *, title: str, style: str = "") -> str:
    """Draw nodes; each bears its operator, and its name and tensors as a tooltip."""
    return _whole(_picture(steps), title, style)


def svg_pair(before: Sequence[Step], after: Sequence[Step], *, title: str) -> str:
    """Draw nodes as they are, and right of them what a repair leaves of them."""
    left, right = _picture(before), _picture(after)
    moved = f'<g transform="translate({left.width + _COLUMN / 4:g})">{right.body}</g>'
    pair = Picture(
        left.body + moved,
        left.width + _COLUMN / 4 + right.width,
        max(left.height, right.height),
    )
    return _whole(pair, title, STYLE)


def _whole(picture: Picture, title: str, style: str) -> str:
    size = f"{picture.width:g} {picture.height:g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nl" role="img" viewBox="0 0 {size}" '
        f'width="{picture.width:g}" height="{picture.height:g}"><title>{_text(title)}</title>'
        f"{f'<style>{style}</style>' if style else ''}{picture.body}</svg>"
    )


def _picture(steps: Sequence[Step]) -> Picture:
    drawing = sketch(steps)
    laid = layout(drawing)
    places = [_at(point) for point in laid.places]
    ways = [[_at(point) for point in way] for way in laid.ways]
    across = [x for x, _ in places] + [x for way in ways for x, _ in way]
    arrows = [_arrow(way, name) for way, (_, _, name) in zip(ways, drawing.arrows, strict=True)]
    boxes = [_box(box, place) for box, place in zip(drawing.boxes, places, strict=True)]
    return Picture(
        "".join((*arrows, *boxes)),
        max(across, default=0) + _WIDTH / 2 + _MARGIN,
        max((y for _, y in places), default=0) + _HEIGHT / 2 + _MARGIN,
    )


def _at(point: Point) -> Point:
    """Give a place in pixels."""
    column, row = point
    return (
        _MARGIN + _WIDTH / 2 + column * _COLUMN,
        _MARGIN + _HEIGHT / 2 + row * _ROW,
    )


def _arrow(way: Sequence[Point], name: str) -> str:
    """Draw a tensor from the lower edge of a box, past the rows between, to the next one's top."""
    (x, y), *between, (to_x, to_y) = way
    down = 1 if to_y > y else -1
    points = [(x, y + down * _HEIGHT / 2), *between, (to_x, to_y - down * _HEIGHT / 2)]
    curve = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (y1 + y2) / 2
        curve += f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
    return f'<path d="{curve}"><title>{_text(name)}</title></path>'


def _box(box: Box, place: Point) -> str:
    x, y = place
    shown = visible(box.label)
    short = shown if len(shown) <= _LONGEST else _short(shown, box.role)
    return (
        f'<g class="{box.role}"><title>{_text(box.title)}</title>'
        f'<rect x="{x - _WIDTH / 2:g}" y="{y - _HEIGHT / 2:g}" width="{_WIDTH}" '
        f'height="{_HEIGHT}"/><text x="{x:g}" y="{y + 4:g}">{escape(short)}</text></g>'
    )


def _short(name: str, role: str) -> str:
    """Cut a name: that of a tensor says most at its end."""
    return f"…{name[1 - _LONGEST :]}" if role == "tensor" else f"{name[: _LONGEST - 1]}…"


def _text(words: str) -> str:
    return escape(visible(words))
