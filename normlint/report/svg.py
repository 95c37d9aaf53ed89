"""Pictures of nodes as SVG, for a page and for a file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from normlint.report.layout import layered
from normlint.report.look import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.results import Step

_WIDTH, _HEIGHT = 156, 30
_COLUMN, _ROW, _MARGIN = 176, 58, 14
_LONGEST = 21
_BULGE = 46
STYLE = """
.nl rect { fill: #f5f5f4; stroke: #a8a29e; rx: 6px; }
.nl .match rect { fill: #fde68a; stroke: #b45309; }
.nl .new rect { fill: #bbf7d0; stroke: #15803d; }
.nl text { font: 12px system-ui, sans-serif; fill: #1c1917; text-anchor: middle; }
.nl path { fill: none; stroke: #78716c; stroke-width: 1.3px; }
"""


def svg(steps: Sequence[Step], *, title: str, style: str = "") -> str:
    """Draw nodes; each bears its operator, and its name and tensors as a tooltip."""
    drawing = layered(steps)
    width = drawing.columns * _COLUMN + 2 * _MARGIN - (_COLUMN - _WIDTH) + _BULGE
    height = drawing.rows * _ROW + 2 * _MARGIN - (_ROW - _HEIGHT)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="nl" role="img" '
            f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">'
        ),
        f"<title>{escape(visible(title))}</title>",
    ]
    if style:
        parts.append(f"<style>{style}</style>")
    corners = [(_MARGIN + column * _COLUMN, _MARGIN + row * _ROW) for column, row in drawing.places]
    for source, target, name in drawing.edges:
        far = drawing.places[target][1] - drawing.places[source][1] > 1
        draw = _detour if far else _edge
        parts.append(draw(corners[source], corners[target], name))
    for step, corner in zip(steps, corners, strict=True):
        parts += _box(step, corner)
    return "".join((*parts, "</svg>"))


def _edge(source: tuple[float, float], target: tuple[float, float], name: str) -> str:
    x1, y1 = source[0] + _WIDTH / 2, source[1] + _HEIGHT
    x2, y2 = target[0] + _WIDTH / 2, target[1]
    bend = max((y2 - y1) / 2, 8)
    curve = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return f'<path d="{curve}"><title>{escape(visible(name))}</title></path>'


def _detour(source: tuple[float, float], target: tuple[float, float], name: str) -> str:
    """Lead an edge past the rows between, at the right of the nodes."""
    x1, y1 = source[0] + _WIDTH, source[1] + _HEIGHT / 2
    x2, y2 = target[0] + _WIDTH, target[1] + _HEIGHT / 2
    out = max(x1, x2) + _BULGE
    curve = f"M{x1:g} {y1:g}C{out:g} {y1:g} {out:g} {y2:g} {x2:g} {y2:g}"
    return f'<path d="{curve}"><title>{escape(visible(name))}</title></path>'


def _box(step: Step, corner: tuple[float, float]) -> Iterator[str]:
    x, y = corner
    shown = visible(step.op)
    short = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    tensors = f"{', '.join(step.inputs)} → {', '.join(step.outputs)}"
    yield f'<g class="{step.role}"><title>'
    yield escape(visible(f"{shown} {step.name}")) + "\n" + escape(visible(tensors))
    yield f'</title><rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}"/>'
    yield f'<text x="{x + _WIDTH / 2:g}" y="{y + _HEIGHT / 2 + 4:g}">{escape(short)}</text></g>'
