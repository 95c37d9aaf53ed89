"""A file of known findings, so that a run fails for new ones only.

A finding is known by its fingerprint, or else counted: as many of a rule in a model as the file
knows may be there under other fingerprints, after a new export for example. One more, and all that
the file does not know by fingerprint are shown.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlint import __version__
from normlint.deferred import dataclass
from normlint.discover import relative_to
from normlint.fingerprint import with_fingerprints
from normlint.model.remote import is_url
from normlint.results import Finding, Suppressed
from normlint.rule import Severity
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from normlint.results import ModelReport

FILE = "normlint-baseline.json"
VERSION = 1
STALE = "NL901"

Entries = dict[str, list[str]]
"""Fingerprints of the known findings of one model, by the rule's code."""


@dataclass(frozen=True)
class Baseline:
    """Known findings by model. The models' paths are relative to the folder of the file, `path`."""

    path: Path
    models: Mapping[str, Entries] = field(default_factory=dict)

    def key(self, model: str) -> str:
        """Give the name under which a model stands in the file: relative to it, or a URL."""
        if is_url(model):
            return model
        return relative_to(Path(model), self.path.absolute().parent)

    def of(self, model: str) -> Entries:
        """Give what is known of a model."""
        return self.models.get(self.key(model), {})


def read(path: Path) -> Baseline:
    """Read a baseline. Raises `UsageError` where it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise UsageError(
                f"{path} is a baseline of version {document['version']}, not {VERSION}"
            )
        models = {
            str(model): {
                str(code): [str(fingerprint) for fingerprint in entry["fingerprints"]]
                for code, entry in codes.items()
            }
            for model, codes in document["models"].items()
        }
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no baseline: {error!r}") from error
    return Baseline(path, models)


def text(baseline: Baseline) -> str:
    """Give the file's text: sorted, so that a change of it reads well."""
    models = {
        model: {
            code: {"count": len(known), "fingerprints": sorted(known)}
            for code, known in sorted(entries.items())
            if known
        }
        for model, entries in sorted(baseline.models.items())
    }
    document: dict[str, Any] = {
        "version": VERSION,
        "tool": __version__,
        "models": {model: entries for model, entries in models.items() if entries},
    }
    return json.dumps(document, indent=2) + "\n"


def known_of(model: ModelReport) -> Entries:
    """Give the open findings of a model as entries. What is wrong with the file is never known."""
    entries: Entries = {}
    for finding in model.findings:
        if finding.is_open and model.readable and finding.code != STALE:
            entries.setdefault(finding.code, []).append(finding.fingerprint)
    return entries


def matched(findings: Collection[Finding], entries: Entries) -> set[str]:
    """Give the fingerprints of the findings of one model that its entries know."""
    known: set[str] = set()
    for code, fingerprints in entries.items():
        mine = {f.fingerprint for f in findings if f.code == code and f.suppressed is None}
        exact = mine.intersection(fingerprints)
        known |= exact
        if len(mine) <= len(fingerprints):
            known |= mine
    return known


def with_baseline(
    model: ModelReport, baseline: Baseline, codes: Collection[str]
) -> tuple[ModelReport, list[str]]:
    """Mark the known findings of a model, and add one (NL901) where the file knows too many.

    `codes` are the rules that ran. Gives the report and what is worth saying about it.
    """
    entries = {code: known for code, known in baseline.of(model.path).items() if code in codes}
    if not entries or not model.readable:
        return model, []
    known = matched(model.findings, entries)
    why = Suppressed("baseline", baseline.path.name)
    findings = [
        replace(f, suppressed=why) if f.is_open and f.fingerprint in known else f
        for f in model.findings
    ]
    found = Counter(f.code for f in model.findings if f.suppressed is None)
    notes = [
        f"{model.path}: {len(listed)} of {code} were baselined, {found[code]} found"
        for code, listed in sorted(entries.items())
        if found[code] > len(listed)
    ]
    gone = sum(max(0, len(listed) - found[code]) for code, listed in entries.items())
    if gone and STALE in codes:
        findings += with_fingerprints([_stale(baseline, gone)])
    return replace(model, findings=tuple(findings)), notes


def _stale(baseline: Baseline, gone: int) -> Finding:
    were = "finding that is" if gone == 1 else "findings that are"
    message = f"{baseline.path.name} knows {gone} {were} gone: normlint baseline prune removes them"
    evidence = {"from": "baseline", "gone": gone}
    # Whoever repairs what is known should not see the run fail for it.
    return Finding(STALE, "stale-ignore", Severity.INFO, message, evidence=evidence)
