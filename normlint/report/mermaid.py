"""Pictures of nodes as Mermaid flowcharts, which GitHub draws in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.report.look import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.results import Step

_LONGEST = 60
_CLASSES = (
    "classDef match fill:#fde68a,stroke:#b45309,color:#1c1917",
    "classDef near fill:#f5f5f4,stroke:#a8a29e,color:#44403c",
    "classDef new fill:#bbf7d0,stroke:#15803d,color:#14532d",
)


def mermaid(steps: Sequence[Step]) -> str:
    """Draw nodes and the tensors between them; what comes from outside is drawn as its name."""
    lines = ["flowchart TD", *(f"  {line}" for line in _lines(steps))]
    lines += [f"  {line}" for line in _CLASSES]
    return "".join(f"{line}\n" for line in lines)


def _lines(steps: Sequence[Step]) -> Iterator[str]:
    makers = {name: f"n{number}" for number, step in enumerate(steps) for name in step.outputs}
    outside: dict[str, str] = {}
    for number, step in enumerate(steps):
        yield f'n{number}["{_label(step.op)}"]:::{step.role}'
        for name in step.inputs:
            if name in makers:
                yield f"{makers[name]} --> n{number}"
            elif step.role != "near":
                if name not in outside:
                    outside[name] = f"t{len(outside)}"
                    yield f'{outside[name]}(["{_label(name)}"])'
                yield f"{outside[name]} --> n{number}"
    read = {name for step in steps for name in step.inputs}
    ends = [
        (f"n{number}", name)
        for number, step in enumerate(steps)
        if step.role != "near"
        for name in step.outputs
        if name not in read
    ]
    for number, (maker, name) in enumerate(ends):
        yield f'{maker} --> y{number}(["{_label(name)}"])'


def _label(text: str) -> str:
    """Write every sign that Mermaid or HTML could read as more than a sign by its number."""
    shown = visible(text)
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST // 2]}…{shown[-_LONGEST // 2 :]}"
    return "".join(c if c.isalnum() or c in " /._-…" else f"#{ord(c)};" for c in shown)
