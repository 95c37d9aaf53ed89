"""NL905."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class UnreadableModel(Rule):
    """The file is truncated or corrupt.

    ## What it does

    Reports a file that begins like a model and cannot be read as one, with the offset at which
    reading stopped: cut short, with bytes behind its end, with lengths that point out of the
    file, or nested deeper than any model is.

    ## Why is this bad?

    Nothing in it was checked.

    ## What to do

    Compare its size or checksum with the original, and fetch or export it again. A model of more
    than 2 GiB has to keep its weights in a side file: `onnx.save(model, path,
    save_as_external_data=True)`.
    """

    code = "NL905"
    severity = Severity.ERROR

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: such a file gives no graph; reading it reports the fault."""
        return ()
