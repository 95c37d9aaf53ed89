"""A run over many models: which rules on which model, side by side, and what counts in the end."""

from __future__ import annotations

import datetime as dt
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlint.discover import relative_to
from normlint.fingerprint import with_fingerprints
from normlint.globs import path_matches
from normlint.model.fault import FileFault
from normlint.model.sniff import HEAD, sniff
from normlint.patience import patient_collector
from normlint.results import Finding, ModelReport
from normlint.rule import Severity
from normlint.selection import level_of, require_known, require_levels, selected
from normlint.suppress import Suppressor, of_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from normlint.cards import Card
    from normlint.config import Config
    from normlint.context.settings import Settings
    from normlint.discover import Target
    from normlint.model.source import Source
    from normlint.side_by_side.place import Place


@dataclass(frozen=True)
class Job:
    """All that a process needs to check one model."""

    target: Target
    rules: tuple[Card, ...]
    settings: Settings
    severity: dict[str, str]
    suppressor: Suppressor
    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `engine.Options`."""
    data: bytes | Source | None = None


def plan(target: Target, config: Config, rules: Sequence[Card], options: dict[str, Any]) -> Job:
    """Say what is to be done with one model. Raises `UsageError` for rules that there are not."""
    where = "the command line" if config.file is None else str(config.file)
    listed = [rule for rules_off in config.per_model_ignores.values() for rule in rules_off]
    listed += [rule for ignore in config.ignore_nodes for rule in ignore.rules]
    require_known((*config.select, *config.extend_select, *config.ignore, *listed), rules, where)
    require_known(config.severity, rules, where)
    require_levels(config.severity, where)
    today = dt.datetime.now().astimezone().date()
    path = target.name if target.path is None else relative_to(target.path, config.root)
    off = [
        rule
        for pattern, rules_off in config.per_model_ignores.items()
        if path_matches(path, pattern)
        for rule in rules_off
    ]
    selection = replace(config.selection, ignore=(*config.selection.ignore, *off))
    return Job(
        target=target,
        rules=selected(rules, selection),
        settings=config.settings,
        severity=config.severity,
        suppressor=Suppressor(
            of_model(config.ignore_nodes, path), config.allow_model_ignores, today
        ),
        options={"verify": config.verify, "max_model_size": config.max_model_size} | options,
    )


def check_all(
    jobs: Sequence[Job],
    workers: str,
    done: Callable[[], None],
    timeout: float | None = None,
    scheduler: str | None = None,
) -> tuple[ModelReport, ...]:
    """Check models, in processes of their own where it pays; reports come in the order of jobs.

    `workers` is a number or `auto`; `done` is called when a model is finished; `timeout` is in
    seconds for each model; `scheduler` is the address of a cluster whose workers do it instead. A
    model whose process dies or is late is reported as unreadable. Raises `UsageError` where there
    is no such cluster.
    """
    if scheduler is None:
        found = _reports(jobs, _here(len(jobs), workers, timeout))
    else:
        found = _reports_of_cluster(jobs, workers, timeout, scheduler)
    reports = []
    for report in found:
        done()
        reports.append(report)
    return tuple(reports)


def _here(jobs: int, workers: str, timeout: float | None) -> Place | None:
    """Give the processes that are worth it; None where this one will do."""
    if is_alone(jobs, workers, timeout):
        return None
    from normlint.side_by_side.processes import Processes

    return Processes(_count(jobs, workers), timeout)


def is_alone(jobs: int, workers: str, timeout: float | None) -> bool:
    """Whether this process checks the models itself."""
    return timeout is None and _count(jobs, workers) <= 1


def _count(jobs: int, workers: str) -> int:
    from normlint.side_by_side.capacity import auto_workers

    return auto_workers(jobs) if workers == "auto" else min(int(workers), jobs)


def _reports(jobs: Sequence[Job], place: Place | None) -> Iterator[ModelReport]:
    if place is None:
        yield from map(check_one, jobs)
        return
    from normlint.cards import without_pages
    from normlint.side_by_side.crew import Lost, side_by_side

    handed = [replace(job, rules=without_pages(job.rules)) for job in jobs]
    for job, result in zip(jobs, side_by_side(check_one, handed, place), strict=True):
        if isinstance(result, Lost):
            fault = FileFault("NL905", f"this model was not checked: {result.reason}")
            yield _finished(unreadable(job.target.name, fault), job)
        else:
            yield result


def _reports_of_cluster(
    jobs: Sequence[Job], workers: str, timeout: float | None, scheduler: str
) -> Iterator[ModelReport]:
    from normlint.elsewhere import packed, unpacked
    from normlint.side_by_side.cluster import Cluster

    codes = {rule.code for job in jobs for rule in job.rules}
    most = None if workers == "auto" else int(workers)
    cluster = Cluster(scheduler, codes=codes, most=most, timeout=timeout)
    return map(unpacked, _reports([packed(job) for job in jobs], cluster), jobs)


def check_one(job: Job) -> ModelReport:
    """Check one model. Only a bug raises."""
    with patient_collector():
        return _checked(job)


def _checked(job: Job) -> ModelReport:
    fault = preflight(job.target, job.data)
    if fault is not None:
        report = unreadable(job.target.name, fault)
    else:
        from normlint import engine
        from normlint.plugins import load_rules

        codes = {rule.code for rule in job.rules}
        report = engine.check_model(
            job.target.path,
            data=job.data,
            name=job.target.name,
            rules=[rule for rule in load_rules() if rule.code in codes],
            settings=job.settings,
            options=engine.Options(**job.options),
            suppressor=job.suppressor,
        )
    return _finished(report, job)


def preflight(target: Target, data: bytes | Source | None) -> FileFault | None:
    """Say why a file is no model, without importing what reads models."""
    if isinstance(data, bytes):
        return sniff(data[:HEAD], len(data), target.name)
    if data is not None:
        return None
    path = target.path or Path(target.name)
    try:
        # Opening a pipe that nobody writes to would wait for ever; what follows says what it is.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return sniff(file.read(HEAD), path.stat().st_size, target.name)
    except OSError as error:
        return FileFault("NL905", f"the file cannot be read: {error.strerror}")


def unreadable(name: str, fault: FileFault) -> ModelReport:
    """Give the report on a file that is no model."""
    finding = Finding(fault.code, "", Severity.ERROR, fault.message)
    return ModelReport(name, findings=(finding,), readable=False)


def _finished(report: ModelReport, job: Job) -> ModelReport:
    """Give findings their names, severities and fingerprints, and mark those that do not count."""
    rules = {rule.code: rule for rule in job.rules}
    suppressor = job.suppressor.with_model(report.ignores)
    findings = []
    for finding in with_fingerprints(f for f in report.findings if f.code in rules):
        rule = rules[finding.code]
        level = level_of(rule, job.severity)
        findings.append(
            replace(
                finding,
                rule=finding.rule or rule.name,
                severity=Severity(level) if level else finding.severity,
                suppressed=finding.suppressed or (suppressor(finding) if finding.is_open else None),
            )
        )
    return replace(report, findings=tuple(findings))
