"""The command line: what each flag is, and the only place that exits.

Annotations are evaluated here as they are defined: typer would compile each of them from its text.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from normlint import __version__
from normlint.plugins import PackError
from normlint.report import stream
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


USAGE, BUG, INTERRUPTED = 2, 3, 130

app = typer.Typer(
    name="normlint",
    help="Find and repair problems with the normalisation layers of ONNX models.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


def run() -> None:
    """Run the command line and exit."""
    if sys.argv[1:2] != ["check"]:
        # The other commands, which a hook need not wait for.
        from normlint.cli import pages  # noqa: F401 - it adds them to the app
    try:
        app(prog_name="normlint")
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug gets exit code 3
        sys.exit(_bug(error))


def _bug(error: BaseException) -> int:
    if _wants_traceback():
        import traceback

        stream.say("".join(traceback.format_exception(error)).rstrip())
    stream.say(f"normlint: internal error: {type(error).__name__}: {error}")
    stream.say("This is a bug in normlint. Run it again with -v for a traceback, and report it.")
    return BUG


def _wants_traceback() -> bool:
    return bool({"-v", "--verbose"} & set(sys.argv)) or bool(os.environ.get("NORMLINT_TRACEBACK"))


def leave(job: "Callable[[], int]") -> None:
    """Do a job and exit with its code."""
    try:
        code = job()
    except (UsageError, PackError) as error:
        stream.say(f"normlint: {error}")
        code = USAGE
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def main(
    *,
    version: Annotated[
        bool, typer.Option("-V", "--version", help="Show the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Versions of what it stands on, too.")
    ] = False,
) -> None:
    """Find and repair problems with the normalisation layers of ONNX models."""
    if version:
        from normlint.report.versions import versions_text

        stream.emit(versions_text() if verbose else f"normlint {__version__}\n")
        raise typer.Exit
