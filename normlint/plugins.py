"""Rule packs: packages found through the entry-point group `normlint.rules`, one rule a file."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from normlint.cards import Card, card_of, read_card
from normlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint
    from types import ModuleType

GROUP = "normlint.rules"
_CODE = re.compile(r"[A-Z]+[0-9]{3,4}")


class _Named(Protocol):
    @property
    def code(self) -> str: ...
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


class PackError(Exception):
    """A pack of rules cannot be used; the message says which and why."""


@cache
def load_rules() -> tuple[Rule, ...]:
    """Give the rules of every installed pack, in the order of their codes.

    Raises `PackError` where a pack is broken or two packs claim one code or one name.
    """
    return collect(rule for entry in _entries() for rule in _pack(entry))


def load_cards() -> tuple[Card, ...]:
    """Give the cards of the same rules, without importing what need not be. Raises `PackError`."""
    if load_rules.cache_info().currsize:
        return tuple(card_of(rule) for rule in load_rules())
    return _read_cards()


@cache
def _read_cards() -> tuple[Card, ...]:
    return collect(card for entry in _entries() for card in _pack_cards(entry))


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def collect(rules: Iterable[T]) -> tuple[T, ...]:
    """Order rules by code; raise `PackError` where two share a code or a name."""
    seen: dict[str, T] = {}
    ordered = sorted(rules, key=lambda rule: rule.code)
    for rule in ordered:
        for key in (rule.code, rule.name):
            other = seen.setdefault(key, rule)
            if other is not rule:
                raise PackError(f"{_place(rule)} and {_place(other)} are both called {key}")
    return tuple(ordered)


def rule_of(code: str) -> Rule | None:
    """Give the installed rule with this code."""
    return next((rule for rule in load_rules() if rule.code == code), None)


def _pack_cards(entry: EntryPoint) -> Iterator[Card]:
    spec = find_spec(entry.value) if "." not in entry.value else None
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(file for folder in folders for file in Path(folder).glob("[!_]*.py"))
    cards = [card for card in map(read_card, files) if card is not None]
    if not cards or len(cards) < len(files) or not all(_CODE.fullmatch(c.code) for c in cards):
        # Something is not as plain as usual, or wrong: importing it says what.
        cards = [card_of(rule) for rule in _pack(entry)]
    yield from cards


def _pack(entry: EntryPoint) -> Iterator[Rule]:
    package = _import(entry.value, entry)
    if not hasattr(package, "__path__"):
        raise _broken(entry, f"{entry.value} is no package; a pack is a package of rule files")
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            yield _rule(_import(f"{entry.value}.{info.name}", entry), entry)


def _import(name: str, entry: EntryPoint) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _broken(entry, f"{name} does not import: {error!r}") from error


def _rule(module: ModuleType, entry: EntryPoint) -> Rule:
    """Give the one rule of a file."""
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Rule)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise _broken(
            entry,
            f"{module.__name__} holds {len(classes)} rules; a file holds one "
            "(what holds none begins with an underscore)",
        )
    rule = classes[0]
    if not isinstance(getattr(rule, "code", None), str) or not _CODE.fullmatch(rule.code):
        raise _broken(entry, f"{_place(rule())} needs a code like AB123")
    if not (rule.__doc__ or "").strip():
        raise _broken(entry, f"{_place(rule())} needs a docstring, which is its page")
    return rule()


def _broken(entry: EntryPoint, complaint: str) -> PackError:
    """Name the pack. Its distribution is asked for only now: reading its metadata takes time."""
    owner = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
    return PackError(f"rule pack {entry.name!r}{owner}: {complaint}")


def _place(rule: object) -> str:
    if isinstance(rule, Card):
        return f"{rule.title} ({rule.name})"
    return f"{type(rule).__module__}.{type(rule).__qualname__}"
