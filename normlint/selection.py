"""Which rules run: codes, prefixes and names, the more precise one winning."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.rule import Severity
from normlint.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from normlint.cards import Card

ALL = "ALL"
OFF = "off"
LEVELS = (*(severity.value for severity in Severity), OFF)
_PREFIX = re.compile(r"[A-Z]+[0-9]*")
_EXACT = 100
UNREADABLE = ("NL902", "NL903", "NL904", "NL905", "NL906", "NL907", "NL990")
"""Reported whatever is selected, unless ignored: a file that was not checked never passes."""

BEFORE_QUANTIZATION = (
    *("NL101", "NL102", "NL103", "NL105"),
    *("NL201", "NL202", "NL203", "NL204", "NL205", "NL206"),
    "NL404",
)
"""What must be done in float, before a quantiser: folds, operators, RMSNorms, smoothing."""


@dataclass(frozen=True)
class Selection:
    """What the user selected."""

    select: tuple[str, ...] = ()
    """Empty for the default: all rules but those in preview."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    preview: bool = False


def matches(selector: str, rule: Card) -> int:
    """Give how precisely a selector names a rule: 0 not at all, more for a longer prefix."""
    wanted = selector.strip()
    if wanted.upper() == ALL:
        return 1
    if wanted.upper() == rule.code or wanted.casefold() == rule.name:
        return _EXACT
    if _PREFIX.fullmatch(wanted.upper()) and rule.code.startswith(wanted.upper()):
        return 1 + len(wanted)
    return 0


def require_known(selectors: Iterable[str], rules: Sequence[Card], where: str) -> None:
    """Raise `UsageError` for a selector that names no rule."""
    for selector in selectors:
        if any(matches(selector, rule) for rule in rules):
            continue
        known = [name for rule in rules for name in (rule.code, rule.name)]
        raise UsageError(
            f"{where}: unknown rule {selector!r}{did_you_mean(selector, known)} "
            "(normlint rules lists them)"
        )


def selected(rules: Sequence[Card], wanted: Selection) -> tuple[Card, ...]:
    """Give the rules that run, in their order."""
    return _selected(tuple(rules), wanted)


@lru_cache(64)  # most models of a run have the same selection
def _selected(rules: tuple[Card, ...], wanted: Selection) -> tuple[Card, ...]:
    return tuple(rule for rule in rules if _runs(rule, wanted))


def _runs(rule: Card, wanted: Selection) -> bool:
    against = max((matches(selector, rule) for selector in wanted.ignore), default=0)
    if rule.code in UNREADABLE:
        return against == 0
    choices = (*(wanted.select or (ALL,)), *wanted.extend_select)
    chosen = max(matches(selector, rule) for selector in choices)
    if rule.preview and not wanted.preview and chosen < _EXACT:
        return False
    return chosen > against


def require_levels(severity: Mapping[str, str], where: str) -> None:
    """Raise `UsageError` for a severity that there is not."""
    for selector, level in severity.items():
        if level not in LEVELS:
            raise UsageError(
                f"{where}: severity of {selector} is one of {', '.join(LEVELS)}, not {level!r}"
                f"{did_you_mean(level, LEVELS)}"
            )


def level_of(rule: Card, severity: Mapping[str, str]) -> str | None:
    """Give the severity that the user set for a rule; None where it has its own."""
    ranked = [(matches(selector, rule), level) for selector, level in severity.items()]
    precision, level = max(ranked, default=(0, ""), key=lambda pair: pair[0])
    return level if precision else None
