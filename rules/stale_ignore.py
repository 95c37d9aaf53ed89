"""NL901."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class StaleIgnore(Rule):
    """A suppression matches nothing, or has expired.

    ## What it does

    Reports an entry of `ignore-nodes` (in the configuration or in the model's own metadata) that
    matched no finding of the run, an entry whose `expires` date has passed, and an entry of the
    baseline whose finding is gone.

    ## Why is this bad?

    A suppression that matches nothing hides the next finding that happens to match it. One that has
    expired was meant to be looked at again by now: its findings count once more.

    ## What to do

    Remove the entry, or give it a new date and a reason. `normlint baseline prune` removes what is
    stale from a baseline.

    ## When not to follow it

    When a model that an entry is for is checked in another run. Entries whose rules were not
    selected, and whose `model` was not among those checked, are never called stale.
    """

    code = "NL901"
    severity = Severity.WARNING

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: suppressions are no part of a graph; the run itself reports them."""
        return ()
