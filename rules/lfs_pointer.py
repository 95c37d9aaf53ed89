"""NL902."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class LfsPointer(Rule):
    """The file is a Git LFS pointer, not the model.

    ## What it does

    Reports a file that begins like a pointer of Git Large File Storage, with the size of the
    model it stands for and the command that fetches it.

    ## Why is this bad?

    The model was never downloaded, so nothing was checked. Protobuf would call it corrupt.

    ## What to do

    Run `git lfs pull --include PATH`. In GitHub Actions, give `actions/checkout` the setting
    `lfs: true`. `--apply` never touches a pointer.

    ## When not to follow it

    In a job that has no large files on purpose: `--ignore NL902` passes over pointers.

    ## References

    - [The specification of pointers](https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md)
    """

    code = "NL902"
    severity = Severity.ERROR

    def check(self, context: Context) -> Iterable[Diagnostic]:  # noqa: ARG002
        """Yield nothing: such a file gives no graph; reading it reports the fault."""
        return ()
