"""NL904."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class NotAModel(Rule):
    """The file is something else than an ONNX model.

    ## What it does

    Reports a file whose first bytes are those of another format, and says which: an HTML or JSON
    page, a zip archive or PyTorch checkpoint, a pickle, a gzip file, an ONNX Runtime `.ort` file
    and others.

    ## Why is this bad?

    It cannot be checked. An HTML or JSON page is mostly the answer of a server that wanted a login.

    ## What to do

    Download it again with the right to do so, unpack it, or export the model to ONNX.
    """

    code = "NL904"
    severity = Severity.ERROR

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: such a file gives no graph; reading it reports the fault."""
        return ()
