"""Drawings of a residual stream, with its writers, readers and norms: SVG and Mermaid."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from normlint.report.look import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.stream_picture import BranchPicture, NormMark, StreamPicture

_ROW, _TOP, _BOX = 72, 48, 26
_STREAM_X, _FIRST_X, _STEP = 90, 180, 124
_WIDE, _NARROW = 112, 84
_COLOURS = {
    "LayerNorm": "#bfdbfe",
    "RMSNorm": "#bbf7d0",
    "BatchNorm": "#fecaca",
    "GroupNorm": "#fde68a",
    "InstanceNorm": "#fbcfe8",
}
_PLAIN = "#e7e5e4"
_DASHED = ";stroke-dasharray:4 3"
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1c1917;text-anchor:middle}"
    "rect{stroke:#78716c;rx:5px}line,path{stroke:#78716c;stroke-width:1.5px;fill:none}"
    "circle{fill:#ffffff;stroke:#1c1917;stroke-width:1.5px}.layer{fill:#78716c}"
)


def stream_svg(stream: StreamPicture) -> str:
    """Draw a stream from above: the skip path on the left, each branch beside it."""
    boxes = [_branch_boxes(branch) for branch in stream.branches]
    widest = max(len(row) for row in boxes)
    width = _FIRST_X + widest * _STEP + 20
    height = _TOP + (len(boxes) + 2) * _ROW
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}"><title>{escape(_title(stream))}</title>'
            f"<style>{_STYLE}</style>"
        ),
        f'<line x1="{_STREAM_X}" y1="{_TOP - 20}" x2="{_STREAM_X}" y2="{height - 20}"/>',
        *_row_of_norms(stream.start, _TOP, stream.root),
    ]
    layer = -1
    for number, (branch, row) in enumerate(zip(stream.branches, boxes, strict=True)):
        y = _TOP + (number + 1) * _ROW
        if branch.layer != layer:
            layer = branch.layer
            parts.append(f'<text class="layer" x="24" y="{y + 4}">{layer}</text>')
        parts += _branch(branch, row, y)
    parts += _row_of_norms(stream.end, height - _ROW + 20, "")
    return "".join((*parts, "</svg>"))


def stream_mermaid(stream: StreamPicture) -> str:
    """Draw a stream as a Mermaid flowchart."""
    lines = ["flowchart TD", f'  s(["{_safe(stream.root) or "start"}"])']
    current = "s"
    for number, mark in enumerate(stream.start):
        lines.append(f'  {current} --> e{number}["{_safe(mark.kind)}"]')
        current = f"e{number}"
    for number, branch in enumerate(stream.branches):
        reader = current
        for place, label in enumerate(_labels(branch)):
            lines.append(f'  {reader} --> b{number}_{place}["{_safe(label)}"]')
            reader = f"b{number}_{place}"
        lines.append(f'  {reader} --> a{number}(("+"))')
        scale = "|scaled| " if branch.scaled else " "
        lines.append(f"  {current} -->{scale}a{number}")
        current = f"a{number}"
        for place, mark in enumerate(branch.on_sum):
            lines.append(f'  {current} --> n{number}_{place}["{_safe(mark.kind)}"]')
            current = f"n{number}_{place}"
    for number, mark in enumerate(stream.end):
        lines.append(f'  {current} --> f{number}["{_safe(mark.kind)}"]')
        current = f"f{number}"
    return "".join(f"{line}\n" for line in lines)


def _title(stream: StreamPicture) -> str:
    return f"stream {stream.index}: {stream.placement}, {stream.depth} layers"


def _labels(branch: BranchPicture) -> Iterator[str]:
    yield from (mark.kind for mark in branch.before)
    inside = f" ({', '.join(mark.kind for mark in branch.inside)})" if branch.inside else ""
    yield f"{branch.name}{inside}"
    yield from (mark.kind for mark in branch.behind)


def _branch_boxes(branch: BranchPicture) -> list[tuple[str, str, str]]:
    """Give the label, the tooltip and the look of each box of a branch; dashed is within it."""
    return [
        *((mark.kind, mark.where, _colour(mark)) for mark in branch.before),
        (branch.name, branch.writer, _PLAIN),
        *((mark.kind, mark.where, f"{_colour(mark)}{_DASHED}") for mark in branch.inside),
        *((mark.kind, mark.where, _colour(mark)) for mark in branch.behind),
    ]


def _branch(branch: BranchPicture, row: Sequence[tuple[str, str, str]], y: int) -> Iterator[str]:
    start, middle = y - _ROW // 2, y - 22
    end = _FIRST_X + (len(row) - 1) * _STEP + _WIDE // 2
    yield (
        f'<path d="M{_STREAM_X} {start}H{_FIRST_X - 70}V{middle}H{end + 10}V{y}H{_STREAM_X + 10}"/>'
    )
    for place, (label, tip, look) in enumerate(row):
        yield _box((_FIRST_X + place * _STEP, middle), (_WIDE, _BOX), label, tip, look)
    yield f'<circle cx="{_STREAM_X}" cy="{y}" r="9"/><text x="{_STREAM_X}" y="{y + 4}">+</text>'
    if branch.scaled:
        yield f'<text x="{_STREAM_X - 34}" y="{y - 12}">scaled</text>'
    for number, mark in enumerate(branch.on_sum):
        x = _STREAM_X if not number else _STREAM_X + number * _NARROW
        yield _box((x, y + 21), (_NARROW, 18), mark.kind, mark.where, _colour(mark))


def _row_of_norms(marks: Sequence[NormMark], y: int, root: str) -> Iterator[str]:
    if root:
        yield f'<text x="{_STREAM_X}" y="{y - 26}">{escape(visible(root))}</text>'
    for number, mark in enumerate(marks):
        x = _STREAM_X + number * (_NARROW + 8)
        yield _box((x, y), (_NARROW, _BOX), mark.kind, mark.where, _colour(mark))


def _box(centre: tuple[int, int], size: tuple[int, int], label: str, tip: str, look: str) -> str:
    (x, y), (width, height) = centre, size
    return (
        f"<g><title>{escape(visible(tip))}</title>"
        f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" '
        f'style="fill:{look}"/><text x="{x}" y="{y + 4}">{escape(visible(label))}</text></g>'
    )


def _colour(mark: NormMark) -> str:
    return _COLOURS.get(mark.kind, _PLAIN)


def _safe(text: str) -> str:
    return "".join(c if c.isalnum() or c in " /._-(),+" else f"#{ord(c)};" for c in visible(text))
