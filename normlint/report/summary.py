"""The last lines of a run: how much was found, what can be repaired, and why it failed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from normlint.report.look import visible
from normlint.rule import Severity

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report

_NAMED = 8


def plural(count: int, noun: str) -> str:
    """Give `1 model`, `2 models`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def summary(report: Report, view: View) -> list[str]:
    """Give the summary as lines."""
    lines = [_found(report)]
    if report.fixed:
        lines.append(f"{plural(report.fixed, 'finding')} repaired.")
    lines += [_compared(model) for model in report.models if model.reference is not None]
    lines += _written(report)
    lines += _fixable(report, view)
    if view.verdict.why:
        lines.append(f"Exit {view.verdict.code}: {view.verdict.why}.")
    return lines


def _compared(model: ModelReport) -> str:
    """Say how far a model is from the float model, before its repairs and after."""
    found = model.reference or {}
    before, after = found["before"], found["after"]
    kept = "" if found["kept"] else " The unsafe repairs were not made, for they do not help."
    return (
        f"Against {visible(found['path'])} on {plural(found['samples'], 'sample')}: "
        f"relative error {before['relative_error']:.3g} → {after['relative_error']:.3g}, "
        f"cosine {before['cosine']:.4f} → {after['cosine']:.4f}, "
        f"SQNR {before['sqnr']:.1f} → {after['sqnr']:.1f} dB.{kept}"
    )


def _written(report: Report) -> list[str]:
    written = [model.written for model in report.models if model.written is not None]
    lines = [
        f"Wrote {visible(file.path)} ({file.nodes_before} → {file.nodes_after} nodes, "
        f"was sha256 {file.sha256_before[:12]}…)."
        for file in written[:_NAMED]
    ]
    if len(written) > _NAMED:
        lines.append(f"Wrote {len(written) - _NAMED} more.")
    return lines


def _found(report: Report) -> str:
    models = plural(len(report.models), "model")
    counts = [(severity.value, report.count(severity)) for severity in Severity]
    total = sum(count for _, count in counts)
    if total:
        parts = [plural(n, name) if name != "info" else f"{n} info" for name, n in counts if n]
        text = f"Found {plural(total, 'finding')} in {models} ({', '.join(parts)})"
    else:
        text = f"No findings in {models}" if not report.fixed else f"Nothing remains in {models}"
    kinds = Counter(f.suppressed.kind for f in report.findings if f.suppressed is not None)
    if kinds:
        said = ", ".join(f"{count} {_KINDS[kind]}" for kind, count in sorted(kinds.items()))
        text += f", {report.suppressed} suppressed ({said})"
    return f"{text}."


_KINDS = {"baseline": "baseline", "config": "configuration", "model": "in-model"}


def fixable(finding: Finding, applicability: str) -> bool:
    """Say whether a finding that counts has an offer of a repair of this kind."""
    fix = finding.fix
    return fix is not None and finding.is_open and fix.applicability == applicability


def _fixable(report: Report, view: View) -> list[str]:
    safe = sum(fixable(finding, "safe") for finding in report.findings)
    unsafe = sum(fixable(finding, "unsafe") for finding in report.findings)
    if view.unsafe:
        both = safe + unsafe
        return [f"[*] {both} fixable with --apply --unsafe-fixes."] if both else []
    if safe:
        more = f" ({unsafe} more with --unsafe-fixes)" if unsafe else ""
        return [f"[*] {safe} fixable with --apply{more}."]
    return [f"{unsafe} fixable with --apply --unsafe-fixes."] if unsafe else []


def statistics(report: Report) -> list[str]:
    """Give the counts of open findings by rule, the most frequent first, as lines."""
    counts = Counter(
        (finding.code, finding.rule, fixable(finding, "safe"))
        for finding in report.findings
        if finding.is_open
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    width = max((len(str(count)) for count in counts.values()), default=1)
    return [
        f"{count:>{width}}  {code}  [{'*' if fix else ' '}] {rule}"
        for (code, rule, fix), count in ordered
    ]
