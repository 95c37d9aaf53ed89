"""Every rule of every installed pack keeps its word."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from normlint.plugins import load_rules
from normlint.testing import Example, check_example, examples

if TYPE_CHECKING:
    from normlint.rule import Rule

RULES = load_rules()
ABOUT_FILES = ("NL9",)
"""Codes of findings that no graph can show."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_a_page(rule: Rule) -> None:
    page = inspect.cleandoc(type(rule).__doc__ or "")
    first, *rest = page.splitlines()

    assert first.endswith(".")
    assert len(rest) > 2
    assert "## " in page


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_examples(rule: Rule) -> None:
    if rule.code.startswith(ABOUT_FILES):
        assert not rule.bad
        return

    assert rule.bad
    assert rule.good


@pytest.mark.parametrize(
    "example", [example for rule in RULES for example in examples(rule)], ids=str
)
def test_example(example: Example) -> None:
    check_example(example)


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.applicability is not None], ids=lambda rule: rule.name
)
def test_a_rule_that_repairs_shows_a_repair(rule: Rule) -> None:
    from normlint.testing import repaired_text

    assert any(repaired_text(example) for example in examples(rule) if not example.good)
