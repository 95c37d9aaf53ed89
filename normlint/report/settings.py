"""The configuration that holds, as a file would say it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from normlint.config.config import fields_of_config, fields_of_settings
from normlint.config.tables import key_of

if TYPE_CHECKING:
    from normlint.config import Config


def settings_text(config: Config) -> str:
    """Render a configuration as TOML, with the file that it comes from."""
    source = "no file: defaults and the command line" if config.file is None else config.file
    lines = [f"# from {source}"]
    lines += [_line(name, getattr(config, name)) for name in fields_of_config()]
    lines += [_line(name, getattr(config.settings, name)) for name in fields_of_settings()]
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, value: Any) -> str:
    if value is None:
        return f"# {key_of(name)} is not set"
    return f"{key_of(name)} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, frozenset):
        return _toml(sorted(value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if hasattr(value, "__dataclass_fields__"):
        value = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "kind"}
        value = {key: item for key, item in value.items() if item not in {None, ""}}
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {', '.join(inner)} }}" if value else "{}"
    return json.dumps(str(value), ensure_ascii=False)
