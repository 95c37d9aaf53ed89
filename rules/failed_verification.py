"""NL990."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class FailedVerification(Rule):
    """A rewrite moved the numbers and was taken back.

    ## What it does

    Reports a repair that was proved wrong: its region, run before and after on the same inputs,
    gave outputs that differ by more than the tolerance of their types. It was rolled back, and
    the model is as it was in this place.

    ## Why is this bad?

    It is a fault of normlint, or of the rule pack that the rule comes from, and not of the model.

    ## What to do

    Please report it with the model, or with the nodes that the finding names.
    """

    code = "NL990"
    severity = Severity.ERROR

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: a graph holds nothing of it; verification itself reports it."""
        return ()
