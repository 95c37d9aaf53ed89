"""Cards as a table and as pages."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from normlint.plugins import load_cards, rule_of
from normlint.report.documents import dumps
from normlint.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.cards import Card

SCHEMA = "normlint/rules/1"


def rule_named(word: str) -> Card:
    """Give the rule with this code or name. Raises `UsageError`."""
    rules = load_cards()
    for rule in rules:
        if word.upper() == rule.code or word.casefold() == rule.name:
            return rule
    known = [name for rule in rules for name in (rule.code, rule.name)]
    raise UsageError(f"unknown rule {word!r}{did_you_mean(word, known)}")


def repair(rule: Card) -> str:
    """Give the applicability of a rule's repair, or a dash."""
    return rule.applicability.value if rule.applicability is not None else "–"


def page(rule: Card) -> str:
    """Render a rule's page for a terminal: its docstring, its first example before and after."""
    first, _, rest = rule.page.partition("\n")
    parts = [f"{rule.code} {rule.name}", ", ".join(_facts(rule)), "", first, rest.rstrip()]
    for title, text in _example(rule):
        parts += ["", f"## {title}", "", text]
    parts += ["", _ADVICE.format(code=rule.code)]
    return "".join(f"{part}\n" for part in parts)


def markdown_page(rule: Card) -> str:
    """Render the same page as Markdown."""
    parts = [f"# {rule.code} {rule.name}", "", ", ".join(_facts(rule)), "", rule.page.rstrip()]
    for title, text in _example(rule):
        parts += ["", f"## {title}", "", "```text", text, "```"]
    parts += ["", _ADVICE.format(code=rule.code)]
    return "".join(f"{part}\n" for part in parts)


_ADVICE = "To ignore it: --ignore {code}, or `ignore` in normlint.toml."


def _facts(rule: Card) -> list[str]:
    facts = [f"severity: {rule.severity.value}", f"repair: {repair(rule)}"]
    if rule.preview:
        facts.append("in preview: runs with --preview or when named")
    return facts


def _example(card: Card) -> list[tuple[str, str]]:
    """Give the first example with its titles: as it is reported, and repaired where it can be."""
    rule = rule_of(card.code) if card.has_examples else None
    if rule is None or not rule.bad:
        return []
    from normlint.testing import examples, repaired_text

    example = examples(rule)[0]
    shown = [("Reported, for example", inspect.cleandoc(example.text))]
    after = repaired_text(example) if card.applicability is not None else ""
    return [*shown, ("Repaired", after)] if after else shown


def table(rules: Sequence[Card], form: str) -> str:
    """Render the table of rules as text, json or markdown."""
    if form == "json":
        return dumps({"schema": SCHEMA, "rules": [_entry(rule) for rule in rules]}, indent=1)
    rows = [_row(rule) for rule in rules]
    if form == "markdown":
        head = ["| code | name | severity | repair | says |", "|---|---|---|---|---|"]
        cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return "".join(f"{line}\n" for line in [*head, *(f"| {' | '.join(c)} |" for c in cells)])
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    return "".join(f"{_aligned(row, widths)}\n" for row in rows)


def _aligned(row: list[str], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join([*cells, row[-1]])


def _row(rule: Card) -> list[str]:
    name = f"{rule.name} (preview)" if rule.preview else rule.name
    return [rule.code, name, rule.severity.value, repair(rule), rule.complaint]


def _entry(rule: Card) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "fix": None if rule.applicability is None else rule.applicability.value,
        "preview": rule.preview,
        "summary": rule.complaint,
        "page": rule.page,
    }
