"""NL906."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class MissingExternalData(Rule):
    """A side file with weights is missing or too short.

    ## What it does

    Reports weights that a model keeps in a side file which is not there, or ends before them.

    ## Why is this bad?

    The model cannot run. The structure of the graph is checked all the same; whatever depends on
    values (folding, statistics, constants) is not.

    ## What to do

    Put the side file into the model's folder, under the name that the message gives.

    ## When not to follow it

    When only the graph is kept under version control and its weights elsewhere: `--ignore NL906`.
    """

    code = "NL906"
    severity = Severity.WARNING

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: a graph holds nothing of it; reading the values reports the fault."""
        return ()
