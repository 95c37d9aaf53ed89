"""Markdown for the summary of a CI job, with pictures that GitHub and GitLab draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.report.excerpt import Excerpt, excerpt
from normlint.report.full import place_text
from normlint.report.groups import Group, grouped
from normlint.report.look import visible
from normlint.report.measure import MEASURED_HEAD, measured_cells
from normlint.report.mermaid import mermaid
from normlint.report.summary import summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report, Step

_MAX_PICTURES = 20
_MAX_PLACES = 50
_MAX_BYTES = 900 * 1024
"""A step summary of more than 1 MiB is refused."""
_SPECIAL = frozenset("\\`*_{}[]()<>#+!|~&@$\"'")


def markdown(report: Report, view: View) -> str:
    """Render the report; what would not fit is counted at the end."""
    parts = ["# normlint\n", "".join(f"- {text(line)}\n" for line in summary(report, view))]
    parts.append(_models(report))
    parts += [_measured(model) for model in report.models[:_MAX_PLACES] if model.measured]
    groups = [
        group
        for model in report.models
        for group in grouped(model, [f for f in model.findings if f.suppressed is None])
    ]
    groups.sort(key=lambda group: -group.first.severity.rank)
    size, pictures, left = sum(map(len, parts)), 0, 0
    for group in groups:
        drawn = excerpt(group.first) if pictures < _MAX_PICTURES else Excerpt()
        section = _section(group, drawn)
        if size + len(section.encode()) > _MAX_BYTES:
            left += 1
            continue
        size += len(section.encode())
        pictures += bool(drawn.before)
        parts.append(section)
    if left:
        parts.append(f"{left} more kinds of findings did not fit; the JSON document has them.\n")
    return "\n".join(parts)


def text(words: str) -> str:
    """Write text so that Markdown and HTML show it as it is."""
    return "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in visible(words))


def _models(report: Report) -> str:
    rows = ["| model | norms | errors | warnings | info |", "|---|---|---|---|---|"]
    for model in report.models[:_MAX_PLACES]:
        norms = ", ".join(f"{count} {kind}" for kind, count in model.norms.items())
        counts = [_open(model, severity) for severity in ("error", "warning", "info")]
        rows.append(f"| {text(model.path)} | {text(norms)} | {' | '.join(counts)} |")
    if len(report.models) > _MAX_PLACES:
        rows.append(f"| and {len(report.models) - _MAX_PLACES} more | | | | |")
    return "".join(f"{row}\n" for row in rows)


def _measured(model: ModelReport) -> str:
    """Give what the norms of a model saw on the user's data, closed at first."""
    rows: list[tuple[str, ...]] = [MEASURED_HEAD, ("---",) * len(MEASURED_HEAD)]
    rows += [measured_cells(norm) for norm in model.measured[:_MAX_PLACES]]
    lines = [f"| {' | '.join(map(text, cells))} |" for cells in rows]
    if len(model.measured) > _MAX_PLACES:
        lines.append(f"| and {len(model.measured) - _MAX_PLACES} more | | | | | | |")
    title = f"What the norms of {text(model.path)} saw on the data"
    return "\n".join(("<details><summary>" + title + "</summary>\n", *lines, "\n</details>\n"))


def _open(model: ModelReport, severity: str) -> str:
    return str(sum(f.is_open and f.severity.value == severity for f in model.findings))


def _section(group: Group, drawn: Excerpt) -> str:
    finding = group.first
    times = f" ({len(group)} times)" if len(group) > 1 else ""
    lines = [
        f"## {finding.code} {text(finding.rule)}: {text(group.model.path)}{times}\n",
        f"**{finding.severity.value}**: {text(finding.message)}\n",
    ]
    lines += _repair(finding)
    places = [f"- {text(_place(member, group))}" for member in group.findings if place_text(member)]
    if len(places) > _MAX_PLACES:
        places = [*places[:_MAX_PLACES], f"- and {len(places) - _MAX_PLACES} more"]
    if places:
        lines += ["<details><summary>Places</summary>\n", *places, "\n</details>\n"]
    if drawn.before:
        lines += _pictures(drawn)
    return "".join(f"{line}\n" for line in lines)


def _place(finding: Finding, group: Group) -> str:
    own = "" if finding.message == group.first.message else f": {finding.message}"
    return place_text(finding) + own


def _repair(finding: Finding) -> list[str]:
    if finding.fix is not None:
        state = "Repaired" if finding.fix.applied else "Repair"
        return [f"{state} ({finding.fix.applicability}): {text(finding.fix.title)}\n"]
    if finding.not_fixed is not None:
        missed = finding.not_fixed
        return [f"Not repaired, {missed.reason}: {text(missed.detail)} {text(missed.at)}\n"]
    return []


def _pictures(drawn: Excerpt) -> list[str]:
    lines = [f"{drawn.caption}\n", *_drawing(drawn.before)]
    if drawn.after:
        lines += ["repaired\n", *_drawing(drawn.after)]
    return lines


def _drawing(steps: Sequence[Step]) -> list[str]:
    return ["```mermaid", mermaid(steps).rstrip(), "```\n"]
