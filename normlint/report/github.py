"""Workflow commands of GitHub Actions: annotations, put together by model and rule.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
A step shows ten errors and ten warnings, so the worst come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.report.look import visible
from normlint.report.places import repository_path

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Finding, Report

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
_NAMED = 3


def github(report: Report, view: View) -> str:  # noqa: ARG001 - all formats are called alike
    """Render one annotation for each rule and model."""
    together: dict[tuple[str, str, int], list[Finding]] = {}
    for model in report.models:
        for finding in model.findings:
            if finding.is_open:
                key = (model.path, finding.code, finding.severity.rank)
                together.setdefault(key, []).append(finding)
    ordered = sorted(together.items(), key=lambda item: -item[0][2])
    return "".join(f"{_annotation(path, found)}\n" for (path, _, _), found in ordered)


def _annotation(path: str, findings: list[Finding]) -> str:
    first = findings[0]
    places = [visible(finding.node or finding.output) for finding in findings]
    named = [place for place in places if place][:_NAMED]
    text = visible(first.message)
    if len(findings) > 1:
        text = f"{len(findings)} times: {text}"
    if named:
        more = f" and {len(findings) - len(named)} more" if len(findings) > len(named) else ""
        text += f" ({', '.join(named)}{more})"
    file, title = _property(visible(repository_path(path))), _property(f"normlint {first.code}")
    command = _COMMANDS[first.severity.value]
    return f"::{command} file={file},line=1,title={title}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
