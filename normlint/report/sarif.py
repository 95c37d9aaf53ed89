"""SARIF 2.1.0, as GitHub code scanning accepts it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/ and
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlint import __version__
from normlint.report.documents import dumps
from normlint.report.look import visible
from normlint.report.places import said, source_place, uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.cards import Card
    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEM = {"error": "error", "warning": "warning", "info": "recommendation"}
_MAX_RESULTS = 25_000
_MAX_TEXT = 1024


def sarif(report: Report, view: View) -> str:
    """Render the document. Findings that do not count are left out: GitHub would open alerts."""
    results = [
        (number, finding)
        for number, model in enumerate(report.models)
        for finding in model.findings
        if finding.is_open
    ]
    results.sort(key=lambda result: -result[1].severity.rank)
    kept = results[:_MAX_RESULTS]
    index = {rule.code: number for number, rule in enumerate(view.rules)}
    run = {
        "tool": {"driver": _driver(view.rules)},
        "automationDetails": {"id": "normlint/"},
        "artifacts": [{"location": {"uri": uri(model.path)}} for model in report.models],
        "invocations": [_invocation(report, view, len(results) - len(kept))],
        "results": [_result(report.models[n], n, finding, index) for n, finding in kept],
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _driver(rules: Iterable[Card]) -> dict[str, Any]:
    return {
        "name": "normlint",
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in rules],
    }


def _rule(rule: Card) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.title,
        "shortDescription": {"text": rule.complaint[:_MAX_TEXT]},
        "fullDescription": {"text": rule.complaint[:_MAX_TEXT]},
        "help": {"text": rule.page, "markdown": rule.page},
        "defaultConfiguration": {"level": _LEVELS[rule.severity.value]},
        "properties": {
            "tags": ["onnx", "normalization"],
            "precision": "very-high",
            "problem.severity": _PROBLEM[rule.severity.value],
        },
    }


def _invocation(report: Report, view: View, left_out: int) -> dict[str, Any]:
    notes = [
        {
            "level": "error",
            "message": {"text": visible(f"{model.path} was not checked: {finding.message}")},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(model.path)}}}],
        }
        for model in report.models
        if not model.readable
        for finding in model.findings
        if finding.is_open
    ]
    if left_out:
        text = f"{left_out} findings were left out: code scanning takes {_MAX_RESULTS}"
        notes.append({"level": "warning", "message": {"text": text}})
    return {
        "executionSuccessful": True,
        "exitCode": view.verdict.code,
        "toolExecutionNotifications": notes,
    }


def _result(
    model: ModelReport, number: int, finding: Finding, index: dict[str, int]
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "kind": "fail",
        "level": _LEVELS[finding.severity.value],
        "message": {"text": _message(finding)},
        "locations": [_location(model, number, finding)],
        "partialFingerprints": {
            "primaryLocationLineHash": f"{finding.fingerprint}:1",
            "normlintMatch/v1": finding.fingerprint,
        },
        "properties": _properties(finding),
    }
    if finding.code in index:
        result["ruleIndex"] = index[finding.code]
    if finding.source and (place := source_place(finding.source)):
        result["relatedLocations"] = [_written(*place)]
    return result


def _written(uri: str, line: int) -> dict[str, Any]:
    """Give the place in the source of the network."""
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}},
        "message": {"text": "written here"},
    }


def _message(finding: Finding) -> str:
    place = said(finding.node, finding.output)
    text = f"{visible(finding.message).rstrip('.')}{place}."
    if finding.fix is not None:
        unsafe = " --unsafe-fixes" if finding.fix.applicability == "unsafe" else ""
        text += f" Repair: {visible(finding.fix.title)} (normlint check --apply{unsafe})."
    return text


def _location(model: ModelReport, number: int, finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri(model.path), "index": number},
            # A model has no lines, but a result without a region is not shown on some pages.
            "region": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1},
        }
    }
    name = finding.node or finding.output
    if name:
        location["logicalLocations"] = [
            {"name": name, "fullyQualifiedName": f"{finding.graph}/{name}", "kind": "onnx.node"}
        ]
    return location


def _properties(finding: Finding) -> dict[str, Any]:
    properties: dict[str, Any] = {"normlint/nodes": list(finding.nodes)}
    if finding.op_type:
        properties["normlint/opType"] = finding.op_type
    if finding.module:
        properties["normlint/module"] = finding.module
    if finding.source:
        properties["normlint/source"] = finding.source
    if finding.fix is not None:
        properties["normlint/fix"] = {
            "safety": finding.fix.applicability,
            "description": finding.fix.title,
        }
    if finding.not_fixed is not None:
        properties["normlint/notFixed"] = finding.not_fixed.reason
    return properties
