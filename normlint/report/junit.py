"""JUnit XML, as CI servers show it: a suite for each model, a case for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from normlint.report.full import place_text
from normlint.report.look import visible

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report


def junit(report: Report, view: View) -> str:  # noqa: ARG001 - all formats are called alike
    """Render the document. A model without findings is one case that passes."""
    root = Element("testsuites", name="normlint")
    for model in report.models:
        _suite(root, model)
    _count(root)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(root: Element, model: ModelReport) -> None:
    path = visible(model.path)
    suite = SubElement(root, "testsuite", name=path, file=path, time="0")
    cases = [
        finding for finding in model.findings if finding.fix is None or not finding.fix.applied
    ]
    for finding in cases:
        _case(suite, path, finding, readable=model.readable)
    if not cases:
        SubElement(suite, "testcase", classname=path, name="normlint", time="0")
    _count(suite)


def _case(suite: Element, path: str, finding: Finding, *, readable: bool) -> None:
    name = f"{finding.code} {visible(finding.node or finding.output or finding.rule)}"
    case = SubElement(suite, "testcase", classname=path, name=name, file=path, line="1", time="0")
    message = visible(finding.message)
    if finding.suppressed is not None:
        reason = f"{finding.suppressed.kind}: {finding.suppressed.reason}".rstrip(": ")
        SubElement(case, "skipped", message=visible(reason))
        return
    failure = SubElement(
        case, "failure" if readable else "error", type=finding.code, message=message
    )
    failure.text = f"{finding.severity.value}: {message}\n{place_text(finding)}".rstrip()


def _count(element: Element) -> None:
    """Write the counts of all cases within into an element."""
    for key, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(key, str(sum(1 for _ in element.iter(tag))))
    element.set("skipped", str(sum(1 for _ in element.iter("skipped"))))
