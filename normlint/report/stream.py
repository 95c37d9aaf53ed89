"""The doors out: standard output, standard error and files."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from normlint.report.look import fit, wants_colour
from normlint.usage import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def emit(text: str) -> None:
    """Write text for a person to standard output, in signs that its encoding has."""
    _write(sys.stdout, text)


def emit_document(text: str) -> None:
    """Write a document to standard output as it is: UTF-8 whatever the terminal's encoding."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        _write(sys.stdout, text)
        return
    try:
        sys.stdout.flush()
        buffer.write(encoded(text))
        buffer.flush()
    except BrokenPipeError:
        _close(sys.stdout)


def say(text: str) -> None:
    """Write a line to standard error."""
    _write(sys.stderr, f"{text}\n")


def save(text: str, path: Path) -> None:
    """Write a document to a file. Raises `UsageError` where that cannot be done."""
    try:
        path.write_bytes(encoded(text))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def encoded(text: str) -> bytes:
    """Give UTF-8; bytes of file names that are no text are written out."""
    return text.encode("utf-8", "backslashreplace")


def colour_of_stdout(choice: str) -> bool:
    """Decide on colour for standard output; `choice` is auto, always or never."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return wants_colour(choice, os.environ, terminal=terminal)


def _write(stream: TextIO | None, text: str) -> None:
    # A process whose streams were closed by its parent has none.
    if stream is None:
        return
    try:
        stream.write(fit(text, stream.encoding or "utf-8"))
        stream.flush()
    except BrokenPipeError:
        _close(stream)


def _close(stream: TextIO) -> None:
    """Let the rest go nowhere: the reader has left, and the run's exit code stands."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
