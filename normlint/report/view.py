"""What a format may know besides the report itself."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.report.look import Look
from normlint.verdict import Verdict

if TYPE_CHECKING:
    from normlint.cards import Card


@dataclass(frozen=True)
class View:
    """How a report is to be shown."""

    look: Look = field(default_factory=Look)
    verdict: Verdict = field(default_factory=Verdict)
    rules: tuple[Card, ...] = ()
    """The installed rules, for formats that describe them."""
    diff: bool = False
    """Whether the changes are shown instead of the findings."""
    statistics: bool = False
    """Whether findings are counted by rule besides."""
    misses: bool = False
    """Whether what only looks like a normalisation is told, with the reason."""
    unsafe: bool = False
    """Whether unsafe repairs were wanted."""
    quiet: bool = False
    """Whether the summary is left out."""
    verbose: bool = False
    """Whether the evidence is shown in full."""
