"""What every drawing of nodes consists of: boxes for nodes, and for tensors at the rim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.results import Step

TENSOR = "tensor"


@dataclass(frozen=True)
class Box:
    """A node, or a tensor that comes from outside the drawing or that it ends in."""

    role: str
    """match, near or new for a node, else tensor."""
    label: str
    """The operator, or the name of the tensor."""
    title: str
    """What is worth knowing besides."""


@dataclass(frozen=True)
class Sketch:
    """A drawing without places."""

    boxes: tuple[Box, ...]
    """What is read comes before what reads it, but for circles, which no sound model has."""
    arrows: tuple[tuple[int, int, str], ...]
    """From which box to which, and the tensor."""


def sketch(steps: Sequence[Step]) -> Sketch:
    """Give the boxes and arrows of a picture; neighbours are drawn without what lies beyond."""
    inner = [step for step in steps if step.role != "near"]
    made = {name for step in steps for name in step.outputs}
    read = {name for step in steps for name in step.inputs}
    begins = list(dict.fromkeys(n for step in inner for n in step.inputs if n not in made))
    ends = list(dict.fromkeys(n for step in inner for n in step.outputs if n not in read))
    boxes = [
        *(Box(TENSOR, name, name) for name in begins),
        *(Box(step.role, step.op, _title(step)) for step in steps),
        *(Box(TENSOR, name, name) for name in ends),
    ]
    sources = {name: number for number, name in enumerate(begins)}
    targets = {name: len(begins) + len(steps) + number for number, name in enumerate(ends)}
    arrows: dict[tuple[int, int, str], None] = {}
    for number, step in enumerate(steps, len(begins)):
        sources.update(dict.fromkeys(step.outputs, number))
    for number, step in enumerate(steps, len(begins)):
        arrows |= {(sources[name], number, name): None for name in step.inputs if name in sources}
        arrows |= {(number, targets[name], name): None for name in step.outputs if name in targets}
    return Sketch(tuple(boxes), tuple(arrow for arrow in arrows if arrow[0] != arrow[1]))


def _title(step: Step) -> str:
    return f"{step.op} {step.name}: {', '.join(step.inputs)} → {', '.join(step.outputs)}"
