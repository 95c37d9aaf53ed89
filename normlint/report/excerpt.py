"""What is drawn of a finding: all of it, or some of the places where it is about many."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.report.layout import connected

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.results import Finding, Step

_ENOUGH = 12
"""Nodes from which on no further place is drawn."""


@dataclass(frozen=True)
class Excerpt:
    """A finding in pictures; both are empty where nothing can be drawn."""

    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    drawn: int = 0
    """Places that are drawn, of which each hangs together."""
    places: int = 0

    @property
    def caption(self) -> str:
        """What stands below the picture as it is."""
        some = f", {self.drawn} of {self.places} places" if self.drawn < self.places else ""
        return f"as it is{some}"


def excerpt(finding: Finding) -> Excerpt:
    """Choose what is drawn of a finding before and after."""
    places = _places([step for step in finding.picture if step.role == "match"])
    chosen: list[Step] = []
    drawn = 0
    for place in places:
        if drawn and len(_with_ring(finding.picture, [*chosen, *place])) > _ENOUGH:
            break
        chosen += place
        drawn += 1
    before = _with_ring(finding.picture, chosen)
    repaired = finding.fix.picture if finding.fix is not None else ()
    if len(before) < 2 and not repaired:
        return Excerpt()
    names = _names(chosen)
    new = _places([step for step in repaired if step.role != "near"])
    kept = [step for place in new if names & _names(place) for step in place]
    return Excerpt(before, _with_ring(repaired, kept), drawn, len(places))


def _names(steps: Iterable[Step]) -> set[str]:
    return {name for step in steps for name in (*step.inputs, *step.outputs)}


def _with_ring(steps: Sequence[Step], chosen: Sequence[Step]) -> tuple[Step, ...]:
    """Give the chosen nodes and those that they read or that read them, in order."""
    inner = set(chosen)
    read = {name for step in chosen for name in step.inputs}
    made = {name for step in chosen for name in step.outputs}
    return tuple(
        step if step in inner else replace(step, role="near")
        for step in steps
        if step in inner or read.intersection(step.outputs) or made.intersection(step.inputs)
    )


def _places(steps: Sequence[Step]) -> list[list[Step]]:
    """Give the nodes that hang together, one reading another, in the order of the first of each."""
    makers = {name: number for number, step in enumerate(steps) for name in step.outputs}
    beside: list[list[int]] = [[] for _ in steps]
    for number, step in enumerate(steps):
        for maker in {makers[name] for name in step.inputs if name in makers}:
            beside[number].append(maker)
            beside[maker].append(number)
    return [[steps[number] for number in part] for part in connected(beside)]
