"""Whether unsafe repairs bring a model nearer to the float model that it was made from."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from normlint.results import NotFixedReport
from normlint.rule import Applicability, Reason

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.context import Settings
    from normlint.model import ModelFile
    from normlint.repair import Repaired
    from normlint.results import Finding


def is_unsafe(finding: Finding) -> bool:
    """Whether a repair changes the function."""
    return finding.fix is not None and finding.fix.applicability == Applicability.UNSAFE


def judged(
    model: ModelFile, result: Repaired, settings: Settings, reference: Path | None
) -> dict[str, Any] | None:
    """Compare unsafe repairs with the float model; None without one, or without such repairs.

    Without one, repairs whose evidence holds a `limit` are compared with the model as it was: they
    may move its outputs by so much.
    """
    unsafe = [finding for finding in result.fixed if is_unsafe(finding)]
    limits = [finding.evidence["limit"] for finding in unsafe if "limit" in finding.evidence]
    if settings.data is None or not unsafe or (reference is None and not limits):
        return None
    from normlint.measure import Judge, read_samples

    judge = Judge(model, reference, read_samples(settings.data))
    found = judge.compare(result.proto, result.new_values)
    return {
        "path": found.reference,
        "samples": found.samples,
        "before": asdict(found.before),
        "after": asdict(found.after),
        "kept": found.helps if reference else found.after.relative_error <= min(limits),
    }


def with_refusals(
    findings: list[Finding], refused: list[Finding], compared: dict[str, Any] | None
) -> list[Finding]:
    """Say of findings whose unsafe repair did not help why it was not made."""
    if compared is None or not refused:
        return findings
    places = {(finding.code, finding.output) for finding in refused}
    before, after = (compared[key]["relative_error"] for key in ("before", "after"))
    detail = (
        f"the outputs would be off by {after:.3g} against the reference, and are by {before:.3g}"
    )
    reason = NotFixedReport(Reason.VERIFICATION.value, "", detail)
    return [
        replace(finding, fix=None, not_fixed=reason)
        if (finding.code, finding.output) in places
        else finding
        for finding in findings
    ]
