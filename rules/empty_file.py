"""NL903."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class EmptyFile(Rule):
    """The file has no bytes.

    ## What it does

    Reports a file of 0 bytes.

    ## Why is this bad?

    An export or a download was interrupted. It is easily missed, since an empty file is a valid
    protobuf message: loading it gives a model without nodes, and no error.

    ## What to do

    Export or download the model again.
    """

    code = "NL903"
    severity = Severity.ERROR

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: such a file gives no graph; reading it reports the fault."""
        return ()
