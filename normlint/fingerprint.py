"""Names for findings that survive a new export and new weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.results import Finding

_DIGITS = 16


def with_fingerprints(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Give the findings of one model with their fingerprints, in the same order.

    A fingerprint is made of the rule, the operators of what was found and its module path (else the
    name of its node, else of its output), with an ordinal where two are alike. Positions in the
    graph, weights, paths and line numbers are not in it.
    """
    seen: Counter[str] = Counter()
    marked = []
    for finding in findings:
        digest = _digest(finding)
        seen[digest] += 1
        ordinal = "" if seen[digest] == 1 else f"#{seen[digest]}"
        marked.append(replace(finding, fingerprint=f"{digest}{ordinal}"))
    return tuple(marked)


def _digest(finding: Finding) -> str:
    import hashlib

    ops = [step.op for step in finding.picture if step.role == "match"] or [finding.op_type]
    named = "" if finding.node.startswith("#") else finding.node
    anchor = finding.module or named or finding.output
    parts = ("normlint/v1", finding.code, *ops, anchor)
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:_DIGITS]
