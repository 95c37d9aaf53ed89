"""Jobs that are done on another machine, in whatever folder that is, with reports as from here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from normlint.cards import without_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.results import ModelReport
    from normlint.run import Job


def packed(job: Job) -> Job:
    """Give a job whose paths mean the same from any folder, without the pages of its rules."""
    data = job.settings.data
    options = {
        name: value.absolute() if isinstance(value, Path) else value
        for name, value in job.options.items()
    }
    return replace(
        job,
        target=replace(job.target, path=job.target.path and job.target.path.absolute()),
        rules=without_pages(job.rules),
        settings=replace(job.settings, data=data and data.absolute()),
        options=options,
    )


def unpacked(report: ModelReport, job: Job) -> ModelReport:
    """Give the report on a packed job with the paths as they were given."""
    told = {str(path.absolute()): str(path) for path in _paths(job) if not path.is_absolute()}
    if not told:
        return report

    def given(text: str) -> str:
        for long, short in told.items():
            text = text.replace(long, short)
        return text

    findings = tuple(replace(f, message=given(f.message)) for f in report.findings)
    if report.written is not None:
        written = replace(report.written, path=given(report.written.path))
        report = replace(report, written=written)
    if report.reference is not None:
        path = given(report.reference["path"])
        report = replace(report, reference=report.reference | {"path": path})
    return replace(report, findings=findings)


def _paths(job: Job) -> Iterator[Path]:
    yield from (value for value in job.options.values() if isinstance(value, Path))
    if job.target.path is not None:
        yield job.target.path
