"""Bring the side files of a model along when it is written into another folder.

They are copied, never linked: onnx refuses side files with more than one name, and a link would let
a later change of one model reach the other.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from normlint.model.emit import copy
from normlint.model.fault import FileFault, SaveError
from normlint.model.source import PIECE, FileSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from normlint.model.atomic import Litter
    from normlint.model.external import SideFile, SideFiles


def carry_side_files(
    side_files: SideFiles, locations: Iterable[str], folder: Path, litter: Litter
) -> tuple[Path, ...]:
    """Copy what lies at `locations` to the same places below `folder`; return the new files.

    What is missing or unsafe is left out. Raises `SaveError` where another file is in the way.
    """
    if side_files.folder is None or side_files.folder.resolve() == folder.resolve():
        return ()
    carried = []
    for location in sorted(set(locations)):
        try:
            side_file = side_files.find(location)
        except FileFault:
            continue
        target = folder / location
        litter.folder(target.parent)
        if not target.parent.resolve().is_relative_to(folder.resolve()):
            message = f"{target} would lie outside the model's folder: a link leads out of it"
            raise SaveError(message)
        if os.path.lexists(target):
            _require_same(side_file, target)
            continue
        _copy(side_file, target, litter)
        carried.append(target)
    return tuple(carried)


def _copy(side_file: SideFile, target: Path, litter: Litter) -> None:
    source = FileSource(side_file.path, follow_symlinks=False)
    hidden, fd = litter.hidden(target.parent)
    with closing(source), os.fdopen(fd, "r+b", buffering=0):
        os.ftruncate(fd, source.size)
        for start, stop in _extents(source):
            os.lseek(fd, start, os.SEEK_SET)
            copy(source, start, stop - start, fd)
        os.fsync(fd)
    litter.rename(hidden, target)


def _extents(source: FileSource) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes."""
    data, hole = getattr(os, "SEEK_DATA", None), getattr(os, "SEEK_HOLE", None)
    if data is None or hole is None:
        yield 0, source.size
        return
    stop = 0
    while stop < source.size:
        try:
            start = os.lseek(source.fd, stop, data)
        except OSError:
            # Nothing but a hole is left.
            return
        stop = os.lseek(source.fd, start, hole)
        yield start, stop


def _require_same(side_file: SideFile, target: Path) -> None:
    """Raise `SaveError` unless `target` holds the same bytes."""
    try:
        ours = FileSource(side_file.path, follow_symlinks=False)
        theirs = FileSource(target, follow_symlinks=False)
    except OSError as error:
        raise SaveError(f"{target} is in the way of a side file: {error}") from error
    with closing(ours), closing(theirs):
        if os.path.samestat(ours.stat, theirs.stat):
            return
        same = ours.size == theirs.size and all(
            ours.read(start, length) == theirs.read(start, length)
            for start in range(0, ours.size, PIECE)
            for length in (min(PIECE, ours.size - start),)
        )
    if not same:
        raise SaveError(f"{target} is another file than the model's side file of that name")
