"""Which exit code a run earns, and why: one answer for every output format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.rule import Severity

if TYPE_CHECKING:
    from normlint.results import Report

NEVER = "never"
FAIL_ON = ("error", "warning", "info", NEVER)


@dataclass(frozen=True)
class Gate:
    """What makes a run fail."""

    fail_on: str = "warning"
    """The least severity of an open finding that does; `never` for none at all."""
    diff: bool = False
    """Whether a change that would be made does."""
    on_fix: bool = False
    """Whether a repair that was made does."""


@dataclass(frozen=True)
class Verdict:
    """The exit code and the sentence that explains it; the sentence is empty for 0."""

    code: int = 0
    why: str = ""


def judge(report: Report, gate: Gate) -> Verdict:
    """Give the verdict on a run that ended: 0 or 1."""
    if gate.fail_on == NEVER:
        return Verdict()
    if any(not model.readable and model.has_open for model in report.models):
        return Verdict(1, "a model could not be read")
    least = Severity(gate.fail_on).rank
    if any(finding.is_open and finding.severity.rank >= least for finding in report.findings):
        return Verdict(1, f"findings at or above --fail-on={gate.fail_on}")
    if gate.diff and any(model.changes for model in report.models):
        return Verdict(1, "--diff would change a model")
    if gate.on_fix and report.fixed:
        return Verdict(1, "something was repaired (--exit-non-zero-on-fix)")
    return Verdict()
