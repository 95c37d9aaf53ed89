"""From TOML tables to values: every key known, every value of its type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlint.config.config import BOUNDS, CHOICES, fields_of_config, fields_of_settings
from normlint.context.settings import Intent
from normlint.suppress import parse
from normlint.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXTEND = "extend"


def known_keys() -> list[str]:
    """Give the keys of a configuration file, in order."""
    return [key_of(name) for name in (*fields_of_config(), *fields_of_settings())]


def key_of(name: str) -> str:
    """Give the key of a field."""
    return name.replace("_", "-")


def inline(text: str) -> dict[str, Any] | None:
    """Read `KEY=VALUE` of the command line (VALUE as in TOML); None where it is no such thing."""
    import tomllib

    key, equals, value = text.partition("=")
    top = key.strip().split(".")[0].replace("_", "-")
    if not equals or Path(text).exists() or "/" in key:
        return None
    try:
        table = tomllib.loads(f"{key.strip()} = {value}")
    except tomllib.TOMLDecodeError:
        try:
            table = tomllib.loads(f"{key.strip()} = {value!r}")
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"--config {text}: {error}") from error
    if top not in known_keys():
        raise unknown_key(top, "--config")
    return validate(table, lambda _: "--config")


def unknown_key(key: str, where: str) -> UsageError:
    """Give the complaint about a key that there is not."""
    known = known_keys()
    return UsageError(
        f"{where}: unknown key {key!r}{did_you_mean(key, known)} (known: {', '.join(known)})"
    )


def validate(table: Mapping[str, Any], where: Callable[[str], str]) -> dict[str, Any]:
    """Give the values by field name. Raise `UsageError` for an unknown key or a wrong value.

    `where` gives for a key what names its place.
    """
    types = {**fields_of_config(), **fields_of_settings()}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in types or "_" in key:
            raise unknown_key(key, where(key))
        values[name] = _value(name, str(types[name].type), value, f"{where(key)}: {key}")
    return values


def _value(name: str, kind: str, value: Any, where: str) -> Any:
    if name == "ignore_nodes":
        return _ignores(value, where)
    if name == "jobs":
        return jobs_of(str(value) if type(value) is int else value, where)
    converted = _converted(kind, value, where)
    if name == "output_format" and not converted:
        raise UsageError(f"{where} names no format")
    if name in BOUNDS and converted is not None:
        require_bounds(converted, BOUNDS[name], where)
    if name in CHOICES:
        chosen = converted if isinstance(converted, (tuple, frozenset)) else (converted,)
        for choice in chosen:
            require_choice(str(choice), CHOICES[name], where)
    return converted


def jobs_of(value: Any, where: str) -> str:
    """Read a number of processes, or `auto`. Raises `UsageError`."""
    if value == "auto" or (isinstance(value, str) and value.isdecimal() and int(value) > 0):
        return str(value)
    raise UsageError(f"{where} is a number of processes or auto, not {value!r}")


def require_bounds(number: float, bounds: tuple[float, float], where: str) -> None:
    """Raise `UsageError` where a number is out of bounds or none at all."""
    least, most = bounds
    if not least <= number <= most:
        raise UsageError(f"{where} is a number from {least} to {most}, not {number}")


def require_choice(choice: str, choices: tuple[str, ...], where: str) -> None:
    """Raise `UsageError` where a word is none of those that there are."""
    if choice not in choices:
        near = did_you_mean(choice, choices)
        raise UsageError(f"{where} is one of {', '.join(choices)}, not {choice!r}{near}")


def _converted(kind: str, value: Any, where: str) -> Any:
    optional = kind.removesuffix(" | None")
    converter = _CONVERTERS[optional]
    converted = converter(value)
    if converted is None:
        raise UsageError(f"{where} is {_SAID[optional]}, not {value!r}")
    return converted


def _texts(value: Any) -> tuple[str, ...] | None:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        return None
    return tuple(values)


def _text_table(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        return None
    return dict(value)


def _list_table(value: Any) -> dict[str, tuple[str, ...]] | None:
    if not isinstance(value, dict):
        return None
    table = {key: _texts(item) for key, item in value.items()}
    return None if None in table.values() else table  # type: ignore[return-value]


def _ignores(value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UsageError(f"{where} is a list of tables")
    return tuple(parse(item, where) for item in value)


def _plain(*types: type) -> Any:
    def convert(value: Any) -> Any:
        return value if type(value) in types else None

    return convert


def _set(value: Any) -> frozenset[str] | None:
    texts = _texts(value)
    return None if texts is None else frozenset(texts)


_CONVERTERS = {
    "bool": _plain(bool),
    "int": _plain(int),
    "float": _plain(int, float),
    "str": _plain(str),
    "Path": lambda value: Path(value) if isinstance(value, str) else None,
    "Intent": lambda value: Intent(value) if value in [*Intent] else value,
    "tuple[str, ...]": _texts,
    "frozenset[str]": _set,
    "dict[str, str]": _text_table,
    "dict[str, tuple[str, ...]]": _list_table,
}
_SAID = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "Path": "a path",
    "tuple[str, ...]": "a text or a list of texts",
    "frozenset[str]": "a text or a list of texts",
    "dict[str, str]": "a table of texts",
    "dict[str, tuple[str, ...]]": "a table of lists of texts",
}
