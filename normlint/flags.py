"""What the flags of the command line are, and what their texts mean."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normlint.usage import UsageError

if TYPE_CHECKING:
    from normlint.config import Resolver


class FailOn(StrEnum):
    """Severities that may fail a run."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


class Verify(StrEnum):
    """How repairs are proved."""

    REGION = "region"
    MODEL = "model"
    NONE = "none"


class IntentChoice(StrEnum):
    """What a model is for."""

    INFER = "infer"
    TRAIN = "train"


class Color(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class RulesFormat(StrEnum):
    """Formats of the table of rules."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class ShowFormat(StrEnum):
    """Formats of a model or a part of it."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


class BaselineMode(StrEnum):
    """What to do with a baseline."""

    CREATE = "create"
    UPDATE = "update"
    PRUNE = "prune"
    SHOW = "show"


class PageFormat(StrEnum):
    """Formats of a rule's page."""

    TEXT = "text"
    MARKDOWN = "markdown"


class NormsFormat(StrEnum):
    """Formats of the list of normalisations."""

    TEXT = "text"
    JSON = "json"


def complete_format(incomplete: str) -> list[str]:
    """Give the output formats that begin so, for the shell."""
    from normlint.report import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


def complete_target(incomplete: str) -> list[str]:
    """Give the runtimes that begin so, for the shell."""
    from normlint.config.config import CHOICES

    return [name for name in CHOICES["targets"] if name.startswith(incomplete)]


def complete_rule(incomplete: str) -> list[str]:
    """Give the codes and names of rules that begin so, for the shell."""
    from normlint.plugins import load_cards

    names = [name for card in load_cards() for name in (card.code, card.name)]
    return [name for name in names if name.startswith(incomplete)]


class ListChoice(StrEnum):
    """Lists of nodes that quantisers take."""

    NODES_TO_EXCLUDE = "nodes-to-exclude"
    LAYER_PRECISIONS = "layer-precisions"
    IGNORED_SCOPE = "ignored-scope"


Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATHS]...",
        help="Models, folders, globs, URLs, or - for standard input. [default: the current folder]",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Findings only, no summary.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Evidence too, and tracebacks of bugs.")
]
ColorOption = Annotated[Color, typer.Option(help="Colours on standard output.")]
NoProgress = Annotated[
    bool,
    typer.Option("--no-progress", envvar="NORMLINT_NO_PROGRESS", help="No progress on a terminal."),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="FILE|KEY=VALUE",
        envvar="NORMLINT_CONFIG",
        help="A configuration file to use, or one setting as a configuration file has it.",
    ),
]
Isolated = Annotated[bool, typer.Option("--isolated", help="Ignore all configuration files.")]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOBS", help="Pass over these when a folder is searched."),
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Nothing to check is no mistake.")]


def selection_of(texts: list[str] | None, *, before_quantization: bool) -> tuple[str, ...] | None:
    """Give the rules to run."""
    from normlint.selection import BEFORE_QUANTIZATION

    if before_quantization and texts:
        raise UsageError("--before-quantization selects rules, and --select others: give one")
    return BEFORE_QUANTIZATION if before_quantization else split(texts)


def split(texts: list[str] | None) -> tuple[str, ...] | None:
    """Give the parts of comma lists."""
    if not texts:
        return None
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def targets_of(texts: list[str] | None) -> frozenset[str] | None:
    """Read --targets. Raises `UsageError` for a runtime that there is not."""
    from normlint.config.config import CHOICES
    from normlint.config.tables import require_choice

    targets = split(texts)
    if targets is None:
        return None
    for target in targets:
        require_choice(target, CHOICES["targets"], "--targets")
    return frozenset(targets)


def intent_of(choice: IntentChoice | None) -> Any:
    """Read --intent."""
    from normlint.context.settings import Intent

    return None if choice is None else Intent(choice.value)


def jobs_of(text: str | None) -> str | None:
    """Read --jobs. Raises `UsageError`."""
    from normlint.config import tables

    return None if text is None else tables.jobs_of(text, "--jobs")


def resolver_of(over: dict[str, Any], config: list[str] | None, *, isolated: bool) -> "Resolver":
    """Give what finds configurations: `over` wins over --config KEY=VALUE, and that over files."""
    from normlint.config import Resolver, inline

    values: dict[str, Any] = {}
    file: Path | None = None
    for text in config or ():
        setting = inline(text)
        if setting is not None:
            values |= setting
            continue
        if file is not None:
            raise UsageError(f"--config names two files, {file} and {text}")
        file = Path(text)
        if not file.is_file():
            raise UsageError(f"--config {text} does not exist")
    values |= {name: value for name, value in over.items() if value is not None}
    return Resolver(values, file=file, isolated=isolated)
