"""The JSON schema of the configuration, made from the fields themselves."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from itertools import pairwise
from typing import Any

from normlint.config.config import BOUNDS, CHOICES, Config, fields_of_config, fields_of_settings
from normlint.config.tables import EXTEND, key_of
from normlint.context.settings import Settings
from normlint.selection import LEVELS
from normlint.suppress import Ignore

_TEXTS = {"type": "array", "items": {"type": "string"}}
_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "Path": {"type": "string"},
    "Intent": {"type": "string"},
    "tuple[str, ...]": {"anyOf": [{"type": "string"}, _TEXTS]},
    "frozenset[str]": {"anyOf": [{"type": "string"}, _TEXTS]},
    "dict[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
    "dict[str, tuple[str, ...]]": {
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "string"}, _TEXTS]},
    },
}


_SPECIAL: dict[str, dict[str, Any]] = {
    "severity": {"type": "object", "additionalProperties": {"enum": list(LEVELS)}},
    "jobs": {
        "anyOf": [
            {"type": "string", "pattern": "^(auto|0*[1-9][0-9]*)$"},
            {"type": "integer", "minimum": 1},
        ]
    },
}


def schema() -> dict[str, Any]:
    """Give the schema of `normlint.toml` and of `[tool.normlint]`."""
    described = descriptions(Config) | descriptions(Settings)
    properties = {
        key_of(name): {"description": described.get(name, ""), **_property(name, str(field.type))}
        for name, field in (fields_of_config() | fields_of_settings()).items()
    }
    extend = {"description": "A file whose settings hold where this one has none."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of normlint",
        "type": "object",
        "additionalProperties": False,
        "properties": {EXTEND: {**extend, "type": "string"}, **properties},
    }


def descriptions(cls: type) -> dict[str, str]:
    """Give the docstrings that stand below the fields of a dataclass."""
    body = ast.parse(inspect.getsource(cls)).body[0]
    found: dict[str, str] = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for before, after in pairwise(statements):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[before.target.id] = " ".join(str(after.value.value).split())
    return found


def _property(name: str, kind: str) -> dict[str, Any]:
    if name in _SPECIAL:
        return _SPECIAL[name]
    if name == "ignore_nodes":
        return {"type": "array", "items": _ignore()}
    if name not in CHOICES:
        return _TYPES[kind.removesuffix(" | None")] | _bounds(name)
    choices = {"enum": list(CHOICES[name])}
    if kind.startswith(("frozenset", "tuple")):
        return {"anyOf": [choices, {"type": "array", "items": choices}]}
    return choices


def _bounds(name: str) -> dict[str, float]:
    if name not in BOUNDS:
        return {}
    least, most = BOUNDS[name]
    return {"minimum": least, "maximum": most}


def _ignore() -> dict[str, Any]:
    described = descriptions(Ignore)
    texts = {
        field.name: {"description": described[field.name], "type": "string"}
        for field in fields(Ignore)
        if field.name not in {"rules", "kind"}
    }
    rules = {"description": described["rules"], "anyOf": [{"type": "string"}, _TEXTS]}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["rules"],
        "properties": {"rules": rules, **texts},
    }
