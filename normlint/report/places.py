"""Where a model lies, as other programs want to hear it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from urllib.parse import quote

from normlint.report.look import visible


@cache
def repository(folder: Path) -> Path:
    """Give the folder that holds `.git`, from a folder upwards; else the folder itself."""
    here = folder.resolve()
    found = (parent for parent in (here, *here.parents) if (parent / ".git").exists())
    return next(found, here)


def repository_path(path: str) -> str:
    """Give a path relative to the repository, with forward slashes; absolute where it is outside.

    Links are followed, as the programs that read it do.
    """
    whole = Path(path).resolve()
    root = repository(Path.cwd())
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else whole.as_posix()


def uri(path: str) -> str:
    """Give the URI of a model: relative to the repository, or `file://` where it is outside."""
    place = repository_path(path)
    encoded = quote(place.encode("utf-8", "surrogateescape"))
    return f"file://{encoded}" if place.startswith("/") else encoded


def source_place(source: str) -> tuple[str, int] | None:
    """Give the URI and line of `file:line`, where the file lies in the repository."""
    path, _, line = source.rpartition(":")
    if not line.isdecimal() or not 0 < int(line) < 2**31 or "\0" in path:
        return None
    try:
        place = Path(path).resolve()
        inside = place.is_relative_to(repository(Path.cwd())) and place.is_file()
    except OSError:
        return None
    return (uri(path), int(line)) if inside else None


def said(node: str, output: str) -> str:
    """Give the words that name a place in a graph."""
    if node:
        return f" at {visible(node)}"
    return f" at the tensor {visible(output)}" if output else ""
