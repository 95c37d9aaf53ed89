"""What `--output-format FMT[=FILE]` asks for, repeatedly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.report import ANNOTATIONS, FORMATS, TEXT, render, stream
from normlint.report.look import Look
from normlint.report.summary import summary
from normlint.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.report.view import View
    from normlint.results import Report


@dataclass(frozen=True)
class Output:
    """One format and where it goes; no file for standard output."""

    format: str
    file: Path | None = None


def parse_outputs(texts: Iterable[str]) -> tuple[Output, ...]:
    """Read the formats.

    Raises `UsageError` for an unknown one, two on standard output, or a file that cannot be.
    """
    outputs = tuple(_output(text) for text in texts)
    on_stdout = [output.format for output in outputs if output.file is None]
    if len(on_stdout) > 1:
        raise UsageError(
            f"only one format can go to standard output, not {' and '.join(on_stdout)}: "
            f"name a file, as in --output-format {on_stdout[-1]}=FILE"
        )
    files = [output.file for output in outputs if output.file is not None]
    for number, file in enumerate(files):
        if file in files[:number]:
            raise UsageError(f"two formats would be written to {file}")
        if not file.parent.is_dir():
            raise UsageError(f"{file} cannot be written: there is no folder {file.parent}")
    return outputs


def _output(text: str) -> Output:
    name, equals, file = text.partition("=")
    if name not in FORMATS:
        raise UsageError(
            f"unknown output format {name!r}{did_you_mean(name, FORMATS)} "
            f"(there are {', '.join(FORMATS)})"
        )
    if equals and not file:
        raise UsageError(f"--output-format {text} names no file")
    return Output(name, Path(file) if file and file != "-" else None)


def write_outputs(report: Report, view: View, outputs: Sequence[Output], colour: str) -> None:
    """Render a report in each format. Where no text for a person shows the end of it, say it.

    Annotations name a few places of each finding only: the log gets the whole text besides.
    """
    for output in outputs:
        if output.file is not None:
            stream.save(render(output.format, report, replace(view, look=Look())), output.file)
        elif output.format in TEXT:
            look = Look(stream.colour_of_stdout(colour))
            stream.emit(render(output.format, report, replace(view, look=look)))
        else:
            stream.emit_document(render(output.format, report, view))
    on_stdout = next((output.format for output in outputs if output.file is None), None)
    if on_stdout in TEXT or view.quiet:
        return
    if on_stdout in ANNOTATIONS:
        stream.say(render("full", report, replace(view, look=Look())).rstrip())
        return
    for line in summary(report, view):
        stream.say(line)
