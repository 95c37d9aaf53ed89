"""One line for each finding, and the same put together by model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.report.full import finish, mark
from normlint.report.look import SEVERITY, visible
from normlint.report.summary import plural

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report


def concise(report: Report, view: View) -> str:
    """Render one line for each finding: path, node, code, message."""
    lines = [
        _line(model, finding, view)
        for model in report.models
        for finding in model.findings
        if finding.suppressed is None
    ]
    lines += [visible(change) for model in report.models if view.diff for change in model.changes]
    return finish(lines, report, view)


def _line(model: ModelReport, finding: Finding, view: View) -> str:
    place = finding.node or finding.output
    parts = [visible(part) for part in (model.path, place) if part]
    return f"{view.look(':'.join(parts), 'bold')}: {_said(finding, view)}"


def _said(finding: Finding, view: View) -> str:
    code = view.look(finding.code, SEVERITY[finding.severity.value])
    return f"{code}{mark(finding, view)} {finding.severity.value}: {visible(finding.message)}"


def by_model(report: Report, view: View) -> str:
    """Render the findings under the name of their model."""
    blocks = []
    for model in report.models:
        shown = [finding for finding in model.findings if finding.suppressed is None]
        if not shown:
            continue
        count = plural(len(shown), "finding")
        lines = [f"{view.look(visible(model.path), 'bold')}  ({count})"]
        for finding in shown:
            place = visible(finding.node or finding.output)
            lines.append(f"  {_said(finding, view)}{f'  [{place}]' if place else ''}")
        blocks.append("\n".join((*lines, "")))
    return finish(blocks, report, view)
