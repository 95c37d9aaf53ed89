from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from normlint import plugins
from normlint.cards import Card, card_of, read_card
from normlint.plugins import load_cards, load_rules
from normlint.rule import Applicability, Severity

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = '''
from normlint.rule import Applicability, Rule, Severity

HELPER = 1

class SomeNorm(Rule):
    """Complains of it,
    at length.

    More.
    """

    code = "X101"
    severity = Severity.ERROR
    applicability = Applicability.SAFE
    preview = True
    bad = ("...",)
'''


def read(folder: Path, text: str) -> Card | None:
    file = folder / "some_norm.py"
    file.write_text(text)
    return read_card(file)


def test_a_card_is_read_without_running_the_rule(tmp_path: Path) -> None:
    card = read(tmp_path, f"{PLAIN}\nraise SystemExit\n")

    assert card == Card(
        code="X101",
        name="some-norm",
        title="SomeNorm",
        severity=Severity.ERROR,
        applicability=Applicability.SAFE,
        preview=True,
        page="Complains of it,\nat length.\n\nMore.",
        has_examples=True,
    )
    assert card.complaint == "Complains of it, at length."


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    card = read(
        tmp_path, 'class A(Rule):\n    """P."""\n    code = "X1"\n    applicability = None\n'
    )

    assert card == Card("X1", "some-norm", "A", page="P.")


@pytest.mark.parametrize(
    "text",
    [
        "class A(Rule",
        "x = 1",
        PLAIN + PLAIN,
        PLAIN.replace("(Rule)", "(Rule, normlint.Other)"),
        PLAIN.replace("(Rule)", "(Other)"),
        PLAIN.replace('"X101"', "CODE"),
        PLAIN.replace('"X101"', "101"),
        PLAIN.replace("Severity.ERROR", "LEVELS[0]"),
        PLAIN.replace("Severity.ERROR", "Severity.FATAL"),
        PLAIN.replace("preview = True", "preview = PREVIEW"),
        "class A(Rule):\n    code = 'X101'\n",
    ],
)
def test_what_is_not_plain_is_left_to_an_import(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text) is None


def test_cards_read_and_cards_of_rules_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = load_rules()
    load_rules.cache_clear()
    try:
        cards = load_cards()
        assert load_rules.cache_info().currsize == 0
    finally:
        load_rules()

    assert cards == tuple(card_of(rule) for rule in rules)
    monkeypatch.setattr(plugins, "read_card", lambda _: None)
    plugins._read_cards.cache_clear()
    assert plugins._read_cards() == cards
