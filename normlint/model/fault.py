"""What is said when a file is no model, or a part of one cannot be had."""

from __future__ import annotations


class FileFault(Exception):  # noqa: N818 - a finding about a file, as the user sees it
    """A finding about the file itself (NL902 to NL907): what is wrong and what to do.

    `code` is the rule's code, `tensors` the names of the tensors that cannot be read because of it.
    """

    def __init__(self, code: str, message: str, tensors: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.tensors = tensors

    def __reduce__(self) -> tuple[type[FileFault], tuple[str, str, tuple[str, ...]]]:
        """Cross a process boundary whole: a pool of workers hands faults over."""
        return type(self), (self.code, self.message, self.tensors)


class ValuesUnavailable(Exception):  # noqa: N818 - no error of the program: the values are not there
    """A tensor's values cannot be read; the message says why."""


class SaveError(Exception):
    """A model was not written, and the old file is as it was; the message says why."""
