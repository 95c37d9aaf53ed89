"""Mistakes of the caller: each is said with what was probably meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class UsageError(Exception):
    """The command line or the configuration cannot be followed; the message says why."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give `; did you mean …?` with the nearest known words, or nothing."""
    by_case = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_case, n=2, cutoff=0.5)
    if not near:
        return ""
    return f"; did you mean {' or '.join(repr(by_case[name]) for name in near)}?"
