"""NL907."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class UnsafeExternalPath(Rule):
    """A model asks for a side file outside its own folder.

    ## What it does

    Reports external data whose location is an absolute path, climbs out of the model's folder with
    `..`, or gets out of it through a symbolic link. The file is not opened.

    ## Why is this bad?

    A model that reaches out of its folder can make a tool read, and with `--apply` copy, any file
    of the machine. There is no honest need for it.

    ## What to do

    Treat the model as hostile unless you know where it comes from. Otherwise move the side file
    beside the model and save it again with a relative location.

    ## References

    - [External data](https://onnx.ai/onnx/repo-docs/ExternalData.html)
    """

    code = "NL907"
    severity = Severity.ERROR

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: a graph holds nothing of it; reading the values reports the fault."""
        return ()
