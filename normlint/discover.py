"""From what stands on the command line to the models to check."""

from __future__ import annotations

import glob
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from normlint.deferred import dataclass
from normlint.globs import path_matches
from normlint.model.remote import RemoteSource, file_name, is_url, require_reader, shown
from normlint.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from normlint.config import Config
    from normlint.model.source import Source

STDIN = "-"
STDIN_NAME = "<stdin>"
SUFFIX = ".onnx"
PASSED_OVER = frozenset(
    (
        ".cache",
        ".eggs",
        ".git",
        ".hg",
        ".mypy_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "site-packages",
        "venv",
    )
)
"""Folders that are never searched, unless they are named."""


@dataclass(frozen=True)
class Target:
    """One model to check."""

    name: str
    """What it is called in reports: the path as given, with forward slashes."""
    path: Path | None
    """Where it lies; None for standard input and for a URL."""
    inside: str = "stdin.onnx"
    """Its path within the folder that was named, which it keeps in `--output-dir`."""
    url: str | None = None
    """Where it lies if that is no local file."""


def discover(
    paths: Sequence[str], config_of: Callable[[Path], Config], *, allow_empty: bool = False
) -> list[Target]:
    """Give the models that the arguments name, each once, folders and globs in sorted order.

    `config_of` gives the configuration of a folder, whose excludes hold in it.
    Raises `UsageError` for a path that does not exist, and where there is nothing to check.
    """
    found: dict[object, Target] = {}
    excluded = False
    for argument in paths:
        for target, named in _expand(argument, config_of):
            if named and target.path is not None and _is_forced_out(target.path, config_of):
                excluded = True
                continue
            found.setdefault(_identity(target), target)
    if not found and not excluded and not allow_empty:
        said = " ".join(paths)
        raise UsageError(
            f"no *{SUFFIX} file in {said}: nothing to check. Were the models fetched (git lfs "
            "pull, dvc pull)? --allow-empty accepts it"
        )
    return list(found.values())


def _identity(target: Target) -> object:
    if target.path is None:
        return target.url or STDIN
    return os.path.realpath(target.path)


def _expand(argument: str, config_of: Callable[[Path], Config]) -> Iterator[tuple[Target, bool]]:
    """Give targets, each with whether it was named itself."""
    if argument == STDIN:
        yield Target(STDIN_NAME, None), False
        return
    if is_url(argument):
        yield remote_target(argument), True
        return
    path = Path(argument)
    if is_folder(path):
        yield from ((_target(file, path), False) for file in _search(path, config_of))
    elif os.path.exists(path):  # noqa: PTH110 - it says no where a name is too long
        yield _target(path), True
    elif glob.has_magic(argument) and (matched := _matches(argument)):
        for match in matched:
            if Path(match).is_dir():
                folder = Path(match)
                yield from ((_target(file, folder), False) for file in _search(folder, config_of))
            elif match.endswith(SUFFIX):
                yield _target(Path(match)), True
    else:
        raise UsageError(missing(path, argument))


def _matches(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - it takes absolute patterns


def _target(path: Path, folder: Path | None = None) -> Target:
    inside = path.name if folder is None else path.relative_to(folder).as_posix()
    return Target(path.as_posix(), path, inside)


def remote_target(url: str) -> Target:
    """Give the model behind a URL. Raises `UsageError` where nothing is installed to read it."""
    require_reader(url)
    return Target(shown(url), None, file_name(url), url)


def content_of(target: Target) -> bytes | Source | None:
    """Give what a model that is no local file is read from; None for one that is."""
    if target.path is not None:
        return None
    return RemoteSource(target.url) if target.url is not None else read_stdin()


def read_stdin() -> bytes:
    """Read the model that is piped in. Raises `UsageError` where nobody pipes."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"{STDIN} reads a model from standard input, and none is piped into it")
    return sys.stdin.buffer.read()


def is_folder(path: Path) -> bool:
    """Say whether a path is a folder; one that the system cannot look at is none."""
    return os.path.isdir(path)  # noqa: PTH112 - Path raises where a name is too long


def missing(path: Path, argument: str) -> str:
    """Say why there is no such path, with the command that fetches it where one does."""
    from normlint.model.sniff import missing_hint

    try:
        hint = missing_hint(path)
    except OSError as error:
        return f"{argument}: {error.strerror}"
    if hint is not None:
        return f"{argument} is not here. Run: {hint}"
    if path.is_symlink():
        return f"{argument} is a link to {path.readlink()}, which does not exist"
    if glob.has_magic(argument):
        return f"{argument} matches no file"
    return f"{argument} does not exist{_nearest(path)}"


def _nearest(path: Path) -> str:
    """Give the models beside a path that are called alike."""
    try:
        beside = [name for name in os.listdir(path.parent) if name.endswith(SUFFIX)]  # noqa: PTH208
    except OSError:
        return ""
    return did_you_mean(path.name, sorted(beside))


def _search(folder: Path, config_of: Callable[[Path], Config]) -> Iterator[Path]:
    """Give the models in a folder and below it; links to folders are not followed."""
    for here, folders, files in os.walk(folder):
        config = config_of(Path(here))
        folders[:] = sorted(
            name
            for name in folders
            if name not in PASSED_OVER and not is_excluded(Path(here, name), config)
        )
        for name in sorted(files):
            path = Path(here, name)
            if name.endswith(SUFFIX) and not is_excluded(path, config):
                yield path


def _is_forced_out(path: Path, config_of: Callable[[Path], Config]) -> bool:
    config = config_of(path.parent)
    return config.force_exclude and is_excluded(path, config)


def is_excluded(path: Path, config: Config) -> bool:
    """Say whether a path matches `exclude`."""
    if not config.exclude:
        return False
    relative = relative_to(path, config.root)
    return any(path_matches(relative, pattern) for pattern in config.exclude)


def relative_to(path: Path, root: Path | None) -> str:
    """Give a path relative to a folder (the current one for None), with forward slashes."""
    base = Path.cwd() if root is None else root
    absolute = Path(os.path.normpath(path.absolute()))
    if absolute.is_relative_to(base):
        return absolute.relative_to(base).as_posix()
    return absolute.as_posix()
