"""What a rule says of itself, read from its file without running it.

The code, severity and page of a rule are plain values in a class body. Reading them keeps the
table of rules, their selection and the report on a file that is no model free of what rules import.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from normlint.rule import Applicability, Severity

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.rule import Rule


@dataclass(frozen=True)
class Card:
    """A rule, as tables and selections know it."""

    code: str
    name: str
    """The name of its file, with dashes."""
    title: str
    """The name of its class."""
    severity: Severity = Severity.WARNING
    applicability: Applicability | None = None
    preview: bool = False
    page: str = ""
    """The docstring, as Markdown."""
    has_examples: bool = False

    @property
    def complaint(self) -> str:
        """The first paragraph of the page, as one line."""
        return " ".join(self.page.partition("\n\n")[0].split())


def card_of(rule: Rule) -> Card:
    """Give the card of a rule that is loaded."""
    return Card(
        code=rule.code,
        name=rule.name,
        title=type(rule).__name__,
        severity=rule.severity,
        applicability=rule.applicability,
        preview=rule.preview,
        page=inspect.cleandoc(type(rule).__doc__ or ""),
        has_examples=bool(rule.bad),
    )


@lru_cache(64)  # most models of a run have the same rules
def without_pages(rules: tuple[Card, ...]) -> tuple[Card, ...]:
    """Give the same cards without their pages, to hand to another process."""
    return tuple(replace(rule, page="") for rule in rules)


def read_card(file: Path) -> Card | None:
    """Read the card of a rule's file; None where its values are not plain."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    classes = [item for item in tree.body if isinstance(item, ast.ClassDef)]
    rules = [item for item in classes if any(_is_rule(base) for base in item.bases)]
    # A class that derives from another one of the file, or of another pack, inherits unseen values.
    if len(rules) != 1 or not all(isinstance(base, ast.Name) for base in rules[0].bases):
        return None
    return _card(rules[0], file.stem.replace("_", "-"))


def _is_rule(base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and base.id == "Rule"


def _card(rule: ast.ClassDef, name: str) -> Card | None:
    page = ast.get_docstring(rule)
    values = {
        target.id: item.value
        for item in rule.body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    }
    code = values.get("code")
    if not page or not isinstance(code, ast.Constant) or not isinstance(code.value, str):
        return None
    try:
        severity = _member(values.get("severity"), "Severity", Severity.WARNING.name)
        applicability = _member(values.get("applicability"), "Applicability", "")
        preview = values.get("preview")
        return Card(
            code=code.value,
            name=name,
            title=rule.name,
            severity=Severity[severity],
            applicability=Applicability[applicability] if applicability else None,
            preview=preview is not None and bool(ast.literal_eval(preview)),
            page=page,
            has_examples="bad" in values,
        )
    except (KeyError, ValueError):
        return None


def _member(value: ast.expr | None, enumeration: str, default: str) -> str:
    """Give the name of a member of an enumeration, as in `Severity.ERROR`."""
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return default
    if (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == enumeration
    ):
        return value.attr
    raise ValueError(f"{enumeration} is not written as a member of it")
