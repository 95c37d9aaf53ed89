"""Ignores that match nothing in a run, or have expired (NL901)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from normlint.fingerprint import with_fingerprints
from normlint.results import Finding
from normlint.rule import Severity
from normlint.selection import level_of, matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.cards import Card
    from normlint.results import ModelReport
    from normlint.run import Job
    from normlint.suppress import Ignore

CODE = "NL901"


def with_stale_ignores(
    jobs: Sequence[Job], reports: Sequence[ModelReport], rules: Sequence[Card]
) -> tuple[ModelReport, ...]:
    """Add a finding for each ignore that matches no finding of the run, or has expired.

    One of the configuration is told once, at the first model that it speaks of.
    """
    used: Counter[object] = Counter()
    for job, report in zip(jobs, reports, strict=True):
        for key, ignore in _ignores(job, report):
            used[key] += sum(ignore.covers(finding) for finding in report.findings)
    told: set[object] = set()
    finished = []
    for job, report in zip(jobs, reports, strict=True):
        found = [] if not report.readable else list(_stale(job, report, rules, used, told))
        findings = (*report.findings, *with_fingerprints(found))
        finished.append(replace(report, findings=findings))
    return tuple(finished)


def _ignores(job: Job, report: ModelReport) -> Iterator[tuple[object, Ignore]]:
    """Give the ignores that hold for a model, each with what it is told apart by."""
    for ignore in job.suppressor.with_model(report.ignores).ignores:
        yield (ignore, report.path if ignore.kind == "model" else ""), ignore


def _stale(
    job: Job,
    report: ModelReport,
    rules: Sequence[Card],
    used: Counter[object],
    told: set[object],
) -> Iterator[Finding]:
    rule = next((rule for rule in job.rules if rule.code == CODE), None)
    if rule is None:
        return
    severity = Severity(level_of(rule, job.severity) or rule.severity)
    for key, ignore in _ignores(job, report):
        if key in told or not _ran(ignore.rules, job.rules, rules):
            continue
        if not ignore.holds(job.suppressor.today):
            message = f"this ignore expired on {ignore.expires}: {ignore}"
        elif not used[key]:
            message = f"this ignore matches no finding: {ignore}"
        else:
            continue
        told.add(key)
        evidence = {"from": ignore.kind, "reason": ignore.reason}
        yield Finding(rule.code, rule.name, severity, message, evidence=evidence)


def _ran(selectors: tuple[str, ...], ran: Sequence[Card], rules: Sequence[Card]) -> bool:
    """Say whether all rules that an ignore names ran, so that its silence means something."""
    codes = {rule.code for rule in ran}
    named = [rule for rule in rules if any(matches(selector, rule) for selector in selectors)]
    return all(rule.code in codes for rule in named if not rule.preview)
