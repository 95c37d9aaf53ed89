"""GitLab's code quality report: https://docs.gitlab.com/ci/testing/code_quality/."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from normlint.report.documents import dumps
from normlint.report.look import visible
from normlint.report.places import repository_path, said

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report

_SEVERITIES = {"error": "major", "warning": "minor", "info": "info"}


def gitlab(report: Report, view: View) -> str:  # noqa: ARG001 - all formats are called alike
    """Render the list of open findings."""
    entries = [
        _entry(model, finding)
        for model in report.models
        for finding in model.findings
        if finding.is_open
    ]
    return dumps(entries, indent=1)


def _entry(model: ModelReport, finding: Finding) -> dict[str, Any]:
    path = repository_path(model.path)
    # Findings with one fingerprint are merged, whatever their file.
    unique = f"{path}\0{finding.fingerprint}".encode("utf-8", "surrogateescape")
    place = said(finding.node, finding.output)
    return {
        "description": f"{visible(finding.message)}{place}",
        "check_name": f"{finding.code} {finding.rule}",
        "fingerprint": hashlib.sha256(unique).hexdigest(),
        "severity": _SEVERITIES[finding.severity.value] if model.readable else "blocker",
        "location": {"path": path, "lines": {"begin": 1}},
    }
