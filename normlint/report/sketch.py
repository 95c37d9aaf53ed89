"""What every drawing of nodes consists of: boxes for nodes, and for tensors at the rim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.results import Step

TENSOR = "tensor"
_MOST = 12
"""Tensors at the rim that are drawn of one node."""


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
    begins = _rim((step.inputs for step in inner), made)
    ends = _rim((step.outputs for step in inner), read)
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


def _rim(tensors: Iterable[Sequence[str]], inside: set[str]) -> list[str]:
    """Give the tensors that are not inside, but for those that are too many at one node."""
    found = ([name for name in names if name not in inside] for names in tensors)
    return list(dict.fromkeys(name for names in found for name in names[:_MOST]))


def _title(step: Step) -> str:
    return f"{step.op} {step.name}: {_listed(step.inputs)} → {_listed(step.outputs)}"


def _listed(names: Sequence[str]) -> str:
    more = [f"… {len(names) - _MOST} more"] if len(names) > _MOST else []
    return ", ".join([*names[:_MOST], *more])
