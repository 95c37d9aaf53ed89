"""Glob patterns over paths and over the names of nodes and modules."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache

_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^]]*\]|.", re.DOTALL)


def name_matches(name: str, pattern: str) -> bool:
    """Say whether the name of a node or module matches; `*` stands for any text, slashes too."""
    return name == pattern or fnmatchcase(name, pattern)


def path_matches(path: str, pattern: str) -> bool:
    """Say whether a path (with forward slashes, relative to the configuration) matches.

    `*` stays within a folder and `**` crosses folders. A pattern without a slash matches a file or
    a folder of that name anywhere; what matches a folder matches all that is in it.
    """
    regex = _path_regex(pattern.removeprefix("./").rstrip("/"))
    if "/" not in pattern.rstrip("/"):
        return any(regex.fullmatch(part) for part in path.split("/"))
    parts = path.split("/")
    return any(regex.fullmatch("/".join(parts[:end])) for end in range(1, len(parts) + 1))


@lru_cache
def _path_regex(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_piece(part) for part in _PARTS.findall(pattern)), re.DOTALL)


def _piece(part: str) -> str:
    if part == "**/":
        return "(?:.*/)?"
    if part == "**":
        return ".*"
    if part == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part.startswith("[") and len(part) > 2:
        inner = part[1:-1].replace("\\", "\\\\")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(part)
