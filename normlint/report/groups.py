"""Findings that say the same of many places, put together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.results import Finding, ModelReport, Step

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class Group:
    """Findings of one model that differ in their place only."""

    model: ModelReport
    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The one that speaks for all."""
        return self.findings[0]

    def __len__(self) -> int:
        """Count its findings."""
        return len(self.findings)


def grouped(model: ModelReport, findings: Iterable[Finding]) -> list[Group]:
    """Put findings together whose operators and repair are the same but for names.

    Their messages may differ in names and in numbers.
    """
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_shape(finding), []).append(finding)
    return [Group(model, tuple(members)) for members in groups.values()]


def _shape(finding: Finding) -> object:
    fix, missed = finding.fix, finding.not_fixed
    own = _names(finding)
    return (
        finding.code,
        finding.severity,
        _NUMBER.sub("…", _without(own, finding.message)),
        tuple(step.op for step in finding.picture if step.role == "match"),
        fix and (fix.applicability, _without(own, fix.title), fix.applied),
        missed and (missed.reason, _without(own, missed.detail)),
        finding.suppressed,
    )


def _names(finding: Finding) -> set[str]:
    own = {finding.node, finding.output, finding.module or "", finding.source or "", *finding.nodes}
    own.update(name for step in finding.picture for name in (*step.inputs, *step.outputs))
    if finding.not_fixed is not None:
        own.add(finding.not_fixed.at)
    return own


def _without(names: set[str], text: str) -> str:
    inside = [name for name in names if len(name) > 1 and name in text]
    for name in sorted(inside, key=lambda name: (-len(name), name)):
        text = text.replace(name, "…")
    return text


def is_connected(steps: Sequence[Step]) -> bool:
    """Say whether the nodes that a finding is about hang together, each on one before it."""
    matched = [step for step in steps if step.role == "match"]
    made = {name for step in matched for name in step.outputs}
    return all(made.intersection(step.inputs) for step in matched[1:])
