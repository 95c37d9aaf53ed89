"""Pictures of nodes as Mermaid flowcharts, which GitHub draws in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.report.look import visible
from normlint.report.sketch import TENSOR, sketch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.report.sketch import Box
    from normlint.results import Step

_LONGEST = 60
_CLASSES = (
    "classDef match fill:#fde68a,stroke:#b45309,color:#1c1917",
    "classDef near fill:#f5f5f4,stroke:#a8a29e,color:#44403c",
    "classDef new fill:#bbf7d0,stroke:#15803d,color:#14532d",
)


def mermaid(steps: Sequence[Step]) -> str:
    """Draw nodes and the tensors between them; what comes from outside is drawn as its name."""
    drawing = sketch(steps)
    lines = [f"b{number}{_box(box)}" for number, box in enumerate(drawing.boxes)]
    lines += [f"b{source} --> b{target}" for source, target, _ in drawing.arrows]
    return "".join(
        f"{line}\n" for line in ("flowchart TD", *(f"  {line}" for line in (*lines, *_CLASSES)))
    )


def _box(box: Box) -> str:
    label = _label(box.label)
    return f'(["{label}"])' if box.role == TENSOR else f'["{label}"]:::{box.role}'


def _label(text: str) -> str:
    """Write every sign that Mermaid or HTML could read as more than a sign by its number."""
    shown = visible(text)
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST // 2]}…{shown[-_LONGEST // 2 :]}"
    return "".join(c if c.isalnum() or c in " /._-…" else f"#{ord(c)};" for c in shown)
