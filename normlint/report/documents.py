"""The JSON documents of a check: one whole, or one finding a line."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from normlint import __version__
from normlint.digits import shortest
from normlint.rule import Severity

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report

SCHEMA = "normlint/check/1"


def as_json(report: Report, view: View) -> str:
    """Render the document `normlint/check/1`."""
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "models": [_model(model, view) for model in report.models],
        "summary": _summary(report, view),
    }
    return dumps(document, indent=1)


def as_json_lines(report: Report, view: View) -> str:
    """Render one finding a line, each with its model, and the summary as the last line."""
    lines: list[dict[str, Any]] = [
        {"type": "finding", "path": model.path, **_finding(finding)}
        for model in report.models
        for finding in model.findings
    ]
    lines.append({"type": "summary", **_summary(report, view)})
    return "".join(dumps(line) for line in lines)


def dumps(document: object, indent: int | None = None) -> str:
    """Write JSON that every parser takes: no NaN, no lone surrogates, a line break at the end."""
    text = json.dumps(plain(document), indent=indent, allow_nan=False)
    # CI servers take `##[` and the like for commands wherever they stand in a log.
    return text.replace("##", r"#\u0023") + "\n"


def plain(value: Any) -> Any:
    """Give a value in types that JSON has; numbers that JSON has not become text."""
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, float):
        return shortest(value) if math.isfinite(value) else str(value)
    return plain(value.item()) if hasattr(value, "item") else str(value)


def _model(model: ModelReport, view: View) -> dict[str, Any]:
    document = {
        "path": model.path,
        "producer": model.producer,
        "opset": model.opset,
        "nodes": model.nodes,
        "norms": model.norms,
        "readable": model.readable,
        "findings": [_finding(finding) for finding in model.findings],
        "written": None if model.written is None else asdict(model.written),
    }
    if model.reference is not None:
        document["reference"] = plain(model.reference)
    if model.measured:
        document["measured"] = list(model.measured)
    if view.misses:
        document["near_norms"] = list(model.near_norms)
    if view.diff:
        document["changes"] = list(model.changes)
    return document


def _finding(finding: Finding) -> dict[str, Any]:
    # Pictures are not in the documents, and copying them takes long.
    fix = finding.fix and replace(finding.fix, picture=())
    document = asdict(replace(finding, picture=(), fix=fix))
    document.pop("picture")
    if document["fix"] is not None:
        document["fix"].pop("picture")
    return document


def _summary(report: Report, view: View) -> dict[str, Any]:
    return {
        "models": len(report.models),
        "findings": {s.value: report.count(s) for s in Severity},
        "fixed": report.fixed,
        "suppressed": report.suppressed,
        "exit_code": view.verdict.code,
    }
