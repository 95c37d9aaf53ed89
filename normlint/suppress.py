"""Deliberate ignores: entries of the configuration, and of the model's own metadata."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from normlint.globs import name_matches, path_matches
from normlint.results import Suppressed
from normlint.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from normlint.results import Finding

METADATA_KEY = "normlint.ignore"
"""Entry of a model's metadata_props that holds ignores: a JSON list of tables."""


@dataclass(frozen=True)
class Ignore:
    """One entry: findings of these rules at these places do not count."""

    rules: tuple[str, ...]
    """Codes, prefixes or names."""
    model: str = "**"
    """Glob over the model's path, relative to the configuration."""
    node: str = "*"
    """Glob over the addresses of the nodes; one that matches is enough."""
    module: str = "*"
    """Glob over the module path that the exporter wrote down."""
    op: str = "*"
    """Operator of the node that the finding is about."""
    reason: str = ""
    """Why."""
    expires: dt.date | None = None
    """The last day on which it holds."""
    kind: str = "config"
    """config, or model for an entry of the model's metadata."""

    def covers(self, finding: Finding) -> bool:
        """Say whether it speaks of a finding, expired or not."""
        return (
            any(_speaks_of(selector, finding) for selector in self.rules)
            and name_matches(finding.module or "", self.module)
            and name_matches(finding.op_type, self.op)
            and any(name_matches(name, self.node) for name in (finding.node, *finding.nodes))
        )

    def holds(self, today: dt.date) -> bool:
        """Say whether it has not expired."""
        return self.expires is None or today <= self.expires

    def __str__(self) -> str:
        """Give it as one would write it down."""
        places = ((f.name, getattr(self, f.name), f.default) for f in fields(self)[1:5])
        said = [f"{name} = {value!r}" for name, value, default in places if value != default]
        return ", ".join([f"rules = {list(self.rules)}", *said])


def _speaks_of(selector: str, finding: Finding) -> bool:
    if selector.upper() == "ALL":
        return True
    return selector.casefold() == finding.rule or finding.code.startswith(selector.upper())


@dataclass(frozen=True)
class Suppressor:
    """Decides for one model which findings are ignored on purpose, before any repair is made."""

    ignores: tuple[Ignore, ...] = ()
    trust_model: bool = True
    """Whether ignores in the model's own metadata are followed."""
    today: dt.date = dt.date.max

    def with_model(self, text: str) -> Suppressor:
        """Add the ignores that the model carries."""
        if not text or not self.trust_model:
            return self
        return replace(self, ignores=(*self.ignores, *model_ignores(text)))

    def __call__(self, finding: Finding) -> Suppressed | None:
        """Give why a finding does not count, or None."""
        for ignore in self.ignores:
            if ignore.covers(finding) and ignore.holds(self.today):
                return Suppressed(ignore.kind, ignore.reason)
        return None


def model_ignores(text: str) -> tuple[Ignore, ...]:
    """Read the ignores of a model's metadata; what cannot be read counts as none."""
    try:
        tables = json.loads(text)
        return tuple(_model_ignores(tables))
    except (ValueError, RecursionError, UsageError):
        return ()


def _model_ignores(tables: object) -> Iterator[Ignore]:
    if not isinstance(tables, list):
        raise UsageError("a list of ignores is wanted")
    for table in tables:
        if not isinstance(table, dict):
            raise UsageError("an ignore is a table")
        yield replace(parse(table, "metadata"), model="**", kind="model")


def parse(table: Mapping[str, Any], where: str) -> Ignore:
    """Make an entry of a table. Raise `UsageError` with what is wrong with it."""
    known = [f.name for f in fields(Ignore) if f.name != "kind"]
    for key in table:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key {key!r} in an entry of ignore-nodes"
                f"{did_you_mean(key, known)} (known: {', '.join(known)})"
            )
    rules = table.get("rules")
    if isinstance(rules, str):
        rules = [rules]
    if not isinstance(rules, list) or not rules or not all(isinstance(r, str) for r in rules):
        raise UsageError(f"{where}: an entry of ignore-nodes needs rules, as in rules = ['NL201']")
    texts = {key: table[key] for key in known[1:6] if key in table}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{where}: {key} in an entry of ignore-nodes is a text")
    return Ignore(rules=tuple(rules), expires=_date(table.get("expires"), where), **texts)


def _date(value: object, where: str) -> dt.date | None:
    if isinstance(value, dt.datetime):
        return value.date()
    if value is None or isinstance(value, dt.date):
        return value
    try:
        return dt.date.fromisoformat(str(value))
    except ValueError as error:
        raise UsageError(f"{where}: expires is a date like 2027-03-01, not {value!r}") from error


def of_model(ignores: Iterable[Ignore], path: str) -> tuple[Ignore, ...]:
    """Give the entries that speak of the model at a path relative to the configuration."""
    return tuple(ignore for ignore in ignores if path_matches(path, ignore.model))
